import { LRUCache } from 'lru-cache';

const room = 16 * 2 ** 20;

/**
 * Finished documents of packages, as bytes, each under all that it is made of: the package's revision, the form and the
 * addresses in it. Nothing has to be told when a package changes, in no process: nobody asks for the old ones any more.
 */
export class Documents {
  readonly #held = new LRUCache<string, Buffer>({ maxSize: room, sizeCalculation: (bytes) => bytes.length + 200 });

  /** What is held under `parts`. */
  get(parts: readonly string[]): Buffer | undefined {
    return this.#held.get(parts.join(' '));
  }

  /** Keeps a document. */
  set(parts: readonly string[], bytes: Buffer): void {
    this.#held.set(parts.join(' '), bytes);
  }
}
