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

/** Reads. SQL carries `?` placeholders; every value is bound, never written into the text. */
export interface Queryable {
  readonly dialect: Dialect;
  select<T extends object = Row>(sql: string, values?: readonly Value[]): Promise<T[]>;
  /** The first row, if there is one. */
  get<T extends object = Row>(sql: string, values?: readonly Value[]): Promise<T | undefined>;
}

/** Writes exist only here, so that on SQLite one writer at a time is a matter of types, not of care. */
export interface Transaction extends Queryable {
  /** Runs a statement; resolves to the number of rows it found to change, those that were so already included. */
  run(sql: string, values?: readonly Value[]): Promise<number>;
  /** Inserts one row; resolves to its generated key. */
  insert(table: string, row: Row): Promise<number>;
  /** Inserts rows whose keys are not there yet; resolves to how many were inserted. */
  insertNew(table: string, rows: readonly Row[]): Promise<number>;
  /** Inserts rows; where the key is there, sets `update` (assignments; `new.x` stands for the row's value). */
  upsert(table: string, key: readonly string[], rows: readonly Row[], update: string): Promise<void>;
  /** Runs after the commit, in order; never after a rollback. */
  afterCommit(work: () => void): void;
}

export interface TransactionOptions {
  /** Nobody recalls what it writes, and after a power cut nobody wants it: so SQLite need not wait for the disk. */
  fleeting?: boolean;
}

export interface CachedReadOptions {
  /** How long what another instance writes may stay unseen where there are no `WriteSignal` to tell of it; milliseconds. */
  lag?: number;
}

/**
 * The truth: MySQL, or SQLite through Node's own driver, both through Sequelize (pool, transactions, dialects).
 * Times are integers, milliseconds since 1970 UTC; text compares by bytes on both.
 */
