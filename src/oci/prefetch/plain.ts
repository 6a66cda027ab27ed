import { DomainError } from '../../runtime/errors.ts';
import { algorithmOf, digestOf, hexOf, isDigest, type Digest } from '../../runtime/digest.ts';
import { parseDocument } from '../../mirror/document.ts';
import type { PlainEntry, PlainFile, PlainOptions, PlainSource } from '../../prefetch/plain.ts';
import { contentOf, digestOfContent, readAll } from '../../storage/files/content.ts';
import { manifestTypeIn, mediaTypes } from '../format/manifest.ts';
import type { ImageMirror } from '../mirrored/image-mirror.ts';
import { resource, upstreamNamed, type UpstreamRepository } from '../mirrored/upstream-repository.ts';
import { contentsOf } from './image-contents.ts';
import { parseImageName } from './image-name.ts';

// Images in an OCI image layout (image-spec "Image Layout"), or in an archive of `docker save`.

/** Most bytes of a list of images, and of a manifest. */
const maxDocument = 4 * 2 ** 20;
const layerType = 'application/vnd.docker.image.rootfs.diff.tar';

/** The images in a folder or an archive. Throws `Invalid`. */
export async function* plainImages(
  mirror: ImageMirror,
  source: PlainSource,
  options: PlainOptions,
): AsyncGenerator<PlainEntry> {
  const { path, files } = source;
  const placed = (text: string | undefined) => locate(mirror, text ?? options.name, path);
  if (files.has('oci-layout') && files.has('index.json')) {
    const { manifests = [] } = (await documentIn(source, 'index.json')) as { manifests?: LayoutDescriptor[] };
    const read = new Set<string>();
    for (const each of manifests) {
      if (typeof each.digest !== 'string' || !isDigest(each.digest)) throw malformed(path, 'index.json has no digest');
      const { annotations = {} } = each;
      const { place, tag } = placed(
        annotations['io.containerd.image.name'] ??
          fullName(annotations['org.opencontainers.image.ref.name'], options.name),
      );
      yield* manifestEntries(source, place, each.digest, tag, read);
    }
    return;
  }
  const list = files.has('manifest.json') ? await documentIn(source, 'manifest.json') : undefined;
  if (!Array.isArray(list)) return;
  for (const { Config, Layers, RepoTags } of list as SavedImage[]) {
    const image = await savedImage(source, Config, Layers);
    for (const name of RepoTags?.length ? RepoTags : [undefined]) {
      const { place, tag } = placed(name);
      for (const { digest, file } of image.blobs)
        yield { key: resource(place, 'blob', digest).key, type: 'application/octet-stream', digest, file };
      const { bytes } = image;
      const entry = { type: mediaTypes.dockerImage, digest: digestOf(bytes), file: fileOf(bytes) };
      for (const reference of [entry.digest, ...(tag === undefined ? [] : [tag])])
        yield { key: resource(place, 'manifest', reference).key, ...entry };
    }
  }
}

export interface LayoutDescriptor {
  digest?: string;
  annotations?: Record<string, string | undefined>;
}

/** An item of `manifest.json` of `docker save`. */
export interface SavedImage {
  Config: string;
  Layers: string[];
  RepoTags?: string[] | null;
}

/** A reference is a whole name, or only a tag of the image that the option names. */
export function fullName(reference: string | undefined, name: string | undefined): string | undefined {
  if (reference === undefined || /[/:]/.test(reference)) return reference;
  return name === undefined || /:[^/]*$/.test(name) ? name : `${name}:${reference}`;
}

function locate(mirror: ImageMirror, text: string | undefined, path: string) {
  if (text === undefined) throw malformed(path, 'it has an image without a name: give it with --name');
  const image = parseImageName(text);
  if (!image) throw malformed(path, `${JSON.stringify(text.slice(0, 200))} is not an image name`);
  const { registry, repository, reference } = image;
  const known = registry && upstreamNamed(registry);
  const { place } = mirror.names.locate(known === undefined ? repository : `${known}/${repository}`, undefined);
  if (!place) throw malformed(path, `no upstream here has the image ${text}; add its registry to "upstreams"`);
  return { place, tag: isDigest(reference) ? undefined : reference };
}

