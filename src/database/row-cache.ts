import { LRUCache } from 'lru-cache';
import { tablesRead, type Tables } from './statement-tables.ts';

type Rows = readonly object[];

/** Most cached results. When there are more, all are dropped, as after a write. */
const maxResults = 10_000;
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
}

/** Rows of queries, cached until the next write to one of their tables. */
export class RowCache {
  /** By statement, then by values: one key of both would be a long string to build and hash for each request. */
  readonly #statements = new Map<string, Cached>();
  readonly #tables = new LRUCache<string, { read: Tables }>({ max: maxStatements });
  #count = 0;

  /**
   * The cached rows of `sql` with `values`, otherwise those of `read`, which must not start before `versions` were read.
   */
  get(versions: Versions, sql: string, values: readonly unknown[], read: () => Promise<Rows>): Promise<Rows> {
    if (this.#count >= maxResults) {
      this.#statements.clear();
      this.#count = 0;
    }
    const version = versions.of(this.#tablesOf(sql));
    let cached = this.#statements.get(sql);
    if (cached?.version !== version) {
      this.#count -= cached?.rows.size ?? 0;
      this.#statements.set(sql, (cached = { version, rows: new Map() }));
    }
    const { rows } = cached;
    const key = JSON.stringify(values);
    const known = rows.get(key);
    if (known) return known;
    const found = read();
    rows.set(key, found);
    this.#count += 1;
    found.catch(() => {
      if (rows.delete(key) && this.#statements.get(sql)?.rows === rows) this.#count -= 1;
    });
    return found;
  }

  #tablesOf(sql: string): Tables {
    let known = this.#tables.get(sql);
    if (!known) this.#tables.set(sql, (known = { read: tablesRead(sql) }));
    return known.read;
  }
}
