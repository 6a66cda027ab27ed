import { pagesOf } from '../runtime/pages.ts';
import type { Database } from '../database/database.ts';

/** Webhooks that one statement reads. */
const page = 200;

/** `columns` of all webhooks that are not deleted, some at a time, so that many webhooks hold no other work. */
export async function* webhooksIn<Columns extends object = object>(
  database: Database,
  columns: string,
): AsyncGenerator<Columns & { id: string }> {
  const sql = `SELECT ${columns} FROM webhooks WHERE id > ? AND deleted_at IS NULL ORDER BY id LIMIT ${page}`;
  const read = (after: string) => database.select<Columns & { id: string }>(sql, [after]);
  for await (const rows of pagesOf('', page, read, ({ id }) => id)) yield* rows;
}
