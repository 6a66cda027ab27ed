import type { Times } from '../metrics/times.ts';
import type { Processes } from './processes.ts';
import type { Versions } from './row-cache.ts';
import { whenFree } from './sqlite.ts';
import { SqliteDatabase } from './sqlite-database.ts';
import type { Tables } from './statement-tables.ts';
import { timeLimits, type TimeLimits } from './time-limits.ts';

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
 * MySQL through Sequelize, or SQLite through Node's built-in driver. Times are
 * integers, in milliseconds since 1970 UTC. Both databases compare text by bytes. Every method rejects with
 * `DatabaseUnavailable` when the database cannot do the work now, within the time of `TimeLimits`. A transaction ends when the disk has
 * its writes and all that it has read, also of other processes; with SQLite, a read outside of one can see a write some milliseconds earlier.
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
  if (url.startsWith('sqlite:')) {
    const open = () => new SqliteDatabase(url.slice('sqlite:'.length), limits);
    return whenFree(open, performance.now() + limits.connection);
  }
  // Only when it is needed, because loading Sequelize takes a good part of a start.
  const { MysqlDatabase } = await import('./mysql-database.ts');
  const database = new MysqlDatabase(url, changes, limits);
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
