import { randomBytes, randomInt } from 'node:crypto';
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

/** A generation for a row whose bytes will be put again, or were quarantined. */
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

/** Up to `limit` live blobs, other ones each time. */
export function sampleBlobs(from: Queryable, limit: number): Promise<BlobRow[]> {
  const start = `sha256:${randomBytes(2).toString('hex')}`;
  return from.select<BlobRow>(`${liveFrom('>= ?')} UNION ALL ${liveFrom('< ?')} LIMIT ?`, [
    start,
    limit,
    start,
    limit,
    limit,
  ]);
}

function liveFrom(range: string): string {
  return `SELECT * FROM (SELECT ${rowColumns} FROM blobs WHERE digest ${range} AND state = 'live' ORDER BY digest LIMIT ?) AS s`;
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
 * Locks a live blob until the transaction ends and renews its time, so that the collector keeps it until the transaction
 * has written a reference to it. Resolves to whether the blob exists.
 */
export async function keepLive(tx: Transaction, digest: Digest, now: number): Promise<boolean> {
  return (await tx.run("UPDATE blobs SET stored_at = ? WHERE digest = ? AND state = 'live'", [now, digest])) > 0;
}

/** Takes over unfinished deletions; resolves to the rows that no other process has taken over first. */
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

/** Time limits of a deletion, in milliseconds. */
export interface DeletionTimes {
  /** After this time since the mark, the process starts no more deletions of bytes. */
  beginWithin: number;
  /** A process that sees a row `deleting` for this long takes it over: the first process was killed. */
  takeOverAfter: number;
  /** A monotonic clock. */
  watch: () => number;
}

/** A driver has the time between the two limits to finish a deletion that it has started. */
export const deletionTimes: DeletionTimes = {
  beginWithin: 5000,
  takeOverAfter: 40_000,
  watch: () => performance.now(),
};

const mostWatched = 10_000;

/** Finds deletions that a killed process left unfinished. Uses the clock of this process, because clocks of machines differ. */
export class DeletionWatch {
  readonly #times: DeletionTimes;
  readonly #since = new LRUCache<string, number>({ max: mostWatched });

  constructor(times: DeletionTimes) {
    this.#times = times;
  }

  /** Whether this row was first seen `deleting` long enough ago. Call it for each `deleting` row that is read. */
  isGivenUp({ digest, generation }: BlobRow): boolean {
    const key = `${generation} ${digest}`;
    const now = this.#times.watch();
    const since = this.#since.get(key);
    if (since === undefined) this.#since.set(key, now);
    return now - (since ?? now) >= this.#times.takeOverAfter;
  }
}
