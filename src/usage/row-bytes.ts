import type { Database } from '../database/database.ts';

/** Bytes that the rows of one account use in the database. */
export interface RowBytes {
  account_id: number;
  bytes: number;
}

/** Statements that read a table page by page, by `id`. */
interface RowSums {
  /** With parameters `after` and `limit`: selects `count` and `last`, the number and the last id of the next rows after `after`. */
  last: string;
  /** Selects `account_id` and `bytes` of the rows with `id > ? AND id <= ?`. */
  sum: string;
}

/** The sums of a table, `step` rows at a time, so that each statement takes milliseconds for a table of any size. */
export async function* sumByPage(database: Database, step: number, { last, sum }: RowSums): AsyncGenerator<RowBytes[]> {
  for (let after = 0; ;) {
    const page = await database.get<{ count: number; last: number | null }>(last, [after, step]);
    if (!page?.last) return;
    yield await database.select<RowBytes>(sum, [after, page.last]);
    if (page.count < step) return;
    after = page.last;
  }
}
