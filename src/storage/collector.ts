import { placeholders, type Database, type Transaction } from '../database/database.ts';
import type { Digest } from '../digest.ts';
import type { Driver } from './driver.ts';
import { Pace } from './pace.ts';
import { pageEnd, type References } from './references.ts';
import { removeBlobs, type Removed } from './removal.ts';
import {
  deletionTimes,
  DeletionWatch,
  lockBlobs,
  rowColumns,
  takeOver,
  type BlobRow,
  type DeletionTimes,
} from './states.ts';

export interface CollectOptions {
  /** Only what came before this time goes; milliseconds since 1970 UTC. */
  before: number;
  /** The same for bytes that are still on their way in; as `before`, unless it is given. */
  pendingBefore?: number | undefined;
  /** Counts, and removes nothing. */
  dryRun?: boolean | undefined;
  signal?: AbortSignal | undefined;
}

export interface Collected {
  /** Blobs that nothing referred to, and their size. */
  blobs: number;
  bytes: number;
}

/** Rows looked at in one statement, and removed together. */
const page = 500;
const batch = 50;
/** Condition on a row of `blobs`, for `Limits`. */
const isOld = "stored_at < CASE WHEN state = 'pending' THEN ? ELSE ? END";
type Limits = readonly [pendingBefore: number, before: number];
/** Deletions that may fail before a pass ends. */
const mostFailures = 100;

/**
 * Removes bytes that nothing refers to, while pushes go on. A row is marked `deleting` in a transaction that holds its
 * lock and then finds no reference; every reference is written under that lock, and only while the row is not
 * `deleting`. Then the bytes go, and then the row. Bytes without a row are left alone: they
 * come from outside, such as from a backup, or from a process that was killed in a put that lasted longer than the grace.
 */
export class Collector {
  readonly #database: Database;
  readonly #driver: Driver;
  readonly #references: References;
  readonly #times: DeletionTimes;
  readonly #watch: DeletionWatch;

  constructor(database: Database, driver: Driver, references: References, times = deletionTimes) {
    this.#database = database;
    this.#driver = driver;
    this.#references = references;
    this.#times = times;
    this.#watch = new DeletionWatch(times);
  }

  /** Goes through all blobs. Rejects when `signal` ends it, or bytes could not be deleted; what is done is done. */
  async collect({ before, pendingBefore = before, dryRun = false, signal }: CollectOptions): Promise<Collected> {
    const collected: Collected = { blobs: 0, bytes: 0 };
    const failures: unknown[] = [];
    const pace = new Pace(signal);
    const remove = async (
      rows: readonly BlobRow[],
      choose: (tx: Transaction, some: BlobRow[]) => Promise<BlobRow[]>,
    ) => {
      for (let start = 0; start < rows.length; start += batch) {
        const some = rows.slice(start, start + batch);
        const removed = dryRun ? { rows: some, failures: [] } : await this.#remove((tx) => choose(tx, some));
        collected.blobs += removed.rows.length;
        for (const { size } of removed.rows) collected.bytes += size;
        failures.push(...removed.failures);
        if (failures.length >= mostFailures) throw failures[0];
        await pace.step();
      }
    };
    for (let after: string | undefined = ''; after !== undefined;) {
      const last: string | undefined = await pageEnd(this.#database, after, page);
      const rows = await this.#find(after, last, [pendingBefore, before]);
      await pace.step();
      const free = rows.filter(({ state }) => state !== 'deleting');
      await remove(free, (tx, some) => this.#lockFree(tx, some, [pendingBefore, before]));
      // Left by processes that were killed.
      const givenUp = rows.filter((row) => row.state === 'deleting' && this.#watch.isGivenUp(row));
      await remove(givenUp, takeOver);
      after = last;
    }
    if (failures.length > 0) throw failures[0];
    return collected;
  }

  #remove(choose: (tx: Transaction) => Promise<BlobRow[]>): Promise<Removed> {
    return removeBlobs(this.#database, this.#driver, this.#times, choose);
  }

  /** Those up to `last` that nothing refers to, and those that are being deleted. */
  #find(after: string, last: string | undefined, limits: Limits): Promise<BlobRow[]> {
    return this.#database.select<BlobRow>(
      `SELECT ${rowColumns} FROM blobs WHERE digest > ? ${last === undefined ? '' : 'AND digest <= ?'}
       AND (state = 'deleting' OR (${isOld} AND NOT ${this.#references.isReferenced})) ORDER BY digest`,
      [after, ...(last === undefined ? [] : [last]), ...limits],
    );
  }

  /** Those of `found` that nothing refers to, locked. */
  async #lockFree(tx: Transaction, found: readonly BlobRow[], limits: Limits): Promise<BlobRow[]> {
    const locked = await lockBlobs(tx, digestsOf(found));
    if (locked.length === 0) return [];
    // Asked anew, since the statement that waited for the locks saw what was there before it waited.
    return tx.select<BlobRow>(
      `SELECT ${rowColumns} FROM blobs WHERE digest IN (${placeholders(locked)})
       AND state <> 'deleting' AND ${isOld} AND NOT ${this.#references.isReferenced}`,
      [...digestsOf(locked), ...limits],
    );
  }
}

function digestsOf(rows: readonly BlobRow[]): Digest[] {
  return rows.map(({ digest }) => digest);
}
