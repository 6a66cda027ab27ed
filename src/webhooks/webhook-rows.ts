import type { Database } from '../database/database.ts';

/** Webhooks that one statement reads. */
const page = 200;

/** `columns` of all webhooks that are not deleted, some at a time, so that many webhooks hold no other work. */
export async function* webhooksIn<Columns extends object = object>(
  database: Database,
  columns: string,
): AsyncGenerator<Columns & { id: string }> {
  for (let after = ''; ;) {
    const rows = await database.select<Columns & { id: string }>(
      `SELECT ${columns} FROM webhooks WHERE id > ? AND deleted_at IS NULL ORDER BY id LIMIT ${page}`,
      [after],
    );
    yield* rows;
    if (rows.length < page) return;
    after = rows.at(-1)!.id;
  }
}
