import { LRUCache } from 'lru-cache';
import { algorithmOf, digestOf, type Digest } from '../digest.ts';
import { contentOf, readAll, type Content } from './content.ts';

const maxTotalBytes = 32 * 2 ** 20;
const maxBlobBytes = 256 * 1024;

/** Caches the most recently read small blobs in memory. Safe, because the content of a digest never changes. */
export class SmallBlobs {
  readonly #recent = new LRUCache<Digest, Buffer>({
    maxSize: maxTotalBytes,
    sizeCalculation: (bytes) => bytes.length + 200,
  });

  /** The content of a blob of known `size`: from memory if it is small, else from `open`. */
  async open(digest: Digest, size: number, open: () => Promise<Content>): Promise<Content> {
    if (size > maxBlobBytes) return open();
    let bytes = this.#recent.get(digest);
    if (!bytes) {
      bytes = await readAll(await open(), size);
      // Do not cache damaged bytes: they would stay here after the repair on the disk.
      if (digestOf(bytes, algorithmOf(digest)) === digest) this.#recent.set(digest, bytes);
    }
    return contentOf(bytes);
  }
}