/**
 * A manifest, under its digest and its tag, and all that it needs and the layout has. What `read` has by its name and digest is not
 * read again, because many indexes may name it.
 */
async function* manifestEntries(
  source: PlainSource,
  place: UpstreamRepository,
  digest: Digest,
  tag: string | undefined,
  read: Set<string>,
): AsyncGenerator<PlainEntry> {
  const file = source.files.get(layoutBlob(digest));
  if (!file) throw malformed(source.path, `${digest} is missing`);
  const bytes = await readAll(await file.open(), maxDocument);
  // A manifest can name itself only under a digest that is not its own.
  if (digestOf(bytes, algorithmOf(digest)) !== digest) throw malformed(source.path, `${digest} has other content`);
  const document = parseDocument(bytes);
  const type = document && manifestTypeIn(document);
  if (!type) throw malformed(source.path, `${digest} is no manifest of a known type`);
  const entry = { type, digest, file };
  for (const reference of [digest, ...(tag === undefined ? [] : [tag])])
    yield { key: resource(place, 'manifest', reference).key, ...entry };
  read.add(placeIn(place, digest));
  const { manifests, blobs } = contentsOf(document);
  // A layout may have only some platforms of an image.
  for (const child of manifests)
    if (source.files.has(layoutBlob(child.digest)) && !read.has(placeIn(place, child.digest)))
      yield* manifestEntries(source, place, child.digest, undefined, read);
  for (const blob of blobs) {
    const content = source.files.get(layoutBlob(blob.digest));
    if (!content) throw malformed(source.path, `${blob.digest} is missing`);
    const { key } = resource(place, 'blob', blob.digest);
    yield { key, type: 'application/octet-stream', digest: blob.digest, file: content };
  }
}

function placeIn({ upstream, name }: UpstreamRepository, digest: Digest): string {
  return JSON.stringify([upstream.id, name, digest]);
}

/** The manifest of an image of `docker save`, which has none: its layers are not compressed. */
export async function savedImage(source: PlainSource, configName: string, layerNames: readonly string[]) {
  const blobOf = async (name: string) => {
    const file = typeof name === 'string' ? source.files.get(name) : undefined;
    if (!file) throw malformed(source.path, `${JSON.stringify(name)} is missing`);
    return { digest: await digestOfContent(await file.open()), file };
  };
  const config = await blobOf(configName);
  const layers = [];
  for (const name of layerNames ?? []) layers.push(await blobOf(name));
  const document = {
    schemaVersion: 2,
    mediaType: mediaTypes.dockerImage,
    config: {
      mediaType: 'application/vnd.docker.container.image.v1+json',
      size: config.file.size,
      digest: config.digest,
    },
    layers: layers.map(({ digest, file }) => ({ mediaType: layerType, size: file.size, digest })),
  };
  return { bytes: Buffer.from(JSON.stringify(document)), blobs: [config, ...layers] };
}

export async function documentIn({ path, files }: PlainSource, name: string): Promise<object> {
  const bytes = await readAll(await files.get(name)!.open(), maxDocument).catch((error: Error) => {
    throw malformed(path, `${name} cannot be read: ${error.message}`);
  });
  const document = parseDocument(bytes);
  if (!document) throw malformed(path, `${name} is not JSON`);
  return document;
}

export function fileOf(bytes: Buffer): PlainFile {
  return { size: bytes.length, open: () => Promise.resolve({ ...contentOf(bytes), size: bytes.length }) };
}

export function layoutBlob(digest: Digest): string {
  return `blobs/${algorithmOf(digest)}/${hexOf(digest)}`;
}

function malformed(path: string, reason: string): DomainError {
  return new DomainError('Invalid', `${path}: ${reason}`);
}
