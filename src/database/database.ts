import { DatabaseSync } from 'node:sqlite';
import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Sequelize, Transaction as SequelizeTransaction } from 'sequelize';
import { RowCache } from './row-cache.ts';
import { Connection, Driver, isBusy } from './sqlite.ts';
import { select, SequelizeWork, type Effects } from './statements.ts';

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
}

export interface CachedReadOptions {
  /** Without a `WriteSignal`, rows may be out of date for this long after another instance writes; milliseconds. */
  lag?: number;
}

/**
 * MySQL, or SQLite through Node's built-in driver. Both use Sequelize (pool, transactions, dialects). Times are
 * integers, in milliseconds since 1970 UTC. Both databases compare text by bytes.
 */
export interface Database extends Queryable {
  /**
   * As `get`, for queries that every request makes: answered from memory until any instance writes. The caller must not
   * change the row. `sql` should be a constant: a new string must be hashed at each request.
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
  /** Runs `work` in one transaction. Repeats all of it after a deadlock, so `work` must be repeatable. */
  transaction<T>(work: (tx: Transaction) => Promise<T>, options?: TransactionOptions): Promise<T>;
  /** Runs `work` under a lock that only one of all processes on this database can hold (for migrations). */
  exclusively<T>(work: () => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

/** Tells instances on one MySQL database about each other's writes. SQLite does not need it. */
export interface WriteSignal {
  /** Changes after every write by any instance; undefined while it is unknown. */
  version(): Promise<string | undefined>;
  /** Changes the version. Resolves when no instance can still get the old one. */
  announce(): Promise<void>;
}

/**
 * Opens the database at `url`: `sqlite:PATH` or `mysql://user:password@host:port/name`. Creates the folder of a SQLite
 * file; a MySQL database must exist. All instances on a MySQL database share `changes`; without it, only cached reads
 * with a `lag` are cached. Rejects when the database is unreachable.
 */
export async function openDatabase(url: string, changes?: WriteSignal): Promise<Database> {
  const database = url.startsWith('sqlite:')
    ? new SqliteDatabase(url.slice('sqlite:'.length))
    : new MysqlDatabase(url, changes);
  try {
    await database.connect();
    return database;
  } catch (error) {
    await database.close();
    throw error;
  }
}

/** How long `exclusively` waits for the lock, in milliseconds. */
const lockTimeout = 60_000;
const lockTimeoutMessage = 'another instance has held the migration lock of this database for a minute';

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

abstract class SequelizeDatabase implements Database {
  abstract readonly dialect: Dialect;
  protected readonly sequelize: Sequelize;
  #commits = 0;
  readonly #running = new Set<Promise<void>>();
  readonly #cachedRows = new RowCache();

  constructor(sequelize: Sequelize) {
    this.sequelize = sequelize;
  }

  /** Rejects when the database is unreachable. */
  connect(): Promise<void> {
    return this.sequelize.authenticate();
  }

  select<T extends object = Row>(sql: string, values: readonly Value[] = []): Promise<T[]> {
    return select<T>(this.sequelize, sql, values);
  }

  async get<T extends object = Row>(sql: string, values: readonly Value[] = []): Promise<T | undefined> {
    return (await this.select<T>(sql, values))[0];
  }

  async getCached<T extends object = Row>(
    sql: string,
    values?: readonly Value[],
    options?: CachedReadOptions,
  ): Promise<T | undefined> {
    return (await this.selectCached<T>(sql, values, options))[0];
  }

  async selectCached<T extends object = Row>(
    sql: string,
    values: readonly Value[] = [],
    { lag = 0 }: CachedReadOptions = {},
  ): Promise<readonly T[]> {
    const version = await this.version(lag);
    if (version === undefined) return this.select<T>(sql, values);
    return this.#cachedRows.get(version, sql, values, () => this.select(sql, values)) as Promise<readonly T[]>;
  }

  /**
   * Cached rows are valid while this stays the same; undefined: do not cache. See `WriteSignal` and
   * `CachedReadOptions`.
   */
  protected abstract version(lag: number): Promise<string | undefined>;
  /** Called after each commit that wrote. Resolves when the next version on every instance is a new one. */
  protected async afterWrite(): Promise<void> {
    this.#commits += 1;
  }

  /** Number of commits of this instance that wrote. */
  protected get commits(): number {
    return this.#commits;
  }

  transaction<T>(work: (tx: Transaction) => Promise<T>, { fleeting = false }: TransactionOptions = {}): Promise<T> {
    const done = this.#attempt(work, fleeting);
    const settled = done.then(ignore, ignore).then(() => void this.#running.delete(settled));
    this.#running.add(settled);
    return done;
  }

  async #attempt<T>(work: (tx: Transaction) => Promise<T>, fleeting: boolean): Promise<T> {
    for (let attempt = 1; ; attempt += 1) {
      const effects: Effects = { wrote: false };
      try {
        const result = await this.sequelize.transaction((transaction) =>
          work(new SequelizeWork(this.sequelize, transaction, this.dialect, effects)),
        );
        if (effects.wrote && !fleeting) await this.afterWrite();
        return result;
      } catch (error) {
        if (attempt >= 10 || !isConflict(error)) throw error;
        await sleep(Math.random() * 20 * attempt);
      }
    }
  }

  abstract exclusively<T>(work: () => Promise<T>): Promise<T>;

  async close(): Promise<void> {
    await Promise.all(this.#running);
    await this.sequelize.close();
  }
}

function ignore(): void {}

/** SQLite. This class queues the write transactions of this process, and waits for those of other processes. */
class SqliteDatabase extends SequelizeDatabase {
  readonly dialect = 'sqlite';
  readonly #path: string;
  /** Reads outside transactions bypass Sequelize, which takes more time than SQLite itself. */
  readonly #reader: Connection;
  readonly #driver: Driver;
  #writing: Promise<unknown> = Promise.resolve();
  #current: { commits: number; version: Promise<string> } | undefined;

  constructor(path: string) {
    mkdirSync(dirname(path), { recursive: true });
    const driver = new Driver();
    super(
      new Sequelize({
        dialect: 'sqlite',
        dialectModule: driver,
        storage: path,
        logging: false,
        transactionType: SequelizeTransaction.TYPES.IMMEDIATE,
        retry: { max: 1 },
      }),
    );
    this.#path = path;
    this.#driver = driver;
    this.#reader = new Connection(path);
  }

  override async select<T extends object = Row>(sql: string, values: readonly Value[] = []): Promise<T[]> {
    return this.#reader.prepare(sql).all(...values) as T[];
  }

  override transaction<T>(work: (tx: Transaction) => Promise<T>, options: TransactionOptions = {}): Promise<T> {
    const turn = this.#writing.then(() => {
      this.#driver.synchronous = options.fleeting ? 'NORMAL' : 'FULL';
      return super.transaction(work, options);
    });
    this.#writing = turn.then(ignore, ignore);
    return turn;
  }

  /**
   * Reads the file's version once per turn of the event loop. A client that knows of a later write cannot have sent a
   * request that this turn handles.
   */
  protected override version(): Promise<string> {
    if (!this.#current) setImmediate(() => (this.#current = undefined));
    const { commits } = this;
    if (this.#current?.commits !== commits) this.#current = { commits, version: Promise.resolve(this.#reader.version) };
    return this.#current.version;
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
      return await work();
    } finally {
      lock.close();
    }
  }

  override async close(): Promise<void> {
    await this.#writing;
    await super.close();
    this.#driver.close();
    this.#reader.close();
  }
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

class MysqlDatabase extends SequelizeDatabase {
  readonly dialect = 'mysql';
  readonly #changes: WriteSignal | undefined;

  constructor(url: string, changes: WriteSignal | undefined) {
    super(
      new Sequelize(url.replace(/^mariadb:/, 'mysql:'), {
        dialect: 'mysql',
        logging: false,
        pool: { max: 10, idle: 60_000, acquire: 10_000 },
        isolationLevel: SequelizeTransaction.ISOLATION_LEVELS.READ_COMMITTED,
        dialectOptions: { charset: 'utf8mb4', connectTimeout: 5000, supportBigNumbers: true, decimalNumbers: true },
        retry: { max: 1 },
      }),
    );
    this.#changes = changes;
  }

  protected override async version(lag: number): Promise<string | undefined> {
    if (this.#changes) return this.#changes.version();
    return lag > 0 ? `${this.commits} ${Math.floor(performance.now() / lag)}` : undefined;
  }

  protected override async afterWrite(): Promise<void> {
    await super.afterWrite();
    await this.#changes?.announce();
  }

  override async exclusively<T>(work: () => Promise<T>): Promise<T> {
    return this.sequelize.transaction(async (transaction) => {
      const name = `entrepot:${this.sequelize.getDatabaseName()}`.slice(0, 64);
      const [row] = await select<{ acquired: number }>(
        this.sequelize,
        'SELECT GET_LOCK(?, ?) AS acquired',
        [name, lockTimeout / 1000],
        transaction,
      );
      if (row?.acquired !== 1) throw new Error(lockTimeoutMessage);
      try {
        return await work();
      } finally {
        await select(this.sequelize, 'SELECT RELEASE_LOCK(?) AS released', [name], transaction);
      }
    });
  }
}

/** Deadlock and lock wait timeout (MySQL 1213, 1205), or a busy SQLite: the whole transaction can be repeated. */
function isConflict(error: unknown): boolean {
  const parent = (error as { parent?: { errno?: number } }).parent;
  return parent?.errno === 1213 || parent?.errno === 1205 || isBusy(parent ?? {});
}
