import { LRUCache } from 'lru-cache';
import { algorithmOf, digestOf, type Digest } from '../../runtime/digest.ts';
import { contentDamaged, contentOf, keptOverhead, ownBytes, readAll, type Content } from '../files/content.ts';
import type { Driver } from './driver.ts';

/** Bytes of all of them in memory. */
const maxTotalBytes = 32 * 2 ** 20;
/** The most bytes of a small blob. */
export const maxSmallBytes = 256 * 1024;
/** Milliseconds after which the storage is asked whether the bytes of a blob in memory are still there, unchanged. */
const checkEvery = 5000;

interface Kept {
  bytes: Buffer;
  /** The version of the stored bytes. */
  version: string | undefined;
  /** By the monotonic clock. */
  checkedAt: number;
}

/**
 * Caches the most recently read small blobs in memory, whose digests are verified. Bytes that are later missing or replaced
 * in the storage are forgotten, so that memory does not hide a damage until the next start.
 */
export class SmallBlobs {
  readonly #driver: Driver;
  readonly #watch: () => number;
  readonly #recent: LRUCache<Digest, Kept>;

  /** `watch` is a monotonic clock in milliseconds. */
  constructor(driver: Driver, watch: () => number, maxSize: number = maxTotalBytes) {
    this.#driver = driver;
    this.#watch = watch;
    this.#recent = new LRUCache({ maxSize, sizeCalculation: ({ bytes }) => bytes.length + keptOverhead });
  }

  /**
   * The content of a blob of known `size`, from memory if it is small. Rejects as `Driver.open`, and for a wrong digest.
   * With `checked`, the storage is asked each time whether the bytes are still there.
   */
  async open(digest: Digest, size: number, checked: boolean): Promise<Content> {
    if (size > maxSmallBytes) return this.#driver.open(digest, size);
    const kept = this.#recent.get(digest);
    const isRecent = kept && !checked && (this.#driver.isRemote || this.#watch() - kept.checkedAt < checkEvery);
    if (kept && (isRecent || (await this.#isUnchanged(digest, kept)))) return contentOf(kept.bytes);
    return contentOf(await this.read(digest, size, checked));
  }

  async #isUnchanged(digest: Digest, kept: Kept): Promise<boolean> {
    // Set first, so that concurrent requests do not ask too.
    kept.checkedAt = this.#watch();
    const stored = await this.#driver.stat(digest);
    if (stored?.size === kept.bytes.length && stored.version === kept.version) return true;
    this.#recent.delete(digest);
    return false;
  }

  /** The bytes of a small blob from the storage. Rejects as `open`. */
  async read(digest: Digest, size: number, checked = true): Promise<Buffer> {
    // Before the read: if other bytes replace these meanwhile, the next check finds another version.
    const version = this.#driver.isRemote && !checked ? undefined : (await this.#driver.stat(digest))?.version;
    const bytes = ownBytes(await readAll(await this.#driver.open(digest, size), size));
    if (digestOf(bytes, algorithmOf(digest)) !== digest) throw contentDamaged(digest);
    this.#recent.set(digest, { bytes, version, checkedAt: this.#watch() });
    return bytes;
  }
}
