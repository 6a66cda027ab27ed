import { accountsWithBills } from '../accounts/wanted-bills.ts';
import { batches } from '../database/batches.ts';
import { placeholders, type Database, type Transaction } from '../database/database.ts';
import { afterKey } from '../database/tables.ts';

/** Content that a job of a CI pushed. */
export interface ObservedPush {
  contentId: string;
  userId: string;
  /** Milliseconds since 1970 UTC. */
  pushedAt: number;
}

/** The pushes of jobs whose content gets a bill of materials. Each waits until its bill is made or given up. */
export class ObservedPushes {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Up to `limit` pushes until a time that wait, the oldest first, after `after`. */
  async waiting(until: number, limit: number, after?: ObservedPush): Promise<ObservedPush[]> {
    const { pushedAt = -1, contentId = '', userId = '' } = after ?? {};
    const rest = afterKey(this.#database, ['pushed_at', 'content_id', 'user_id'], [pushedAt, contentId, userId]);
    return this.#database.select<ObservedPush>(
      `SELECT content_id AS contentId, user_id AS userId, pushed_at AS pushedAt FROM observed_pushes
       WHERE is_due = 1 AND pushed_at <= ? AND ${rest.sql} ORDER BY pushed_at, content_id, user_id LIMIT ?`,
      [until, ...rest.values, limit],
    );
  }

  /** Ends the waiting of a push. Resolves to whether it waited until now, which is true for one instance only. */
  async end(tx: Transaction, { contentId, userId }: ObservedPush): Promise<boolean> {
    const sql = 'UPDATE observed_pushes SET is_due = 0 WHERE content_id = ? AND user_id = ? AND is_due = 1';
    return (await tx.run(sql, [contentId, userId])) > 0;
  }
}

/** Notes pushes of jobs, where their account wants bills. The second push of the same content by one job is not noted. */
export async function notePushes(
  tx: Transaction,
  pushes: readonly (ObservedPush & { accountId: number })[],
): Promise<void> {
  if (pushes.length === 0) return;
  const wanted = await accountsWithBills(tx, [...new Set(pushes.map(({ accountId }) => accountId))]);
  const rows = pushes
    .filter(({ accountId }) => wanted.has(accountId))
    // In one order, so that concurrent writers do not deadlock.
    .toSorted((one, other) => (one.contentId + one.userId < other.contentId + other.userId ? -1 : 1))
    .map(({ contentId, userId, pushedAt }) => ({
      content_id: contentId,
      user_id: userId,
      pushed_at: pushedAt,
      is_due: 1,
    }));
  for (const some of batches(rows)) await tx.insertNew('observed_pushes', some);
}

/** Deletes the pushes of those of the contents that are not known any more. */
export async function forgetPushes(tx: Transaction, contentIds: readonly string[]): Promise<void> {
  const known = '(SELECT 1 FROM pull_contents c WHERE c.id = observed_pushes.content_id)';
  const sql = `DELETE FROM observed_pushes WHERE content_id IN (${placeholders(contentIds)}) AND NOT EXISTS ${known}`;
  await tx.run(sql, [...contentIds]);
}
