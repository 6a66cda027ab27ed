import type { Database } from '../database/database.ts';

/** Bytes that rows of one account take in the database itself. */
export interface RowBytes {
  account_id: number;
  bytes: number;
}

/** Statements that walk a table by its `id`. */
export interface RowSums {
  /** Selects `count` and `last`, the number and the last id of up to `?` rows whose id is greater than `?`. */
  last: string;
  /** Selects `account_id` and `bytes` of the rows with `id > ? AND id <= ?`. */
  sum: string;
}

/** The sums of a table, `step` rows at a time, so that one statement takes milliseconds however large the table is. */
export async function* sumByPage(database: Database, step: number, { last, sum }: RowSums): AsyncGenerator<RowBytes[]> {
  for (let after = 0; ;) {
    const page = await database.get<{ count: number; last: number | null }>(last, [after, step]);
    if (!page?.last) return;
    yield await database.select<RowBytes>(sum, [after, page.last]);
    if (page.count < step) return;
    after = page.last;
  }
}
