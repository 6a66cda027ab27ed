import { DatabaseSync } from 'node:sqlite';
import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Sequelize, Transaction as SequelizeTransaction } from 'sequelize';
import { Connection, Driver, isBusy } from './sqlite.ts';

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

/**
 * The truth: MySQL, or SQLite through Node's own driver, both through Sequelize (pool, transactions, dialects).
 * Times are integers, milliseconds since 1970 UTC; text compares by bytes on both.
 */
export interface Database extends Queryable {
  /** Runs `work` in one transaction and retries it whole on deadlock; so `work` must be repeatable until it commits. */
  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T>;
  /** Runs `work` alone among all processes that use this database (migrations). */
  exclusively<T>(work: () => Promise<T>): Promise<T>;
  close(): Promise<void>;
}

/**
 * Opens the database named by `url`: `sqlite:PATH` or `mysql://user:password@host:port/name`. SQLite's folder is made;
 * a MySQL database must exist. Rejects when it cannot be reached.
 */
export async function openDatabase(url: string): Promise<Database> {
  const database = url.startsWith('sqlite:') ? new SqliteDatabase(url.slice('sqlite:'.length)) : new MysqlDatabase(url);
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

const numbered = new Map<string, string>();

/** Sequelize binds `$1`; the house writes `?`. */
function numberPlaceholders(sql: string): string {
  let text = numbered.get(sql);
  if (text === undefined) {
    let count = 0;
    text = sql.replace(/\?/g, () => `$${++count}`);
    if (numbered.size > 2000) numbered.clear();
    numbered.set(sql, text);
  }
  return text;
}

/** `?, ?, …`, as many as there are values: for `IN (…)`. */
export function placeholders(values: readonly unknown[]): string {
  return values.map(() => '?').join(', ');
}

abstract class SequelizeDatabase implements Database {
  abstract readonly dialect: Dialect;
  protected readonly sequelize: Sequelize;
  readonly #underWay = new Set<Promise<void>>();

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

  transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    const done = this.#attempt(work);
    const settled = done.then(ignore, ignore).then(() => void this.#underWay.delete(settled));
    this.#underWay.add(settled);
    return done;
  }

  async #attempt<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt += 1) {
      const after: (() => void)[] = [];
      try {
        const result = await this.sequelize.transaction((transaction) =>
          work(new SequelizeWork(this.sequelize, transaction, this.dialect, after)),
        );
        for (const each of after) each();
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

  override transaction<T>(work: (tx: Transaction) => Promise<T>): Promise<T> {
    const turn = this.#writing.then(() => super.transaction(work));
    this.#writing = turn.then(ignore, ignore);
    return turn;
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

  constructor(url: string) {
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

async function select<T extends object>(
  sequelize: Sequelize,
  sql: string,
  values: readonly Value[],
  transaction: SequelizeTransaction | null = null,
): Promise<T[]> {
  const [rows] = await sequelize.query(numberPlaceholders(sql), { bind: [...values], raw: true, transaction });
  return rows as T[];
}

class SequelizeWork implements Transaction {
  readonly dialect: Dialect;
  readonly #sequelize: Sequelize;
  readonly #transaction: SequelizeTransaction;
  readonly #after: (() => void)[];

  constructor(sequelize: Sequelize, transaction: SequelizeTransaction, dialect: Dialect, after: (() => void)[]) {
    this.#sequelize = sequelize;
    this.#transaction = transaction;
    this.dialect = dialect;
    this.#after = after;
  }

  select<T extends object = Row>(sql: string, values: readonly Value[] = []): Promise<T[]> {
    return select<T>(this.#sequelize, sql, values, this.#transaction);
  }

  async get<T extends object = Row>(sql: string, values: readonly Value[] = []): Promise<T | undefined> {
    return (await this.select<T>(sql, values))[0];
  }

  async run(sql: string, values: readonly Value[] = []): Promise<number> {
    return (await this.#execute(sql, values)).changes;
  }

  async insert(table: string, row: Row): Promise<number> {
    return (await this.#execute(`INSERT INTO ${table} ${valuesOf([row])}`, Object.values(row))).lastId;
  }

  async insertNew(table: string, rows: readonly Row[]): Promise<number> {
    if (rows.length === 0) return 0;
    // MySQL counts no row for an assignment that changes nothing; INSERT IGNORE would forgive more than a known key.
    const [first] = Object.keys(rows[0]!);
    const tail = this.dialect === 'sqlite' ? 'ON CONFLICT DO NOTHING' : `ON DUPLICATE KEY UPDATE ${first} = ${first}`;
    const values = rows.flatMap((row) => Object.values(row));
    return (await this.#execute(`INSERT INTO ${table} ${valuesOf(rows)} ${tail}`, values)).changes;
  }

  async upsert(table: string, key: readonly string[], rows: readonly Row[], update: string): Promise<void> {
    if (rows.length === 0) return;
    const tail =
      this.dialect === 'sqlite'
        ? `ON CONFLICT (${key.join(', ')}) DO UPDATE SET ${update.replace(/\bnew\.(\w+)/g, 'excluded.$1')}`
        : `ON DUPLICATE KEY UPDATE ${update.replace(/\bnew\.(\w+)/g, 'VALUES($1)')}`;
    const values = rows.flatMap((row) => Object.values(row));
    await this.#execute(`INSERT INTO ${table} ${valuesOf(rows)} ${tail}`, values);
  }

  afterCommit(work: () => void): void {
    this.#after.push(work);
  }

  async #execute(sql: string, values: readonly Value[]): Promise<{ changes: number; lastId: number }> {
    const [first, second] = (await this.#sequelize.query(numberPlaceholders(sql), {
      bind: [...values],
      raw: true,
      transaction: this.#transaction,
    })) as unknown as [unknown, number | Outcome];
    // Sequelize answers [insertId, affectedRows] for MySQL's plain INSERT and [rows, outcome] for everything else.
    if (typeof second === 'number') return { changes: second, lastId: Number(first) };
    return { changes: second.changes ?? matched(second) ?? second.affectedRows ?? 0, lastId: second.lastID ?? 0 };
  }
}

interface Outcome {
  changes?: number;
  affectedRows?: number;
  info?: string;
  lastID?: number;
}

/** MySQL's `affectedRows` leaves out rows that were so already; "Rows matched: 1  Changed: 0" does not. */
function matched({ info }: Outcome): number | undefined {
  const first = /\d+/.exec(info ?? '');
  return first ? Number(first[0]) : undefined;
}

function valuesOf(rows: readonly Row[]): string {
  const columns = Object.keys(rows[0]!);
  const one = `(${columns.map(() => '?').join(', ')})`;
  return `(${columns.join(', ')}) VALUES ${rows.map(() => one).join(', ')}`;
}

/** Deadlock and lock wait time-out (MySQL 1213, 1205) and a busy SQLite: the whole transaction may be tried again. */
function isConflict(error: unknown): boolean {
  const parent = (error as { parent?: { errno?: number } }).parent;
  return parent?.errno === 1213 || parent?.errno === 1205 || isBusy(parent ?? {});
}
