import { LRUCache } from 'lru-cache';

type Row = object | undefined;

/** Rows that were read while nothing was written. */
export class KeptRows {
  readonly #rows = new LRUCache<string, Promise<Row>>({ max: 10_000 });
  #mark: string | undefined;

  /** The row under `key`, or what `read` finds, which must begin after `mark` was known. */
  get(mark: string, key: string, read: () => Promise<Row>): Promise<Row> {
    if (mark !== this.#mark) {
      this.#rows.clear();
      this.#mark = mark;
    }
    const known = this.#rows.get(key);
    if (known) return known;
    const row = read();
    this.#rows.set(key, row);
    row.catch(() => this.#rows.delete(key));
    return row;
  }
}
