import { randomBytes, randomInt } from 'node:crypto';
import { forUpdate, placeholders, type Queryable, type Transaction } from '../../database/database.ts';
import type { Processes } from '../../database/processes.ts';
import type { Digest } from '../../runtime/digest.ts';
import { pagesOf } from '../../runtime/pages.ts';
import { Recent } from '../../runtime/recent.ts';

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

/** All live blobs by digest, after the digest `first`, `size` at a time. */
export function liveBlobs(from: Queryable, size: number, first = ''): AsyncGenerator<readonly BlobRow[]> {
  const sql = `SELECT ${rowColumns} FROM blobs WHERE digest > ? AND state = 'live' ORDER BY digest LIMIT ?`;
  return pagesOf(
    first,
    size,
    (after) => from.select<BlobRow>(sql, [after, size]),
    ({ digest }) => digest as string,
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
  /**
   * A process that sees a row `deleting` for this long takes it over: the first process was killed. After half of this time since
   * the mark, no deletion is repeated.
   */
  takeOverAfter: number;
  /** A monotonic clock. */
  watch: () => number;
  /** The clock of the system: `watch` does not go on while the machine stands still. */
  now: () => number;
  /**
   * The processes that delete. What one of them has left unfinished is taken over as soon as it has ended, or, if it may
   * only be silent, when it can no longer be at work on it. Left out if a deletion may be in progress after its process has
   * ended, as a request to S3 is.
   */
  processes?: (() => Processes) | undefined;
}

/** A driver has the time between the two limits to finish a deletion that it has started. */
export const deletionTimes: DeletionTimes = {
  beginWithin: 5000,
  takeOverAfter: 40_000,
  watch: () => performance.now(),
  now: Date.now,
};

const maxWatched = 10_000;

/** Finds deletions that a killed process left unfinished. Uses the clock of this process, because clocks of machines differ. */
export class DeletionWatch {
  readonly #times: DeletionTimes;
  readonly #since = new Recent<string, number>(maxWatched);

  constructor(times: DeletionTimes) {
    this.#times = times;
  }

  /**
   * Those of the `deleting` rows in `rows` whose process has ended, or which were first seen long enough ago. Call it for
   * all rows that are read.
   */
  async givenUp(from: Queryable, rows: readonly BlobRow[]): Promise<BlobRow[]> {
    const deleting = rows.filter(({ state }) => state === 'deleting');
    if (deleting.length === 0) return deleting;
    const { takeOverAfter } = this.#times;
    const seenFor = new Map(deleting.map((row) => [row.digest, this.#seenFor(row)]));
    const left = await this.#left(from, deleting, seenFor);
    return deleting.filter(({ digest }) => seenFor.get(digest)! >= takeOverAfter || left.has(digest));
  }

  /** The blobs whose deletion was left unfinished by a process that has ended. */
  async #left(
    from: Queryable,
    rows: readonly BlobRow[],
    seenFor: ReadonlyMap<Digest, number>,
  ): Promise<ReadonlySet<Digest>> {
    const { processes, beginWithin, takeOverAfter } = this.#times;
    if (!processes) return new Set();
    const found = await from.select<{ digest: Digest; process: string }>(
      `SELECT digest, deleted_by AS process FROM blobs WHERE state = 'deleting' AND deleted_by IS NOT NULL
       AND deleted_generation = generation AND digest IN (${placeholders(rows)})`,
      rows.map(({ digest }) => digest),
    );
    const known = processes();
    const gone = await known.gone([...new Set(found.map(({ process }) => process))], takeOverAfter);
    // A process that is only silent, for example during a failover, may have made its mark a moment ago. As long again as it
    // may start deletions, it has time to finish the last one.
    const atLeast = known.isExact ? 0 : 2 * beginWithin;
    return new Set(
      found
        .filter(({ digest, process }) => gone.has(process) && seenFor.get(digest)! >= atLeast)
        .map(({ digest }) => digest),
    );
  }

  /** Milliseconds since this process has first seen the row `deleting`. */
  #seenFor({ digest, generation }: BlobRow): number {
    const key = `${generation} ${digest}`;
    const now = this.#times.watch();
    const since = this.#since.get(key);
    if (since === undefined) this.#since.set(key, now);
    return now - (since ?? now);
  }
}
