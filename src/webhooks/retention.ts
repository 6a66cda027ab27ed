import { pagesOf } from '../runtime/pages.ts';
import { placeholders, type Database } from '../database/database.ts';
import { webhooksIn } from './webhook-rows.ts';

/** Rows that one statement deletes. */
const batch = 200;
/** Milliseconds that deliveries are kept. */
const keep = 14 * 86_400_000;
/** The latest deliveries of a webhook that are kept, whatever happened to them. Older ones are kept while they wait. */
const maxKept = 100_000;

/** No cached read uses these rows, and it does no harm if deleted ones come back after a power failure. */
const options = { fleeting: true };

interface RetentionParts {
  database: Database;
  /** Milliseconds since 1970. */
  time: number;
  /** Ends the work between two statements. */
  stop: AbortSignal;
}

/** Deletes the deliveries that are too old or too many, and those of deleted webhooks. */
export async function deleteOldDeliveries({ database, time, stop }: RetentionParts): Promise<void> {
  const rows = new Rows(database, stop);
  await rows.delete('created_at < ?', time - keep, 'created_at');
  for (;;) {
    const sql = 'SELECT id FROM webhooks WHERE deleted_at IS NOT NULL LIMIT 1';
    const gone = await database.get<{ id: string }>(sql);
    if (!gone) break;
    await rows.delete('webhook_id = ?', gone.id, 'number');
    if (stop.aborted) return;
    await database.transaction(
      (tx) => tx.run('DELETE FROM webhooks WHERE id = ? AND deleted_at IS NOT NULL', [gone.id]),
      options,
    );
  }
  for await (const { id } of webhooksIn(database, 'id')) {
    if (stop.aborted) return;
    await rows.deleteBeyond(id);
  }
}

class Rows {
  readonly #database: Database;
  readonly #stop: AbortSignal;

  constructor(database: Database, stop: AbortSignal) {
    this.#database = database;
    this.#stop = stop;
  }

  /** Deletes all rows that match, in the order of an index. */
  async delete(condition: string, value: string | number, order: string): Promise<void> {
    const sql = `SELECT number FROM webhook_deliveries WHERE ${condition} ORDER BY ${order} LIMIT ${batch}`;
    while (!this.#stop.aborted) {
      const rows = await this.#database.select<{ number: number }>(sql, [value]);
      await this.#remove(rows);
      if (rows.length < batch) return;
    }
  }

  /** Deletes the deliveries of a webhook that wait no more, except the latest. */
  async deleteBeyond(webhookId: string): Promise<void> {
    const last = await this.#database.get<{ number: number }>(
      `SELECT number FROM webhook_deliveries WHERE webhook_id = ? ORDER BY number DESC LIMIT 1 OFFSET ${maxKept}`,
      [webhookId],
    );
    if (!last) return;
    const read = (after: number) =>
      this.#database.select<{ number: number; state: string }>(
        `SELECT number, state FROM webhook_deliveries WHERE webhook_id = ? AND number > ? AND number <= ?
         ORDER BY number LIMIT ${batch}`,
        [webhookId, after, last.number],
      );
    for await (const rows of pagesOf(0, batch, read, ({ number }) => number)) {
      if (this.#stop.aborted) return;
      await this.#remove(rows.filter(({ state }) => state !== 'pending'));
    }
  }

  async #remove(rows: readonly { number: number }[]): Promise<void> {
    if (rows.length === 0) return;
    const numbers = rows.map(({ number }) => number);
    const sql = `DELETE FROM webhook_deliveries WHERE number IN (${placeholders(numbers)})`;
    await this.#database.transaction((tx) => tx.run(sql, numbers), options);
  }
}
