import { placeholders, type Database, type Transaction } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import type { Driver } from '../drivers/driver.ts';
import { isHeld, limitHolds, mayBeHeld } from './collection-pause.ts';
import { Pace } from './pace.ts';
import { pageEnd, type References } from '../blobs/references.ts';
import { removeBlobs, type Removed } from '../blobs/removal.ts';
import {
  deletionTimes,
  DeletionWatch,
  lockBlobs,
  rowColumns,
  takeOver,
  type BlobRow,
  type DeletionTimes,
} from '../blobs/states.ts';

interface CollectOptions {
  /** Only blobs stored before this time are removed; milliseconds since 1970 UTC. */
  before: number;
  /** The same for blobs that are still `pending`; `before` by default. */
  pendingBefore?: number | undefined;
  /** Only counts. */
  dryRun?: boolean | undefined;
  signal?: AbortSignal | undefined;
}

interface Collected {
  /** Unreferenced blobs, and their size. */
  blobs: number;
  bytes: number;
  /** 1 if nothing was removed because a backup or a copy runs. */
  held?: number;
}

/** Rows that one statement reads, and rows that are removed together. */
const page = 500;
const batch = 50;
/** Condition on a row of `blobs`, for `Limits`. */
const isOld = "stored_at < CASE WHEN state = 'pending' THEN ? ELSE ? END";
type Limits = readonly [pendingBefore: number, before: number];
/** Failed deletions after which a pass ends. */
const maxFailures = 100;

/**
 * Removes unreferenced blobs while pushes continue. A transaction locks a row, checks that it has no reference, and marks
 * it `deleting`. Every reference is written under the same lock, and only while the row is not `deleting`. Then the bytes
 * are deleted, and then the row. Bytes without a row are kept: they come from outside, for example from a backup, or from
 * a process that was killed during a put that took longer than the grace. While a backup or a copy holds the bytes, only deletions
 * that had begun before are finished.
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

  /** Goes through all blobs. Rejects when `signal` is aborted or a deletion failed; earlier deletions stay. */
  async collect({ before, pendingBefore = before, dryRun = false, signal }: CollectOptions): Promise<Collected> {
    const collected: Collected = { blobs: 0, bytes: 0 };
    if (!dryRun) await limitHolds(this.#database);
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
        if (failures.length >= maxFailures) throw failures[0];
        await pace.step();
      }
    };
    for (let after: string | undefined = ''; after !== undefined;) {
      const last: string | undefined = await pageEnd(this.#database, after, page);
      const rows = await this.#find(after, last, [pendingBefore, before]);
      await pace.step();
      if (!dryRun && (await mayBeHeld(this.#database))) collected.held = 1;
      const free = collected.held ? [] : rows.filter(({ state }) => state !== 'deleting');
      await remove(free, (tx, some) => this.#lockFree(tx, some, [pendingBefore, before]));
      // Deletions that a killed process left unfinished.
      const givenUp = await this.#watch.givenUp(this.#database, rows);
      await remove(givenUp, takeOver);
      after = last;
    }
    if (failures.length > 0) throw failures[0];
    return collected;
  }

  #remove(choose: (tx: Transaction) => Promise<BlobRow[]>): Promise<Removed> {
    return removeBlobs(this.#database, this.#driver, this.#times, choose);
  }

  /** The unreferenced rows, and the rows that are `deleting`, after `after` and up to `last`. */
  #find(after: string, last: string | undefined, limits: Limits): Promise<BlobRow[]> {
    return this.#database.select<BlobRow>(
      `SELECT ${rowColumns} FROM blobs WHERE digest > ? ${last === undefined ? '' : 'AND digest <= ?'}
       AND (state = 'deleting' OR (${isOld} AND NOT ${this.#references.isReferenced})) ORDER BY digest`,
      [after, ...(last === undefined ? [] : [last]), ...limits],
    );
  }

  /** Locks the rows of `found`; resolves to the unreferenced ones. */
  async #lockFree(tx: Transaction, found: readonly BlobRow[], limits: Limits): Promise<BlobRow[]> {
    const locked = await lockBlobs(tx, digestsOf(found));
    if (locked.length === 0) return [];
    // A second query, because the first one sees the rows as they were before it waited for the locks.
    const free = await tx.select<BlobRow>(
      `SELECT ${rowColumns} FROM blobs WHERE digest IN (${placeholders(locked)})
       AND state <> 'deleting' AND ${isOld} AND NOT ${this.#references.isReferenced}`,
      [...digestsOf(locked), ...limits],
    );
    return (await isHeld(tx)) ? [] : free;
  }
}

function digestsOf(rows: readonly BlobRow[]): Digest[] {
  return rows.map(({ digest }) => digest);
}
