import { DatabaseError, type Sequelize, type Transaction as SequelizeTransaction } from 'sequelize';
import { pauseTransaction } from '../runtime/event-loop.ts';
import type { Dialect, Row, Transaction, Value } from './database.ts';
import type { SqliteDatabase } from './sqlite.ts';
import { tableWritten } from './statement-tables.ts';

const numberedStatements = new Map<string, string>();

/** Rows that are inserted into SQLite without a pause. */
const rowsOfTurn = 50;

/** Sequelize binds `$1`; the callers write `?`. */
function numberPlaceholders(sql: string): string {
  let text = numberedStatements.get(sql);
  if (text === undefined) {
    let count = 0;
    text = sql.replace(/\?/g, () => `$${++count}`);
    if (numberedStatements.size > 2000) numberedStatements.clear();
    numberedStatements.set(sql, text);
  }
  return text;
}

/** Runs a SELECT with `?` placeholders, inside `transaction` if given. */
export async function select<T extends object>(
  sequelize: Sequelize,
  sql: string,
  values: readonly Value[],
  transaction: SequelizeTransaction | null = null,
): Promise<T[]> {
  const [rows] = await sequelize.query(numberPlaceholders(sql), { bind: [...values], raw: true, transaction });
  return rows as T[];
}

/** What a transaction did. */
export interface Effects {
  wrote: boolean;
  /** The written tables; undefined if one is not known. */
  tables: Set<string> | undefined;
}

/** The statements of one transaction. */
abstract class TransactionWork implements Transaction {
  abstract readonly dialect: Dialect;
  readonly #effects: Effects;

  constructor(effects: Effects) {
    this.#effects = effects;
  }

  abstract select<T extends object = Row>(sql: string, values?: readonly Value[]): Promise<T[]>;
  abstract insertNew(table: string, rows: readonly Row[]): Promise<number>;
  abstract upsert(table: string, key: readonly string[], rows: readonly Row[], update: string): Promise<void>;
  protected abstract execute(sql: string, values: readonly Value[]): Promise<{ changes: number; lastId: number }>;

  async get<T extends object = Row>(sql: string, values: readonly Value[] = []): Promise<T | undefined> {
    return (await this.select<T>(sql, values))[0];
  }

  async run(sql: string, values: readonly Value[] = []): Promise<number> {
    return (await this.execute(sql, values)).changes;
  }

  async insert(table: string, row: Row): Promise<number> {
    return (await this.execute(`INSERT INTO ${table} ${valuesOf([row])}`, Object.values(row))).lastId;
  }

  protected noteWrite(table: string | undefined): void {
    this.#effects.wrote = true;
    if (table === undefined) this.#effects.tables = undefined;
    else this.#effects.tables?.add(table);
  }
}

/**
 * On SQLite, by prepared statements on the connection: Sequelize takes more time than SQLite itself, because it copies and names each
 * value, and makes the text of a stack for each statement.
 */
export class SqliteWork extends TransactionWork {
  readonly dialect = 'sqlite';
  readonly #transaction: { connection: SqliteDatabase; finished?: string };

  constructor(transaction: SequelizeTransaction, effects: Effects) {
    super(effects);
    this.#transaction = transaction as unknown as { connection: SqliteDatabase };
  }