export interface Database extends Queryable {
  /** As `get`, for what every request asks: from memory while nothing was written, by any instance. Not to be changed. */
  getCached<T extends object = Row>(
    sql: string,
    values?: readonly Value[],
    options?: CachedReadOptions,
  ): Promise<Readonly<T> | undefined>;
  /** As `getCached`, all rows: for what has few. */
  selectCached<T extends object = Row>(
    sql: string,
    values?: readonly Value[],
    options?: CachedReadOptions,
  ): Promise<readonly Readonly<T>[]>;
  /** Runs `work` in one transaction and retries it whole on deadlock; so `work` must be repeatable until it commits. */
  transaction<T>(work: (tx: Transaction) => Promise<T>, options?: TransactionOptions): Promise<T>;
  /** Runs `work` alone among all processes that use this database (migrations). */
  exclusively<T>(work: () => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

/** Word among instances that something was written. SQLite knows by itself. */
export interface WriteSignal {
  /** Another one than before if anything was written since; undefined while there is no knowing. */
  mark(): Promise<string | undefined>;
  /** Ends when every mark that is asked for from now on is another one than before. */
  tell(): Promise<void>;
}

/**
 * Opens the database named by `url`: `sqlite:PATH` or `mysql://user:password@host:port/name`. SQLite's folder is made;
 * a MySQL database must exist; without `changes`, which all of its instances share, nothing of it is recalled. Rejects
 * when it cannot be reached.
 */
export async function openDatabase(url: string, changes?: WriteSignal): Promise<Database> {
  const database = url.startsWith('sqlite:')
    ? new SqliteDatabase(url.slice('sqlite:'.length))
    : new MysqlDatabase(url, changes);
  try {
    await database.reach();
    return database;
  } catch (error) {
    await database.close();
    throw error;
  }
}

/** How long `exclusively` waits for its turn, in milliseconds. */
const lockPatience = 60_000;
const lockedOut = 'another instance has held the lock of this database for a minute';

/** `?, ?, …`, as many as there are values: for `IN (…)`. */
export function placeholders(values: readonly unknown[]): string {
  return values.map(() => '?').join(', ');
}

/** Ends a SELECT whose rows stay locked until the transaction ends. SQLite has one writer at a time and needs none. */
export function forUpdate({ dialect }: Queryable): '' | ' FOR UPDATE' {
  return dialect === 'mysql' ? ' FOR UPDATE' : '';
}

abstract class SequelizeDatabase implements Database {
  abstract readonly dialect: Dialect;
  protected readonly sequelize: Sequelize;
  #commits = 0;
  readonly #underWay = new Set<Promise<void>>();
  readonly #kept = new RowCache();

  constructor(sequelize: Sequelize) {
    this.sequelize = sequelize;
  }

  /** Rejects when the database cannot be used. */
  reach(): Promise<void> {
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
    const mark = await this.mark(lag);
    if (mark === undefined) return this.select<T>(sql, values);
    return this.#kept.get(mark, sql, values, () => this.select(sql, values)) as Promise<readonly T[]>;
  }

  /** See `WriteSignal` and `CachedReadOptions`. */
  protected abstract mark(lag: number): Promise<string | undefined>;
  /** Something was written; ends when every instance's next mark will say so. */
  protected async wrote(): Promise<void> {
    this.#commits += 1;
  }

  /** How often this instance has written. */
  protected get commits(): number {
    return this.#commits;
  }

  transaction<T>(work: (tx: Transaction) => Promise<T>, { fleeting = false }: TransactionOptions = {}): Promise<T> {
    const done = this.#attempt(work, fleeting);
    const settled = done.then(ignore, ignore).then(() => void this.#underWay.delete(settled));
    this.#underWay.add(settled);
    return done;
  }

  async #attempt<T>(work: (tx: Transaction) => Promise<T>, fleeting: boolean): Promise<T> {
    for (let attempt = 1; ; attempt += 1) {
      const effects: Effects = { wrote: false, after: [] };
      try {
        const result = await this.sequelize.transaction((transaction) =>
          work(new SequelizeWork(this.sequelize, transaction, this.dialect, effects)),
        );
        if (effects.wrote && !fleeting) await this.wrote();
        for (const each of effects.after) each();
        return result;
      } catch (error) {
        if (attempt >= 10 || !isConflict(error)) throw error;
        await sleep(Math.random() * 20 * attempt);
      }
    }
  }

  abstract exclusively<T>(work: () => Promise<T>): Promise<T>;

  async close(): Promise<void> {
    await Promise.all(this.#underWay);
    await this.sequelize.close();
  }
}

function ignore(): void {}

/** SQLite: one write transaction at a time in this process, queued here; other processes' are waited for. */
class SqliteDatabase extends SequelizeDatabase {
  readonly dialect = 'sqlite';
  readonly #path: string;
  /** Reads outside transactions go past Sequelize, which costs more than SQLite itself. */
  readonly #reader: Connection;
  readonly #driver: Driver;
  #writing: Promise<unknown> = Promise.resolve();
  #marked: { commits: number; mark: Promise<string> } | undefined;

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

  /** The file is asked once in a turn of the event loop: whoever knew of a later change could not have a request here. */
  protected override mark(): Promise<string> {
    if (!this.#marked) setImmediate(() => (this.#marked = undefined));
    const { commits } = this;
    if (this.#marked?.commits !== commits) this.#marked = { commits, mark: Promise.resolve(this.#reader.version) };
    return this.#marked.mark;
  }

  /** A file of its own holds the lock, because SQLite locks are a connection's and a migration uses several. */
  override async exclusively<T>(work: () => Promise<T>): Promise<T> {
    const lock = new DatabaseSync(`${this.#path}.lock`);
    try {
      const deadline = performance.now() + lockPatience;
      while (!isTaken(lock)) {
        if (performance.now() > deadline) throw new Error(lockedOut);
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

/** Whether `lock` is ours now; asks without waiting, since who has it may be in this process. */
function isTaken(lock: DatabaseSync): boolean {
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

  protected override async mark(lag: number): Promise<string | undefined> {
    if (this.#changes) return this.#changes.mark();
    return lag > 0 ? `${this.commits} ${Math.floor(performance.now() / lag)}` : undefined;
  }

  protected override async wrote(): Promise<void> {
    await super.wrote();
    await this.#changes?.tell();
  }

  override async exclusively<T>(work: () => Promise<T>): Promise<T> {
    return this.sequelize.transaction(async (transaction) => {
      const name = `entrepot:${this.sequelize.getDatabaseName()}`.slice(0, 64);
      const [row] = await select<{ taken: number }>(
        this.sequelize,
        'SELECT GET_LOCK(?, ?) AS taken',
        [name, lockPatience / 1000],
        transaction,
      );
      if (row?.taken !== 1) throw new Error(lockedOut);
      try {
        return await work();
      } finally {
        await select(this.sequelize, 'SELECT RELEASE_LOCK(?) AS released', [name], transaction);
      }
    });
  }
}

/** Deadlock and lock wait time-out (MySQL 1213, 1205) and a busy SQLite: the whole transaction may be tried again. */
function isConflict(error: unknown): boolean {
  const parent = (error as { parent?: { errno?: number } }).parent;
  return parent?.errno === 1213 || parent?.errno === 1205 || isBusy(parent ?? {});
}
