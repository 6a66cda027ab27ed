type Rows = readonly object[];

/** Results that are kept; when there are more, all are forgotten, as after a write. */
const most = 10_000;

/** Rows that were read while nothing was written. */
export class RowCache {
  /** By statement and then by values: one key of both would be a long text that is made and hashed for each request. */
  readonly #rows = new Map<string, Map<string, Promise<Rows>>>();
  #count = 0;
  #mark: string | undefined;

  /** The rows that `sql` has for `values`, or what `read` finds, which must begin after `mark` was known. */
  get(mark: string, sql: string, values: readonly unknown[], read: () => Promise<Rows>): Promise<Rows> {
    if (mark !== this.#mark || this.#count >= most) {
      this.#rows.clear();
      this.#count = 0;
      this.#mark = mark;
    }
    let rows = this.#rows.get(sql);
    if (!rows) this.#rows.set(sql, (rows = new Map()));
    const key = JSON.stringify(values);
    const known = rows.get(key);
    if (known) return known;
    const found = read();
    rows.set(key, found);
    this.#count += 1;
    found.catch(() => rows.delete(key));
    return found;
  }
}
