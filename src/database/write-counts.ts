import type { Tables } from './statement-tables.ts';

/** Counts the writes of this process to each table. */
export class WriteCounts {
  readonly #tables = new Map<string, number>();
  /** Writes to tables that are not known. */
  #unknown = 0;
  #all = 0;

  /** Counts a write to `tables`, or to any table if they are undefined. */
  add(tables: Tables): void {
    this.#all += 1;
    if (!tables) this.#unknown += 1;
    else for (const table of tables) this.#tables.set(table, this.#all);
  }

  /** Changes after each write to one of `tables`, or to any table if they are undefined. */
  of(tables: Tables): string {
    if (!tables) return String(this.#all);
    let text = String(this.#unknown);
    for (const table of tables) text += ` ${this.#tables.get(table) ?? 0}`;
    return text;
  }
}
