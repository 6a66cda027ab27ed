import type { PlainFile, PlainSource } from '../../prefetch/plain.ts';
import { parseDocument } from '../../mirror/document.ts';
import { algorithmOf, digestOf, hexOf, isDigest, type Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import { readAll } from '../../storage/files/content.ts';
import { fillFrom } from '../../import/fill.ts';
import { hasMoreValues } from '../../runtime/json-values.ts';
import { manifestTypeIn, maxValues } from '../format/manifest.ts';
import type { PastManifest } from '../hosted/manifests.ts';
import { isRepositoryName, isTag } from '../format/reference.ts';
import { parseImageName } from '../prefetch/image-name.ts';
import {
  layoutBlob,
  documentIn,
  fileOf,
  fullName,
  savedImage,
  type LayoutDescriptor,
  type SavedImage,
} from '../prefetch/plain.ts';
import type { ImageOrigin, OriginManifest, OriginTag } from './image-origin.ts';
import { otherContent } from './registry-origin.ts';

/** Most bytes of a link in the files of a registry. */
const linkLimit = 1024;
/** Most earlier manifests of a tag; the latest are kept. */
const maxPast = 200;

/** A tag in files: its digest is known, or in a link. */
interface FileTag {
  digest?: Digest;
  link?: PlainFile;
  /** When it was last pointed to each digest that it ever had, milliseconds since 1970 UTC. */
  times?: Map<Digest, number>;
}

interface FileRepository {
  tags: Map<string, FileTag>;
  /** The manifests that the repository has; all that there are if undefined. */
  manifests?: Set<Digest>;
}

/** The images in files of another program: of docker-registry, an OCI image layout, or an archive of `docker save`. */
class FilesOrigin implements ImageOrigin {
  readonly #repositories: ReadonlyMap<string, FileRepository>;
  readonly #content: (digest: Digest) => PlainFile | undefined;
  readonly #manifestLimit: number;
  /** The referrers of the repository that was asked for last, by their subject. */
  #referrers: { name: string; found: Promise<Map<string, Digest[]>> } | undefined;

  constructor(
    repositories: ReadonlyMap<string, FileRepository>,
    content: (digest: Digest) => PlainFile | undefined,
    manifestLimit: number,
  ) {
    this.#repositories = repositories;
    this.#content = content;
    this.#manifestLimit = manifestLimit;
  }

  async *repositories(): AsyncGenerator<string> {
    for (const name of this.#repositories.keys()) {
      await pause();
      yield name;
    }
  }

  async *tags(name: string): AsyncGenerator<OriginTag> {
    for (const [tag, { link }] of this.#repositories.get(name)?.tags ?? []) {
      await pause();
      yield { tag, pushedAt: link?.changedAt };
    }
  }

  async digestOf(name: string, tag: string): Promise<Digest | undefined> {
    const { digest, link } = this.#repositories.get(name)?.tags.get(tag) ?? {};
    if (digest !== undefined || !link) return digest;
    const text = (await readAll(await link.open(), linkLimit)).toString('latin1').trim();
    if (isDigest(text)) return text;
    throw new DomainError('Invalid', 'The link of this tag has no digest.');
  }

  async manifest(name: string, reference: string): Promise<OriginManifest | undefined> {
    const digest = isDigest(reference) ? reference : await this.digestOf(name, reference);
    if (digest === undefined || !(this.#repositories.get(name)?.manifests?.has(digest) ?? true)) return undefined;
    const file = this.#content(digest);
    if (!file) return undefined;
    if (file.size > this.#manifestLimit) throw new DomainError('TooLarge', `The manifest ${digest} is too large.`);
    const bytes = await readAll(await file.open(), this.#manifestLimit);
    if (digestOf(bytes, algorithmOf(digest)) !== digest) throw otherContent(digest);
    return { digest, bytes, mediaType: undefined };
  }

  async referrers(name: string, digest: Digest): Promise<readonly Digest[]> {
    if (this.#referrers?.name !== name) this.#referrers = { name, found: this.#referrersIn(name) };
    return (await this.#referrers.found).get(digest) ?? [];
  }

  async past(name: string, tag: string): Promise<readonly PastManifest[]> {
    const { link, times = new Map<Digest, number>() } = this.#repositories.get(name)?.tags.get(tag) ?? {};
    const current = await this.digestOf(name, tag);
    const earlier = [...times].filter(([digest, at]) => digest !== current && at <= (link?.changedAt ?? Infinity));
    const found: PastManifest[] = [];
    for (const [digest, seenAt] of earlier.toSorted(([, one], [, other]) => one - other).slice(-maxPast)) {
      await pause();
      // Of a manifest that was deleted, or is damaged, nothing can be told.
      const bytes = (await this.manifest(name, digest).catch(() => undefined))?.bytes;
      if (!bytes || hasMoreValues(bytes, maxValues)) continue;
      const document = parseDocument(bytes);
      const mediaType = document && manifestTypeIn(document);
      if (mediaType !== undefined) found.push({ digest, seenAt, content: { mediaType, size: bytes.length } });
    }
    return found;
  }

  async fill(_name: string, digest: Digest, staged: Parameters<ImageOrigin['fill']>[2], limit: number): Promise<void> {
    const file = this.#content(digest);
    if (!file) throw new DomainError('NotFound', `The source does not have ${digest}, which the image needs.`);
    await fillFrom(staged, await file.open(), limit);
  }

  async #referrersIn(name: string): Promise<Map<string, Digest[]>> {
    const found = new Map<string, Digest[]>();
    for (const digest of this.#repositories.get(name)?.manifests ?? []) {
      await pause();
      const manifest = await this.manifest(name, digest).catch(() => undefined);
      if (!manifest || hasMoreValues(manifest.bytes, maxValues)) continue;
      const { subject } = (parseDocument(manifest.bytes) ?? {}) as { subject?: { digest?: unknown } | null };
      if (typeof subject?.digest !== 'string') continue;
      const same = found.get(subject.digest);
      if (same) same.push(digest);
      else found.set(subject.digest, [digest]);
    }
    return found;
  }
}

const tagLink = /^(.*?)repositories\/(.+)\/_manifests\/tags\/([^/]+)\/current\/link$/;
const pastLink = /repositories\/(.+)\/_manifests\/tags\/([^/]+)\/index\/(sha256|sha512)\/([0-9a-f]+)\/link$/;
const revisionLink = /repositories\/(.+)\/_manifests\/revisions\/(sha256|sha512)\/([0-9a-f]+)\/link$/;

/** The images in the folder of a docker-registry (distribution, "filesystem layout"); undefined if it is none. */
export async function registryFolder({ files }: PlainSource, manifestLimit: number): Promise<ImageOrigin | undefined> {
  const repositories = new Map<string, FileRepository>();
  const named = (name: string) => {
    const found = repositories.get(name) ?? { tags: new Map(), manifests: new Set() };
    repositories.set(name, found);
    return found;
  };
  const tagged = (name: string, tag: string) => {
    const { tags } = named(name);
    const found = tags.get(tag) ?? { times: new Map<Digest, number>() };
    tags.set(tag, found);
    return found;
  };
  let root: string | undefined;
  for (const [path, file] of files) {
    await pause();
    const [, start, name = '', tag = ''] = tagLink.exec(path) ?? [];
    if (isRepositoryName(name) && isTag(tag)) {
      root ??= start;
      tagged(name, tag).link = file;
      continue;
    }
    const [, of = '', past = '', kind, hash] = pastLink.exec(path) ?? [];
    const before = `${kind}:${hash}`;
    if (isRepositoryName(of) && isTag(past) && isDigest(before) && file.changedAt !== undefined) {
      tagged(of, past).times!.set(before, file.changedAt);
      continue;
    }
    const [, owner = '', algorithm, hex] = revisionLink.exec(path) ?? [];
    const digest = `${algorithm}:${hex}`;
    if (isRepositoryName(owner) && isDigest(digest)) named(owner).manifests!.add(digest);
  }
  if (root === undefined) return undefined;
  // A tag that was deleted may have left its past.
  for (const { tags } of repositories.values()) for (const [tag, { link }] of tags) if (!link) tags.delete(tag);
  const content = (digest: Digest) =>
    files.get(`${root}blobs/${algorithmOf(digest)}/${hexOf(digest).slice(0, 2)}/${hexOf(digest)}/data`);
  return new FilesOrigin(repositories, content, manifestLimit);
}

/** The images in an OCI image layout, or in an archive of `docker save`; undefined if it is none. Throws `Invalid`. */
export async function layoutOrArchive(
  source: PlainSource,
  name: string | undefined,
  manifestLimit: number,
): Promise<ImageOrigin | undefined> {
  const { files, path } = source;
  const repositories = new Map<string, FileRepository>();
  const add = (text: string | undefined, digest: Digest) => {
    const image = text === undefined ? undefined : parseImageName(text);
    if (!image) throw new DomainError('Invalid', `${path}: it has an image without a name: give it with --name`);
    if (isDigest(image.reference))
      throw new DomainError('Invalid', `${path}: it has an image without a tag: give it with --name`);
    const found = repositories.get(image.repository) ?? { tags: new Map<string, FileTag>() };
    repositories.set(image.repository, found);
    const before = found.tags.get(image.reference)?.digest;
    if (before !== undefined && before !== digest)
      throw new DomainError(
        'Invalid',
        `${path}: two of its images would be ${image.repository}:${image.reference} here. If they have tags of their own, give --name without a tag; else divide them`,
      );
    found.tags.set(image.reference, { digest });
  };
  if (files.has('oci-layout') && files.has('index.json')) {
    const { manifests = [] } = (await documentIn(source, 'index.json')) as { manifests?: LayoutDescriptor[] };
    for (const { digest, annotations = {} } of manifests) {
      await pause();
      if (typeof digest !== 'string' || !isDigest(digest))
        throw new DomainError('Invalid', `${path}: index.json has no digest`);
      const own =
        annotations['io.containerd.image.name'] ?? fullName(annotations['org.opencontainers.image.ref.name'], name);
      add(own ?? name, digest);
    }
    return new FilesOrigin(repositories, (digest) => files.get(layoutBlob(digest)), manifestLimit);
  }
  const list = files.has('manifest.json') ? await documentIn(source, 'manifest.json') : undefined;
  if (!Array.isArray(list)) return undefined;
  const content = new Map<Digest, PlainFile>();
  for (const { Config, Layers, RepoTags } of list as SavedImage[]) {
    const { blobs, bytes } = await savedImage(source, Config, Layers);
    for (const { digest, file } of blobs) content.set(digest, file);
    const digest = digestOf(bytes);
    content.set(digest, fileOf(bytes));
    for (const each of RepoTags?.length ? RepoTags : [undefined]) add(each ?? name, digest);
  }
  return new FilesOrigin(repositories, (digest) => content.get(digest), manifestLimit);
}
