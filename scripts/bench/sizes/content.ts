import { createCipheriv } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { digestOf, hexOf, type Digest } from '../../../src/runtime/digest.ts';
import { mediaTypes } from '../../../src/oci/format/manifest.ts';
import { makeNuspec } from '../../../test/support/builders/nupkg.ts';
import { writeZip } from '../../../test/support/builders/zip.ts';
import { mebibyte } from '../processes.ts';
import type { MadeFiles, MadePackage } from '../store/packages.ts';
import type { MadeBlob, MadeImage } from '../store/tags.ts';
import { numbers } from '../store/words.ts';
import { tagsOfRepository } from './mix.ts';

/** Sizes of the layers that ten images have in common, and of the other ones: 10 MiB, and 13 requests for a pull. */
const [common, own] = [
  [4 * mebibyte, 3 * mebibyte, 1.5 * mebibyte, mebibyte / 2],
  [mebibyte / 2, mebibyte / 4, mebibyte / 8, 65_536, 16_384, 4096],
];
/** Different sets of common layers. */
const bases = 20;

/** An image with the bytes of its manifest and of its config and layers, in the order of `parts`. */
export interface WholeImage extends MadeImage {
  bytes: Buffer;
  blobs: Buffer[];
}

/** The same bytes in each run, which do not compress. */
const noise = createCipheriv('aes-128-ctr', Buffer.alloc(16, 1), Buffer.alloc(16)).update(Buffer.alloc(8 * mebibyte));

function noiseOf(seed: string, size: number): Buffer {
  const head = Buffer.from(digestOf(seed)).subarray(0, Math.min(size, 64));
  const start = (head[10]! * 1000 + head[20]!) % (4 * mebibyte);
  return Buffer.concat([head, noise.subarray(start, start + size - head.length)]);
}

/** Images with ten layers, ten tags of each of the `repositories`. */
export function* wholeImages(repositories: readonly string[]): Generator<WholeImage> {
  for (const [index, repository] of repositories.entries()) {
    const shared = common.map((size, layer) => describe(noiseOf(`base ${index % bases} ${layer}`, size), 'layer'));
    for (let number = 0; number < tagsOfRepository; number += 1) {
      const tag = `1.${number}`;
      const config = Buffer.from(
        JSON.stringify({ architecture: 'amd64', os: 'linux', config: { Labels: { of: `${repository}:${tag}` } } }),
      );
      const different = own.map((size, layer) => describe(noiseOf(`${repository} ${tag} ${layer}`, size), 'layer'));
      const described = [describe(config, 'config'), ...shared, ...different];
      const [first, ...layers] = described.map(({ mediaType, digest, size }) => ({ mediaType, digest, size }));
      const bytes = Buffer.from(
        JSON.stringify({ schemaVersion: 2, mediaType: mediaTypes.image, config: first, layers }),
      );
      const parts: MadeBlob[] = described.map(({ digest, size }) => ({ digest, size }));
      const manifest = { digest: digestOf(bytes), size: bytes.length };
      yield { repository, tag, manifest, parts, bytes, blobs: described.map(({ blob }) => blob) };
    }
  }
}

function describe(blob: Buffer, part: 'config' | 'layer') {
  const mediaType = `application/vnd.oci.image.${part === 'config' ? 'config.v1+json' : 'layer.v1.tar+gzip'}`;
  return { mediaType, digest: digestOf(blob), size: blob.length, blob };
}

/** Writes blobs into the data folder of a server that does not run, as it stores them. Synchronous, because that is faster for small files. */
export class BlobFolder {
  readonly #folder: string;
  readonly #written = new Set<string>();

  constructor(data: string) {
    this.#folder = join(data, 'blobs', 'sha256');
    for (let first = 0; first < 256; first += 1)
      mkdirSync(join(this.#folder, first.toString(16).padStart(2, '0')), { recursive: true, mode: 0o700 });
  }

  put(digest: Digest, bytes: Buffer): void {
    if (this.#written.has(digest)) return;
    this.#written.add(digest);
    const hex = hexOf(digest);
    writeFileSync(join(this.#folder, hex.slice(0, 2), hex), bytes, { mode: 0o600 });
  }
}

const random = numbers(11);

/** Writes the files of all versions of a package. Few of them are large: from 2 kB to 200 kB, 19 kB on average. */
export function writeFiles(folder: BlobFolder, { id, nuspec, versions }: MadePackage): MadeFiles[] {
  return versions.map((version) => {
    const text = Buffer.from(makeNuspec({ id, version, ...nuspec }));
    const library = noiseOf(`${id} ${version}`, Math.floor(2000 * 100 ** (random() ** 3)));
    const entries = { [`${id}.nuspec`]: text, [`lib/net8.0/${id}.dll`]: library };
    const nupkg = writeZip(Object.entries(entries).map(([name, data]) => ({ name, data, method: 0 })));
    const [digest, ofNuspec] = [digestOf(nupkg), digestOf(text)];
    folder.put(digest, nupkg);
    folder.put(ofNuspec, text);
    const sha512 = Buffer.from(hexOf(digestOf(nupkg, 'sha512')), 'hex').toString('base64');
    return { nupkg: digest, nuspec: ofNuspec, sha512, size: nupkg.length, nuspecSize: text.length };
  });
}