  async select<T extends object = Row>(sql: string, values: readonly Value[] = []): Promise<T[]> {
    await pauseTransaction();
    return wrapped(sql, () => this.#connection.select(sql, values)) as T[];
  }

  /** Throws after the end of the transaction: the connection then belongs to another one. */
  get #connection(): SqliteDatabase {
    if (this.#transaction.finished === undefined) return this.#transaction.connection;
    throw new Error('this transaction has ended');
  }

  async insertNew(table: string, rows: readonly Row[]): Promise<number> {
    return rows.length === 0 ? 0 : this.#insertEach(table, rows, 'ON CONFLICT DO NOTHING');
  }

  async upsert(table: string, key: readonly string[], rows: readonly Row[], update: string): Promise<void> {
    if (rows.length === 0) return;
    const change = update.replace(/\bnew\.(\w+)/g, 'excluded.$1');
    await this.#insertEach(table, rows, `ON CONFLICT (${key.join(', ')}) DO UPDATE SET ${change}`);
  }

  async #insertEach(table: string, rows: readonly Row[], tail: string): Promise<number> {
    this.noteWrite(table);
    const sql = `INSERT INTO ${table} ${valuesOf(rows.slice(0, 1))} ${tail}`;
    let inserted = 0;
    for (const [index, row] of rows.entries()) {
      // SQLite runs a statement at once, so that a loop of statements would hold the event loop.
      if (index % rowsOfTurn === 0) await pauseTransaction();
      inserted += wrapped(sql, () => this.#connection.change(sql, Object.values(row))).changes;
    }
    return inserted;
  }

  protected async execute(sql: string, values: readonly Value[]): Promise<{ changes: number; lastId: number }> {
    this.noteWrite(tableWritten(sql));
    await pauseTransaction();
    return wrapped(sql, () => this.#connection.change(sql, values));
  }
}

/** What `run` returns. Its errors are those that Sequelize would throw. */
function wrapped<T>(sql: string, run: () => T): T {
  try {
    return run();
  } catch (error) {
    throw new DatabaseError(Object.assign(error as Error, { sql }));
  }
}

/** On MySQL, through Sequelize. */
export class MysqlWork extends TransactionWork {
  readonly dialect = 'mysql';
  readonly #sequelize: Sequelize;
  readonly #transaction: SequelizeTransaction;

  constructor(sequelize: Sequelize, transaction: SequelizeTransaction, effects: Effects) {
    super(effects);
    this.#sequelize = sequelize;
    this.#transaction = transaction;
  }

  select<T extends object = Row>(sql: string, values: readonly Value[] = []): Promise<T[]> {
    return select<T>(this.#sequelize, sql, values, this.#transaction);
  }

  async insertNew(table: string, rows: readonly Row[]): Promise<number> {
    if (rows.length === 0) return 0;
    // MySQL does not count a row whose assignment changes nothing. INSERT IGNORE would also hide errors other than a
    // duplicate key.
    const [first] = Object.keys(rows[0]!);
    const tail = `ON DUPLICATE KEY UPDATE ${first} = ${first}`;
    return (await this.#insertAll(table, rows, tail)).changes;
  }

  async upsert(table: string, _key: readonly string[], rows: readonly Row[], update: string): Promise<void> {
    if (rows.length === 0) return;
    await this.#insertAll(table, rows, `ON DUPLICATE KEY UPDATE ${update.replace(/\bnew\.(\w+)/g, 'VALUES($1)')}`);
  }

  #insertAll(table: string, rows: readonly Row[], tail: string): Promise<{ changes: number; lastId: number }> {
    const values = rows.flatMap((row) => Object.values(row));
    return this.execute(`INSERT INTO ${table} ${valuesOf(rows)} ${tail}`, values);
  }

  protected async execute(sql: string, values: readonly Value[]): Promise<{ changes: number; lastId: number }> {
    this.noteWrite(tableWritten(sql));
    const [first, second] = (await this.#sequelize.query(numberPlaceholders(sql), {
      bind: [...values],
      raw: true,
      transaction: this.#transaction,
    })) as unknown as [unknown, number | StatementResult];
    // Sequelize returns [insertId, affectedRows] for a plain INSERT, and [rows, result] for all others.
    if (typeof second === 'number') return { changes: second, lastId: Number(first) };
    return { changes: matchedRows(second) ?? second.affectedRows ?? 0, lastId: 0 };
  }
}

interface StatementResult {
  affectedRows?: number;
  info?: string;
}

/**
 * MySQL's `affectedRows` leaves out rows that already had the new values; "Rows matched: 1  Changed: 0" counts them.
 */
function matchedRows({ info }: StatementResult): number | undefined {
  const first = /\d+/.exec(info ?? '');
  return first ? Number(first[0]) : undefined;
}

function valuesOf(rows: readonly Row[]): string {
  const columns = Object.keys(rows[0]!);
  const one = `(${columns.map(() => '?').join(', ')})`;
  return `(${columns.join(', ')}) VALUES ${rows.map(() => one).join(', ')}`;
}
