import { placeholders, type Database, type Queryable, type Transaction } from '../database/database.ts';
import type { Pace } from '../storage/pace.ts';

/** The size that an upstream's document states for content that may not be stored yet. */
export interface StatedSize {
  /** The ID of the entry that the content gets. */
  id: string;
  size: number;
}

/** Rows in one statement. */
const batch = 200;
/** Without a row, a fetch looks into the documents again; milliseconds. */
const keptFor = 30 * 86_400_000;

/** Writes sizes in the transaction that stores their document. Those of the latest document count. */
export async function writeSizes(tx: Transaction, sizes: readonly StatedSize[], now: number): Promise<void> {
  const rows = sizes.map(({ id, size }) => ({ id, size_bytes: size, stated_at: now }));
  for (let start = 0; start < rows.length; start += batch) {
    const update = 'size_bytes = new.size_bytes, stated_at = new.stated_at';
    await tx.upsert('mirror_sizes', ['id'], rows.slice(start, start + batch), update);
  }
}

/** The stated size of the content that gets the entry `id`. */
export async function findSize(from: Queryable, id: string): Promise<number | undefined> {
  const row = await from.get<{ size: number }>('SELECT size_bytes AS size FROM mirror_sizes WHERE id = ?', [id]);
  return row?.size;
}

/** Deletes what was stated a month before `now`; milliseconds since 1970 UTC. */
export async function deleteOldSizes(database: Database, now: number, pace: Pace): Promise<void> {
  for (;;) {
    const rows = await database.select<{ id: string }>(
      `SELECT id FROM mirror_sizes WHERE stated_at < ? ORDER BY stated_at LIMIT ${batch}`,
      [now - keptFor],
    );
    if (rows.length === 0) return;
    const ids = rows.map(({ id }) => id);
    await database.transaction((tx) => tx.run(`DELETE FROM mirror_sizes WHERE id IN (${placeholders(ids)})`, ids));
    await pace.step();
  }
}
