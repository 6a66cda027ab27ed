import { createHash, randomBytes } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { execute, requiredCommand } from '../clients/clients.ts';

// Small images in an OCI layout, made with umoci, without network access.

export interface Descriptor {
  mediaType: string;
  digest: string;
  size: number;
  platform?: { os: string; architecture: string };
  annotations?: Record<string, string>;
}

export interface Image {
  /** `oci:folder:tag`, the name for skopeo, podman and buildah */
  reference: string;
  digest: string;
  manifest: Buffer;
  /** Path inside the image → content. */
  files: Map<string, Buffer>;
}

export interface Layout {
  folder: string;
  image(tag: string, options?: ImageOptions): Promise<Image>;
  /** Adds a tag with a multi-platform index of images of this layout. */
  index(tag: string, images: Image[]): Promise<Image>;
}

interface ImageOptions {
  layers?: number;
  /** Size of each layer. Its content is random, so that gzip cannot compress it. */
  bytes?: number;
  architecture?: string;
}

const refName = 'org.opencontainers.image.ref.name';

export async function createLayout(folder: string): Promise<Layout> {
  await mkdir(folder, { recursive: true });
  const layout = join(folder, 'layout');
  await umoci('init', '--layout', layout);
  return {
    folder: layout,
    image: (tag, options = {}) => createImage(layout, tag, options),
    index: (tag, images) => createIndex(layout, tag, images),
  };
}

export function sha256(content: Buffer | string): string {
  return `sha256:${createHash('sha256').update(content).digest('hex')}`;
}

async function createImage(layout: string, tag: string, options: ImageOptions): Promise<Image> {
  const { layers = 3, bytes = 200_000, architecture = 'amd64' } = options;
  const at = `${layout}:${tag}`;
  const files = new Map<string, Buffer>();
  await umoci('new', '--image', at);
  for (let layer = 1; layer <= layers; layer++) {
    const content = randomBytes(bytes);
    const source = join(layout, '..', `${tag}-${layer}`);
    await writeFile(source, content);
    await umoci('insert', '--image', at, source, `/data/${layer}`);
    files.set(`/data/${layer}`, content);
  }
  await umoci('config', '--image', at, '--architecture', architecture, '--os', 'linux', '--config.cmd', '/data/1');
  await umoci('gc', '--layout', layout);
  const { digest } = await descriptorOf(layout, tag);
  return { reference: `oci:${at}`, digest, manifest: await readBlob(layout, digest), files };
}

async function createIndex(layout: string, tag: string, images: Image[]): Promise<Image> {
  const manifests: Descriptor[] = [];
  for (const { digest, manifest } of images) {
    const { mediaType, config } = JSON.parse(manifest.toString()) as { mediaType?: string; config: Descriptor };
    const { os, architecture } = JSON.parse((await readBlob(layout, config.digest)).toString()) as {
      os: string;
      architecture: string;
    };
    const type = mediaType ?? 'application/vnd.oci.image.manifest.v1+json';
    manifests.push({ mediaType: type, digest, size: manifest.length, platform: { os, architecture } });
  }
  const mediaType = 'application/vnd.oci.image.index.v1+json';
  const body = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType, manifests }));
  const digest = sha256(body);
  await writeFile(join(layout, 'blobs', ...digest.split(':')), body);
  const root = await readRoot(layout);
  root.manifests.push({ mediaType, digest, size: body.length, annotations: { [refName]: tag } });
  await writeFile(join(layout, 'index.json'), JSON.stringify(root));
  return { reference: `oci:${layout}:${tag}`, digest, manifest: body, files: new Map() };
}

async function descriptorOf(layout: string, tag: string): Promise<Descriptor> {
  const { manifests } = await readRoot(layout);
  const found = manifests.find((each) => each.annotations?.[refName] === tag);
  if (found === undefined) throw new Error(`${layout} has no ${tag}`);
  return found;
}

async function readRoot(layout: string): Promise<{ manifests: Descriptor[] }> {
  return JSON.parse(await readFile(join(layout, 'index.json'), 'utf8')) as { manifests: Descriptor[] };
}

function readBlob(layout: string, digest: string): Promise<Buffer> {
  return readFile(join(layout, 'blobs', ...digest.split(':')));
}

async function umoci(...args: string[]): Promise<void> {
  const { code, stderr } = await execute(requiredCommand('umoci'), args);
  if (code !== 0) throw new Error(`umoci ${args.join(' ')}: ${stderr}`);
}
