import { tablesRead, type Tables } from './statement-tables.ts';
import { Recent } from '../runtime/recent.ts';

type Rows = readonly object[];

/** Most cached results, and bytes of memory for them. When there are more, all are dropped, as after a write. */
const maxResults = 10_000;
const maxBytes = 24 * 2 ** 20;
/** Bytes of memory of one result without its texts, as measured: its promise, list and row, and its place in the map. */
const bytesOfResult = 1000;
/** Statements whose tables are kept in memory. */
const maxStatements = 2000;

/** The state of the database when a read starts. */
export interface Versions {
  /** Changes after each write to one of `tables`, or to any table if they are undefined. */
  of(tables: Tables): string;
}

/** Rows of one statement, by its values. */
interface Cached {
  version: string;
  rows: Map<string, Promise<Rows>>;
  bytes: number;
}

/** Rows of queries, cached until the next write to one of their tables. */
export class RowCache {
  /** By statement, then by values: one key of both would be a long string to build and hash for each request. */
  readonly #statements = new Map<string, Cached>();
  readonly #tables = new Recent<string, { read: Tables }>(maxStatements);
  #count = 0;
  #bytes = 0;

  /**
   * The cached rows of `sql` with `values`, otherwise those of `read`, which must not start before `versions` were read.
   */
  get(versions: Versions, sql: string, values: readonly unknown[], read: () => Promise<Rows>): Promise<Rows> {
    if (this.#count >= maxResults || this.#bytes > maxBytes) {
      this.#statements.clear();
      this.#count = 0;
      this.#bytes = 0;
    }
    const version = versions.of(this.#tablesOf(sql));
    let cached = this.#statements.get(sql);
    if (cached?.version !== version) {
      this.#count -= cached?.rows.size ?? 0;
      this.#bytes -= cached?.bytes ?? 0;
      this.#statements.set(sql, (cached = { version, rows: new Map(), bytes: 0 }));
    }
    const statement = cached;
    const { rows } = statement;
    const key = JSON.stringify(values);
    const known = rows.get(key);
    if (known) return known;
    const found = read();
    rows.set(key, found);
    this.#count += 1;
    found.then(
      (read) => this.#add(sql, statement, bytesOf(key, read)),
      () => {
        if (rows.delete(key) && this.#statements.get(sql) === statement) this.#count -= 1;
      },
    );
    return found;
  }

  #add(sql: string, statement: Cached, bytes: number): void {
    if (this.#statements.get(sql) !== statement) return;
    statement.bytes += bytes;
    this.#bytes += bytes;
  }

  #tablesOf(sql: string): Tables {
    let known = this.#tables.get(sql);
    if (!known) this.#tables.set(sql, (known = { read: tablesRead(sql) }));
    return known.read;
  }
}

function bytesOf(key: string, rows: Rows): number {
  let bytes = bytesOfResult + key.length;
  for (const row of rows)
    for (const value of Object.values(row) as unknown[]) if (typeof value === 'string') bytes += 2 * value.length;
  return bytes;
}
