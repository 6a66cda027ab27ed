import { LRUCache } from 'lru-cache';
import { algorithmOf, digestOf, type Digest } from '../digest.ts';
import type { BlobStore } from './blob-store.ts';
import { contentOf, readAll, type Content } from './content.ts';

const room = 16 * 2 ** 20;
const largest = 256 * 1024;

/** Stored blobs, of which the small ones that were read last are held in memory: a digest's content never changes. */
export class SmallBlobs {
  readonly #blobs: BlobStore;
  readonly #recent = new LRUCache<Digest, Buffer>({ maxSize: room, sizeCalculation: (bytes) => bytes.length + 200 });

  constructor(blobs: BlobStore) {
    this.#blobs = blobs;
  }

  /** As `BlobStore.open`; whether the caller may read it was asked of the database before. */
  async open(digest: Digest, size: number): Promise<Content> {
    if (size > largest) return this.#blobs.open(digest, size);
    let bytes = this.#recent.get(digest);
    if (!bytes) {
      bytes = await readAll(await this.#blobs.open(digest, size), size);
      // Damage on the disk must not outlive its repair here.
      if (digestOf(bytes, algorithmOf(digest)) === digest) this.#recent.set(digest, bytes);
    }
    return contentOf(bytes);
  }
}
