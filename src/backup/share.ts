import type { NamedBlob } from './rows.ts';

/** Counted for each blob besides its bytes, so that many small ones cost time, too. */
export const blobCost = 64 * 1024;
/** Part of an earlier backup that each run checks: all of it in this many runs. */
const runs = 20;
/** A smaller backup is checked as a whole. */
const minBytes = 256 * 2 ** 20;

/** Bytes of an earlier backup that a run compares with their digests. */
export function shareOf({ count, bytes }: { count: number; bytes: number }): number {
  return Math.max(minBytes, (bytes + count * blobCost) / runs);
}

/**
 * The blobs of an earlier backup that a run compares with their digests: `bytes` of them after the digest `from`, in the order
 * of digests. So each run takes those that were not checked for the longest time.
 */
export class Share {
  readonly #from: string;
  #bytes: number;
  #last = '';

  constructor(from: string, bytes: number) {
    this.#from = from;
    this.#bytes = bytes;
  }

  /** Call it for all blobs in the order of their digests: whether this one is to be checked. */
  takes({ digest, size }: NamedBlob): boolean {
    if (digest <= this.#from || this.#bytes <= 0) return false;
    this.#bytes -= size + blobCost;
    this.#last = digest;
    return true;
  }

  /** Where the next run goes on; empty for the beginning. */
  get next(): string {
    return this.#bytes > 0 ? '' : this.#last;
  }
}
