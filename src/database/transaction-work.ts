import type { Dialect, Row, Transaction, Value } from './database.ts';

/** What a transaction did. */
export interface Effects {
  wrote: boolean;
  /** The written tables; undefined if one is not known. */
  tables: Set<string> | undefined;
}

/** The statements of one transaction. */
export abstract class TransactionWork implements Transaction {
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
    return (await this.execute(`INSERT INTO ${table} ${valuesClause([row])}`, Object.values(row))).lastId;
  }

  protected noteWrite(table: string | undefined): void {
    this.#effects.wrote = true;
    if (table === undefined) this.#effects.tables = undefined;
    else this.#effects.tables?.add(table);
  }
}

/** `(a, b) VALUES (?, ?), …` for an INSERT of `rows`, which have the same columns. */
export function valuesClause(rows: readonly Row[]): string {
  const columns = Object.keys(rows[0]!);
  const one = `(${columns.map(() => '?').join(', ')})`;
  return `(${columns.join(', ')}) VALUES ${rows.map(() => one).join(', ')}`;
}
