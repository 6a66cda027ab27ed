import { LRUCache } from 'lru-cache';
import { algorithmOf, digestOf, type Digest } from '../digest.ts';
import { contentOf, readAll, type Content } from './content.ts';

const room = 32 * 2 ** 20;
const largest = 256 * 1024;

/** The small blobs that were read last, in memory: a digest's content never changes. */
export class SmallBlobs {
  readonly #recent = new LRUCache<Digest, Buffer>({ maxSize: room, sizeCalculation: (bytes) => bytes.length + 200 });

  /** The content of a blob of known `size`: from memory where it is small, else as `open` opens it. */
  async open(digest: Digest, size: number, open: () => Promise<Content>): Promise<Content> {
    if (size > largest) return open();
    let bytes = this.#recent.get(digest);
    if (!bytes) {
      bytes = await readAll(await open(), size);
      // Damage on the disk must not outlive its repair here.
      if (digestOf(bytes, algorithmOf(digest)) === digest) this.#recent.set(digest, bytes);
    }
    return contentOf(bytes);
  }
}
