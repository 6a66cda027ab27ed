import { pauseTransaction } from '../runtime/event-loop.ts';
import type { Row, Value } from './database.ts';
import type { Connection } from './sqlite.ts';
import { tableWritten } from './statement-tables.ts';
import { TransactionWork, valuesClause, type Effects } from './transaction-work.ts';

/** Rows that are inserted without a pause. */
const rowsOfTurn = 50;

/** The statements of one transaction on SQLite, kept prepared by its connection. */
export class SqliteWork extends TransactionWork {
  readonly dialect = 'sqlite';
  readonly #own: Connection;
  #hasEnded = false;

  constructor(connection: Connection, effects: Effects) {
    super(effects);
    this.#own = connection;
  }

  /** To be called before the end of the transaction: its connection then belongs to another one. */
  end(): void {
    this.#hasEnded = true;
  }

  async select<T extends object = Row>(sql: string, values: readonly Value[] = []): Promise<T[]> {
    await pauseTransaction();
    return named(sql, () => this.#connection.select(sql, values)) as T[];
  }

  get #connection(): Connection {
    if (!this.#hasEnded) return this.#own;
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
    const sql = `INSERT INTO ${table} ${valuesClause(rows.slice(0, 1))} ${tail}`;
    let inserted = 0;
    for (const [index, row] of rows.entries()) {
      // SQLite runs a statement at once, so that a loop of statements would hold the event loop.
      if (index % rowsOfTurn === 0) await pauseTransaction();
      inserted += named(sql, () => this.#connection.change(sql, Object.values(row))).changes;
    }
    return inserted;
  }

  protected async execute(sql: string, values: readonly Value[]): Promise<{ changes: number; lastId: number }> {
    this.noteWrite(tableWritten(sql));
    await pauseTransaction();
    return named(sql, () => this.#connection.change(sql, values));
  }
}

/** What `run` returns. Its errors have the statement, for the log. */
function named<T>(sql: string, run: () => T): T {
  try {
    return run();
  } catch (error) {
    throw Object.assign(error as Error, { sql });
  }
}
