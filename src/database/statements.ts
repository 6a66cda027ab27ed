import type { Sequelize, Transaction as SequelizeTransaction } from 'sequelize';
import type { Dialect, Row, Transaction, Value } from './database.ts';
import { tableWritten } from './statement-tables.ts';

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
    // MySQL does not count a row whose assignment changes nothing. INSERT IGNORE would also hide errors other than a
    // duplicate key.
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

  async #execute(sql: string, values: readonly Value[]): Promise<{ changes: number; lastId: number }> {
    this.#effects.wrote = true;
    const table = tableWritten(sql);
    if (table === undefined) this.#effects.tables = undefined;
    else this.#effects.tables?.add(table);
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
