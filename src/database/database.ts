import { DatabaseSync } from 'node:sqlite';
import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Sequelize, Transaction as SequelizeTransaction } from 'sequelize';
import type { Times } from '../metrics/times.ts';
import { pause } from '../runtime/event-loop.ts';
import { inTime } from '../runtime/in-time.ts';
import { LockedProcesses, type Processes } from './processes.ts';
import { Checkpoints } from './checkpoints.ts';
import { databaseFailure, databaseUnavailable } from './failure.ts';
import { MysqlDatabase } from './mysql-database.ts';
import { readEveryTable } from './probe.ts';
import type { Versions } from './row-cache.ts';
import { keepsRows, SequelizeDatabase } from './sequelize-database.ts';
import { SqliteFiles } from './sqlite-files.ts';
import { sqliteSnapshot } from './sqlite-snapshot.ts';
import { Connection, SqliteDriver, isBusy, whenFree } from './sqlite.ts';
import type { Tables } from './statement-tables.ts';
import { SqliteWork, type Effects } from './statements.ts';
import { inBackground, lockTimeout, lockTimeoutMessage, timeLimits, type TimeLimits } from './time-limits.ts';

export type Value = string | number | null;
export type Row = Record<string, Value>;
export type Dialect = 'sqlite' | 'mysql';

/** Reads. SQL has `?` placeholders; every value is bound and never written into the SQL text. */
export interface Queryable {
  readonly dialect: Dialect;
  select<T extends object = Row>(sql: string, values?: readonly Value[]): Promise<T[]>;
  /** The first row, if there is one. */
  get<T extends object = Row>(sql: string, values?: readonly Value[]): Promise<T | undefined>;
}

/** Only a transaction has write methods, so the types guarantee one writer at a time on SQLite. */
export interface Transaction extends Queryable {
  /** Runs a statement; resolves to the number of matched rows, including rows that already had the new values. */
  run(sql: string, values?: readonly Value[]): Promise<number>;
  /** Inserts one row; resolves to its generated key. */
  insert(table: string, row: Row): Promise<number>;
  /** Inserts the rows whose keys do not exist yet; resolves to the number of inserted rows. */
  insertNew(table: string, rows: readonly Row[]): Promise<number>;
  /** Inserts rows. For a key that exists, applies `update` (assignments; `new.x` is the new row's value). */
  upsert(table: string, key: readonly string[], rows: readonly Row[], update: string): Promise<void>;
}

export interface TransactionOptions {
  /** No cached read uses these rows, and they may be lost on power failure. So SQLite skips fsync. */
  fleeting?: boolean;
  /** No cached read uses these rows, so all cached rows stay valid. True of fleeting rows too. */
  uncached?: boolean;
}

export interface CachedReadOptions {
  /** Without a `WriteSignal`, rows may be out of date for this long after another instance writes; milliseconds. */
  lag?: number;
}

/**
 * MySQL, or SQLite through Node's built-in driver. Both use Sequelize (pool, transactions, dialects). Times are
 * integers, in milliseconds since 1970 UTC. Both databases compare text by bytes. Every method rejects with
 * `DatabaseUnavailable` when the database cannot do the work now, within the time of `TimeLimits`. A transaction ends when the disk has
 * its writes and all that it has read; with SQLite, a read outside of one can see a write some milliseconds earlier.
 */
export interface Database extends Queryable {
  readonly times: DatabaseTimes;
  /** The processes on this database, with SQLite; with MySQL the table of instances tells. */
  readonly processes: Processes | undefined;
  /**
   * As `get`, for queries that every request makes: answered from memory until any instance writes to a table that `sql`
   * names after FROM or JOIN; on SQLite, to any table. The caller must not change the row. `sql` should be a constant: a new
   * string must be hashed at each request.
   */
  getCached<T extends object = Row>(
    sql: string,
    values?: readonly Value[],
    options?: CachedReadOptions,
  ): Promise<Readonly<T> | undefined>;
  /** As `getCached`, but all rows. For queries with few rows. */
  selectCached<T extends object = Row>(
    sql: string,
    values?: readonly Value[],
    options?: CachedReadOptions,
  ): Promise<readonly Readonly<T>[]>;
  /**
   * Stays the same while every answer of `getCached` from these tables does. Undefined while such answers do not come from memory.
   */
  stateOf(tables: readonly string[]): Promise<string | undefined>;
  /** Runs `work` in one transaction. Repeats all of it after a deadlock, so `work` must be repeatable. */
  transaction<T>(work: (tx: Transaction) => Promise<T>, options?: TransactionOptions): Promise<T>;
  /**
   * Runs `read` on one state of the database, while writes continue. Its rows can also have bytes (`Uint8Array`); integers
   * beyond 2^53 are text.
   */
  snapshot<T>(read: (from: Queryable) => Promise<T>): Promise<T>;
  /** Runs `work` under a lock that only one of all processes on this database can hold (for migrations). */
  exclusively<T>(work: () => Promise<T>): Promise<T>;
  /** Reads from every table, on SQLite from the disk. Rejects when that fails. */
  checkReads(): Promise<void>;
  /** Writes one row. Rejects when that fails. */
  checkWrites(): Promise<void>;
  close(): Promise<void>;
}

