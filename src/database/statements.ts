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

/** Runs the statements of one transaction through Sequelize. */
export class SequelizeWork implements Transaction {
  readonly dialect: Dialect;
  readonly #sequelize: Sequelize;
  readonly #transaction: SequelizeTransaction;
  readonly #effects: Effects;

  constructor(sequelize: Sequelize, transaction: SequelizeTransaction, dialect: Dialect, effects: Effects) {
    this.#sequelize = sequelize;
    this.#transaction = transaction;
    this.dialect = dialect;
    this.#effects = effects;
  }

  async select<T extends object = Row>(sql: string, values: readonly Value[] = []): Promise<T[]> {
    await this.#pause();
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
    if (this.dialect === 'sqlite') return this.#insertEach(table, rows, 'ON CONFLICT DO NOTHING');
    // MySQL does not count a row whose assignment changes nothing. INSERT IGNORE would also hide errors other than a
    // duplicate key.
    const [first] = Object.keys(rows[0]!);
    const tail = `ON DUPLICATE KEY UPDATE ${first} = ${first}`;
    const values = rows.flatMap((row) => Object.values(row));
    return (await this.#execute(`INSERT INTO ${table} ${valuesOf(rows)} ${tail}`, values)).changes;
  }

  async upsert(table: string, key: readonly string[], rows: readonly Row[], update: string): Promise<void> {
    if (rows.length === 0) return;
    if (this.dialect === 'sqlite') {
      const change = update.replace(/\bnew\.(\w+)/g, 'excluded.$1');
      await this.#insertEach(table, rows, `ON CONFLICT (${key.join(', ')}) DO UPDATE SET ${change}`);
      return;
    }
    const tail = `ON DUPLICATE KEY UPDATE ${update.replace(/\bnew\.(\w+)/g, 'VALUES($1)')}`;
    const values = rows.flatMap((row) => Object.values(row));
    await this.#execute(`INSERT INTO ${table} ${valuesOf(rows)} ${tail}`, values);
  }

  /**
   * Inserts rows into SQLite, by one prepared statement for each row. Sequelize takes many times as long, because it copies and
   * names each value of a statement.
   */
  async #insertEach(table: string, rows: readonly Row[], tail: string): Promise<number> {
    this.#noteWrite(table);
    const sql = `INSERT INTO ${table} ${valuesOf(rows.slice(0, 1))} ${tail}`;
    const { connection } = this.#transaction as unknown as { connection: Pick<SqliteDatabase, 'insert'> };
    let inserted = 0;
    for (const [index, row] of rows.entries()) {
      if (index % rowsOfTurn === 0) await this.#pause();
      try {
        inserted += connection.insert(sql, Object.values(row));
      } catch (error) {
        throw new DatabaseError(Object.assign(error as Error, { sql }));
      }
    }
    return inserted;
  }

  #noteWrite(table: string | undefined): void {
    this.#effects.wrote = true;
    if (table === undefined) this.#effects.tables = undefined;
    else this.#effects.tables?.add(table);
  }

  /** SQLite runs a statement at once, so that a loop of statements would hold the event loop. */
  #pause(): Promise<void> | undefined {
    return this.dialect === 'sqlite' ? pauseTransaction() : undefined;
  }

  async #execute(sql: string, values: readonly Value[]): Promise<{ changes: number; lastId: number }> {
    this.#noteWrite(tableWritten(sql));
    await this.#pause();
    const [first, second] = (await this.#sequelize.query(numberPlaceholders(sql), {
      bind: [...values],
      raw: true,
      transaction: this.#transaction,
    })) as unknown as [unknown, number | StatementResult];
    // Sequelize returns [insertId, affectedRows] for a plain INSERT on MySQL, and [rows, result] for all others.
    if (typeof second === 'number') return { changes: second, lastId: Number(first) };
    return { changes: second.changes ?? matchedRows(second) ?? second.affectedRows ?? 0, lastId: second.lastID ?? 0 };
  }
}

interface StatementResult {
  changes?: number;
  affectedRows?: number;
  info?: string;
  lastID?: number;
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
