import { randomInt } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import { forUpdate, placeholders, type Queryable, type Transaction } from '../database/database.ts';
import type { Digest } from '../digest.ts';

/** A row of `blobs`. See migration 010 for its `state` and `generation`. */
export interface BlobRow {
  digest: Digest;
  size: number;
  state: 'pending' | 'live' | 'deleting';
  generation: number;
}

export const rowColumns = 'digest, size, state, generation';

/** For a row whose bytes are to be put anew, or have been put aside. */
export function newGeneration(): number {
  return randomInt(1, 2 ** 48 - 1);
}

/** The rows of `digests`, in order. */
export function findBlobs(from: Queryable, digests: readonly Digest[]): Promise<BlobRow[]> {
  return from.select<BlobRow>(
    `SELECT ${rowColumns} FROM blobs WHERE digest IN (${placeholders(digests)}) ORDER BY digest`,
    digests,
  );
}

/** As `findBlobs`, locked until the transaction ends. */
export function lockBlobs(tx: Queryable, digests: readonly Digest[]): Promise<BlobRow[]> {
  return tx.select<BlobRow>(
    `SELECT ${rowColumns} FROM blobs WHERE digest IN (${placeholders(digests)})
     ORDER BY digest${forUpdate(tx)}`,
    digests,
  );
}

/**
 * Locks a live blob until the transaction ends and renews its time, so that the collector leaves it until the transaction
 * has written a reference to it. Resolves to whether there is such a blob.
 */
export async function keepLive(tx: Transaction, digest: Digest, now: number): Promise<boolean> {
  return (await tx.run("UPDATE blobs SET stored_at = ? WHERE digest = ? AND state = 'live'", [now, digest])) > 0;
}

/** Makes deletions that were given up one's own, unless others were quicker; resolves to those rows. */
export async function takeOver(
  tx: Transaction,
  rows: readonly BlobRow[],
  generation = newGeneration(),
): Promise<BlobRow[]> {
  const taken: BlobRow[] = [];
  for (const row of rows) {
    const sql = "UPDATE blobs SET generation = ? WHERE digest = ? AND generation = ? AND state = 'deleting'";
    if ((await tx.run(sql, [generation, row.digest, row.generation])) > 0) taken.push({ ...row, generation });
  }
  return taken;
}

/** How long a deletion may take, in milliseconds. */
export interface DeletionTimes {
  /** After this time no deletion of bytes begins any more. */
  beginWithin: number;
  /** Who sees a row `deleting` for so long takes it over: it was left by a process that was killed. */
  takeOverAfter: number;
  /** A clock that is never set. */
  watch: () => number;
}

/** The time between the two is what a driver has for a deletion that has begun. */
export const deletionTimes: DeletionTimes = {
  beginWithin: 5000,
  takeOverAfter: 40_000,
  watch: () => performance.now(),
};

const mostWatched = 10_000;

/** Tells which deletions were given up, by the watch of this process: clocks of several machines may differ. */
export class DeletionWatch {
  readonly #times: DeletionTimes;
  readonly #since = new LRUCache<string, number>({ max: mostWatched });

  constructor(times: DeletionTimes) {
    this.#times = times;
  }

  /** Whether this row was seen `deleting` long enough ago; to be asked of each one that is seen. */
  isGivenUp({ digest, generation }: BlobRow): boolean {
    const key = `${generation} ${digest}`;
    const now = this.#times.watch();
    const since = this.#since.get(key);
    if (since === undefined) this.#since.set(key, now);
    return now - (since ?? now) >= this.#times.takeOverAfter;
  }
}