/** How long statements took, also those that failed. */
interface DatabaseTimes {
  /** Reads outside transactions that memory did not answer. */
  readonly read: Times;
  /** Whole transactions, with their wait for others. */
  readonly transaction: Times;
}

/** Tells instances on one MySQL database about each other's writes. SQLite does not need it. */
export interface WriteSignal {
  /** They change after every write by any instance to their tables; undefined while they are unknown. */
  versions(): Promise<Versions | undefined>;
  /** Changes the versions of `tables`, or of all if they are undefined. Resolves when no instance can still get the old ones. */
  announce(tables: Tables): Promise<void>;
}

/**
 * Opens the database at `url`: `sqlite:PATH` or `mysql://user:password@host:port/name`. Creates the folder of a SQLite
 * file; a MySQL database must exist. All instances on a MySQL database share `changes`; without it, only cached reads
 * with a `lag` are cached. Rejects when the database is unreachable.
 */
export async function openDatabase(
  url: string,
  changes?: WriteSignal,
  limits: TimeLimits = timeLimits,
): Promise<Database> {
  // While another process makes the same file, as two first starts do, SQLite refuses at once, whatever its time limit.
  const database = url.startsWith('sqlite:')
    ? await whenFree(
        () => new SqliteDatabase(url.slice('sqlite:'.length), limits),
        performance.now() + limits.connection,
      )
    : new MysqlDatabase(url, changes, limits);
  try {
    await database.connect();
    return database;
  } catch (error) {
    await database.close();
    throw error;
  }
}

/** `?, ?, …`, one for each value: for `IN (…)`. */
export function placeholders(values: readonly unknown[]): string {
  return values.map(() => '?').join(', ');
}

/**
 * Suffix of a SELECT that locks its rows until the transaction ends. SQLite needs none: it has one writer at a time.
 */
export function forUpdate({ dialect }: Queryable): '' | ' FOR UPDATE' {
  return dialect === 'mysql' ? ' FOR UPDATE' : '';
}

/** SQLite. This class queues the write transactions of this process, and waits for those of other processes. */
class SqliteDatabase extends SequelizeDatabase {
  readonly dialect = 'sqlite';
  override readonly processes: LockedProcesses;
  readonly #path: string;
  /** Reads outside transactions bypass Sequelize, which takes more time than SQLite itself. */
  readonly #reader: Connection;
  readonly #driver: SqliteDriver;
  readonly #files: SqliteFiles;
  readonly #checkpoints: Checkpoints;
  /** The end of the last transaction. */
  #writing: Promise<unknown> = Promise.resolve();
  /** The same of all transactions, once their writes are on the disk. */
  #durable: Promise<unknown> = Promise.resolve();
  #hasSynced = false;
  /** Numbers of writes that have ended, and of those that the disk has confirmed. */
  #written = 0;
  #confirmed = 0;
  /** Whether a sync failed, and the log was not copied since. */
  #isSuspect = false;

  constructor(path: string, limits: TimeLimits) {
    mkdirSync(dirname(path), { recursive: true });
    const driver = new SqliteDriver(path);
    super(
      new Sequelize({
        dialect: 'sqlite',
        dialectModule: driver,
        storage: path,
        logging: false,
        transactionType: SequelizeTransaction.TYPES.IMMEDIATE,
        retry: { max: 1 },
      }),
      limits,
    );
    this.#path = path;
    this.#driver = driver;
    this.#reader = new Connection(path);
    this.#files = new SqliteFiles(path);
    this.#checkpoints = new Checkpoints(path);
    this.processes = new LockedProcesses(`${path}.processes`, lockFile);
  }

  override async select<T extends object = Row>(sql: string, values: readonly Value[] = []): Promise<T[]> {
    // A query runs at once, so that a loop of queries would hold the event loop.
    await pause();
    const startedAt = performance.now();
    try {
      return this.#reader.prepare(sql).all(...values) as T[];
    } catch (error) {
      throw databaseFailure(error);
    } finally {
      this.times.read.since(startedAt);
    }
  }

  protected override workIn(transaction: SequelizeTransaction, effects: Effects): Transaction {
    return new SqliteWork(transaction, effects);
  }

