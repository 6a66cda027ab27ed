import type { Sequelize, Transaction as SequelizeTransaction } from 'sequelize';
import type { Row, Value } from './database.ts';
import { tableWritten } from './statement-tables.ts';
import { TransactionWork, valuesClause, type Effects } from './transaction-work.ts';

const numberedStatements = new Map<string, string>();

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
    return this.execute(`INSERT INTO ${table} ${valuesClause(rows)} ${tail}`, values);
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
