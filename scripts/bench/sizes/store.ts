import { Tokens } from '../../../src/accounts/tokens.ts';
import { mediaTypes } from '../../../src/oci/format/manifest.ts';
import { packageKey } from '../../../src/nuget/hosted/packages.ts';
import type { Digest } from '../../../src/runtime/digest.ts';
import type { Bench, Place } from '../bench.ts';
import { pushPackage, upload } from '../content.ts';
import { anonymousServer } from '../parts/restore.ts';
import type { Peer } from '../processes.ts';
import { fillPackages, fillTags } from '../store/fill.ts';
import { makePackages } from '../store/packages.ts';
import { mixed, queries } from '../store/queries.ts';
import { fillPlace } from '../store/store.ts';
import type { MadeImage } from '../store/tags.ts';
import { BlobFolder, wholeImages, writeFiles, type WholeImage } from './content.ts';
import { mirroredImages, tagsOfRepository, versionsOfPackage, type Size } from './mix.ts';

/** An account may have 1,000, and the servers and the console need some. */
const mostTokens = 900;

/** What the clients of a size ask for; the most popular first. */
export interface SizeContent {
  packages: ReadPackage[];
  mirroredPackages: ReadPackage[];
  /** The tags of each repository, the oldest first. */
  repositories: MadeImage[][];
  mirroredRepositories: MadeImage[][];
  /** Paths. */
  searches: string[];
  /** One for each developer, or for almost each. */
  tokens: string[];
}

/** A package, with its versions, the oldest first. */
export interface ReadPackage {
  id: string;
  key: string;
  versions: string[];
}

/** Fills an empty place with the content of a size, and with tokens for the developers. */
export async function fillSize(
  bench: Bench,
  place: Place,
  size: Size,
): Promise<Omit<SizeContent, 'mirroredPackages' | 'mirroredRepositories'>> {
  const folder = new BlobFolder(place.data);
  const made = [...makePackages(size.packages, versionsOfPackage)];
  const names = Array.from({ length: size.repositories }, (_, index) => `team${index % 20}/app${index}`);
  const readPackages = made.slice(0, size.withFiles.packages);
  const readImages = size.withFiles.repositories * tagsOfRepository;
  const withFiles = new Set(readPackages);
  const images: MadeImage[] = [];
  const tokens: string[] = [];
  await fillPlace(bench, place, async ({ bulk, database, accountId }) => {
    await fillPackages(bulk, accountId, made, (each) => (withFiles.has(each) ? writeFiles(folder, each) : undefined));
    for (const image of wholeImages(names)) {
      if (images.length < readImages) writeImage(folder, image);
      images.push(withoutBytes(image));
    }
    await fillTags(bulk, accountId, images);
    const all = new Tokens(database, Date.now);
    for (let index = 0; index < Math.min(size.developers, mostTokens); index += 1) {
      const { value } = await all.create(accountId, { name: `developer ${index}`, scopes: ['read', 'write'] });
      tokens.push(value);
    }
  });
  return {
    packages: readPackages.map(({ id, versions }) => ({ id, key: packageKey(id), versions })),
    repositories: byRepository(images.slice(0, readImages)),
    searches: mixed(queries(made)),
    tokens,
  };
}

function writeImage(folder: BlobFolder, { bytes, blobs, manifest, parts }: WholeImage): void {
  folder.put(manifest.digest as Digest, bytes);
  for (const [index, blob] of blobs.entries()) folder.put(parts[index]!.digest as Digest, blob);
}

function withoutBytes({ bytes: _bytes, blobs: _blobs, ...image }: WholeImage): MadeImage {
  return image;
}

function byRepository(images: readonly MadeImage[]): MadeImage[][] {
  return Array.from({ length: images.length / tagsOfRepository }, (_, index) =>
    images.slice(index * tagsOfRepository, (index + 1) * tagsOfRepository),
  );
}

/** A server for the mirror to read, with packages and images that only it has. */
export async function startUpstream(
  bench: Bench,
  name: string,
  size: Size,
): Promise<{ upstream: Peer; content: Pick<SizeContent, 'mirroredPackages' | 'mirroredRepositories'> }> {
  const upstream = await anonymousServer(bench, name);
  const mirroredPackages = Array.from({ length: size.mirrored }, (_, index): ReadPackage => {
    const id = `Upstream.Library${index}`;
    return { id, key: packageKey(id), versions: ['1.0.0'] };
  });
  const left = [...mirroredPackages];
  const worker = async () => {
    for (let each = left.pop(); each; each = left.pop())
      await pushPackage(upstream, { id: each.id, version: each.versions[0]!, payloadBytes: 19_000 });
  };
  await Promise.all([0, 1, 2, 3].map(worker));
  const repositories = Array.from({ length: mirroredImages / tagsOfRepository }, (_, index) => `library/base${index}`);
  const images: MadeImage[] = [];
  for (const { bytes, blobs, ...image } of wholeImages(repositories)) {
    const { repository, tag, parts } = image;
    for (const [index, { digest }] of parts.entries())
      await upload(upstream, repository, digest as Digest, [blobs[index]!]);
    const put = await fetch(`${upstream.url}/v2/${repository}/manifests/${tag}`, {
      method: 'PUT',
      headers: { ...upstream.headers, 'content-type': mediaTypes.image },
      body: new Uint8Array(bytes),
    });
    if (put.status !== 201) throw new Error(`the upstream answered a manifest with ${put.status}`);
    images.push(image);
  }
  return { upstream, content: { mirroredPackages, mirroredRepositories: byRepository(images) } };
}