  override transaction<T>(work: (tx: Transaction) => Promise<T>, options: TransactionOptions = {}): Promise<T> {
    const startedAt = performance.now();
    const deadline = this.deadline();
    const turn = this.#writing.then(() => this.#takeTurn(work, options, deadline));
    // The next transaction need not wait until this one is on the disk: both then wait together.
    this.#writing = turn.catch(() => undefined);
    const done = options.fleeting ? turn : this.#durableAfter(turn, deadline);
    const before = this.#durable;
    this.#durable = done.then(
      () => before,
      () => before,
    );
    return done.finally(() => this.times.transaction.since(startedAt));
  }

  /** As `turn`, once all writes until then are on the disk: it may have read what another one wrote. */
  async #durableAfter<T>(turn: Promise<T>, deadline: number): Promise<T> {
    try {
      return await turn;
    } finally {
      await this.#sync(deadline);
    }
  }

  async #sync(deadline: number): Promise<void> {
    const upTo = this.#written;
    if (upTo === this.#confirmed) return;
    const sync = async () => {
      await this.#driver.sync().catch((error: unknown) => {
        this.#isSuspect = true;
        throw error;
      });
      // A write that waited for another run may stand behind one that the disk lacks.
      if (this.#isSuspect) throw new Error('an earlier write was not confirmed');
    };
    try {
      await inTime(sync, Math.max(this.limits.transaction, deadline - performance.now()));
    } catch (error) {
      const message = 'The disk of the database did not confirm a write, which may have happened. Try again later.';
      throw databaseUnavailable(message, error);
    }
    this.#confirmed = Math.max(this.#confirmed, upTo);
  }

  async #takeTurn<T>(work: (tx: Transaction) => Promise<T>, options: TransactionOptions, deadline: number): Promise<T> {
    if (performance.now() > deadline) throw databaseUnavailable('Too many writes wait for the database.');
    // A new connection would make a new file in place of a removed one.
    this.#files.check();
    await this.#prepareLog(deadline);
    this.#driver.synchronous = this.#hasSynced ? 'NORMAL' : 'FULL';
    this.#driver.keepsVersion = keepsRows(options);
    this.#driver.beginUntil = deadline;
    const result = await this.begin(work, options, deadline);
    // A write into a removed file has succeeded, but it will be lost.
    this.#files.check();
    if (this.hasWritten) {
      this.#hasSynced = true;
      if (!options.fleeting) this.#written += 1;
      this.#checkpoints.begin(this.#reader);
    }
    return result;
  }

  /**
   * Makes room in the log. After a sync that failed, the disk may lack parts of the log that are still in memory, and which would not be
   * written again: then all of the log is copied into the file of the database before anything else is confirmed.
   */
  async #prepareLog(deadline: number): Promise<void> {
    try {
      const room = () => this.#checkpoints.room(this.#isSuspect);
      await inTime(room, Math.max(1, deadline - performance.now()));
      if (!this.#isSuspect) return;
      if (this.#reader.log.lacking > 0) throw new Error('the log of the database is not copied');
    } catch (error) {
      throw databaseUnavailable('The disk of the database has failed.', error);
    }
    this.#isSuspect = false;
  }

  override snapshot<T>(read: (from: Queryable) => Promise<T>): Promise<T> {
    this.#files.check();
    return sqliteSnapshot(this.#path, read);
  }

  override async checkReads(): Promise<void> {
    this.#files.check();
    try {
      // A new connection has no pages in memory.
      using disk = new DatabaseSync(this.#path, { readOnly: true });
      await readEveryTable(this.dialect, (sql) => Promise.resolve(disk.prepare(sql).all()));
    } catch (error) {
      throw databaseFailure(error);
    }
  }

  /**
   * Reads the version of the file, which is one for all tables, each time. One that a timer has read is no answer for a request of the same
   * turn of the event loop: its client may know of a later write of another process.
   */
  protected override async versions(): Promise<Versions> {
    try {
      const { version } = this.#driver;
      return { of: () => version };
    } catch (error) {
      throw databaseFailure(error);
    }
  }

  /** The lock is on a separate file, because a SQLite lock belongs to one connection and a migration uses several. */
  override async exclusively<T>(work: () => Promise<T>): Promise<T> {
    const lock = new DatabaseSync(`${this.#path}.lock`);
    try {
      const deadline = performance.now() + lockTimeout;
      while (!tryLock(lock)) {
        if (performance.now() > deadline) throw new Error(lockTimeoutMessage);
        await sleep(5 + Math.random() * 20);
      }
      return await inBackground(work);
    } finally {
      lock.close();
    }
  }

  override async close(): Promise<void> {
    await this.#writing;
    await this.#durable;
    await super.close();
    await this.#checkpoints.end();
    this.#driver.close();
    this.#reader.close();
    this.processes[Symbol.dispose]();
  }
}

/** Locks the file at `path`, which nothing else uses; undefined if another process has locked it. A killed process holds no lock. */
export function lockFile(path: string): Disposable | undefined {
  const lock = new DatabaseSync(path);
  if (tryLock(lock)) return { [Symbol.dispose]: () => lock.close() };
  lock.close();
  return undefined;
}

/** Tries to take `lock` without waiting, because the holder may be in this process. Returns whether it succeeded. */
function tryLock(lock: DatabaseSync): boolean {
  try {
    lock.exec('BEGIN EXCLUSIVE');
    return true;
  } catch (error) {
    if (isBusy(error)) return false;
    throw error;
  }
}
