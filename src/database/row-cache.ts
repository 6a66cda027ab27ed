type Rows = readonly object[];

/** Most cached results. When there are more, all are dropped, as after a write. */
const maxResults = 10_000;

/** Rows of queries, cached until the next write. */
export class RowCache {
  /** By statement, then by values: one key of both would be a long string to build and hash for each request. */
  readonly #rows = new Map<string, Map<string, Promise<Rows>>>();
  #count = 0;
  #version: string | undefined;

  /**
   * The cached rows of `sql` with `values`, otherwise those of `read`, which must not start before `version` was read.
   */
  get(version: string, sql: string, values: readonly unknown[], read: () => Promise<Rows>): Promise<Rows> {
    if (version !== this.#version || this.#count >= maxResults) {
      this.#rows.clear();
      this.#count = 0;
      this.#version = version;
    }
    let rows = this.#rows.get(sql);
    if (!rows) this.#rows.set(sql, (rows = new Map()));
    const key = JSON.stringify(values);
    const cached = rows.get(key);
    if (cached) return cached;
    const found = read();
    rows.set(key, found);
    this.#count += 1;
    found.catch(() => rows.delete(key));
    return found;
  }
}
