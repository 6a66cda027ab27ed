import { placeholders, type Database, type Transaction } from '../../database/database.ts';
import type { Driver } from '../drivers/driver.ts';
import type { BlobRow, DeletionTimes } from './states.ts';

export interface Removed {
  /** Blobs that are removed. */
  rows: BlobRow[];
  /** Errors of failed deletions of bytes. Their rows stay `deleting`. */
  failures: unknown[];
}

/** Concurrent deletions. */
const atOnce = 16;

/**
 * Removes unreferenced blobs: marks the rows that `choose` has locked, deletes their bytes outside of any transaction,
 * then removes the rows. If it is interrupted, the rows stay `deleting`, and another process takes them over later.
 */
export async function removeBlobs(
  database: Database,
  driver: Driver,
  { beginWithin, takeOverAfter, watch, now, processes }: DeletionTimes,
  choose: (tx: Transaction) => Promise<BlobRow[]>,
): Promise<Removed> {
  let [markedAt, markedTime] = [0, 0];
  const marked = await database.transaction(async (tx) => {
    const rows = await choose(tx);
    // Read before the mark is written, so that no other process measures an earlier time.
    [markedAt, markedTime] = [watch(), now()];
    if (rows.length > 0) {
      const digests = rows.map(({ digest }) => digest);
      const mark = `UPDATE blobs SET state = 'deleting', deleted_by = ?, deleted_generation = generation
        WHERE digest IN (${placeholders(digests)})`;
      await tx.run(mark, [processes?.().id ?? null, ...digests]);
    }
    return rows;
  });
  // Of the two clocks, the one that shows more: a clock that was set forward only ends the work early.
  const sinceMark = () => Math.max(watch() - markedAt, now() - markedTime);
  const mayRepeat = () => sinceMark() < takeOverAfter / 2;
  const removed: Removed = { rows: [], failures: [] };
  for (let start = 0; start < marked.length; start += atOnce) {
    // Another process may soon take over the rest and put the bytes again.
    if (sinceMark() >= beginWithin) break;
    const deleteBytes = async (row: BlobRow) => {
      try {
        await driver.delete(row.digest, mayRepeat);
        removed.rows.push(row);
      } catch (error) {
        removed.failures.push(error);
      }
    };
    await Promise.all(marked.slice(start, start + atOnce).map(deleteBytes));
  }
  await forget(database, removed.rows);
  return removed;
}

/** Keeps a row that was taken over meanwhile: it has another generation. After a power failure, a removed row may be back. */
async function forget(database: Database, rows: readonly BlobRow[]): Promise<void> {
  if (rows.length === 0) return;
  const sql = `DELETE FROM blobs WHERE state = 'deleting' AND digest IN (${placeholders(rows)})
    AND generation IN (${placeholders(rows)})`;
  const values = [...rows.map(({ digest }) => digest), ...rows.map(({ generation }) => generation)];
  await database.transaction((tx) => tx.run(sql, values), { fleeting: true });
}
