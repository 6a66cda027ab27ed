import type { Database } from '../../database/database.ts';
import type { Instances } from '../../instances/instances.ts';
import type { BlobStore } from '../../storage/blobs/blob-store.ts';

/**
 * Deletes the sessions whose data folder no live instance has: those that are lost, and those that were not changed since
 * `before`. Resolves to their number. Their bytes no longer count for the account.
 */
export async function dropLostUploads(database: Database, instances: Instances, before: number): Promise<number> {
  const live = await instances.live();
  const folders = new Set([instances.folder, ...live.map(({ folder }) => folder)]);
  const rows = await database.select<{ folder: string }>(
    'SELECT DISTINCT folder FROM uploads WHERE (updated_at < ? OR lost = 1) AND folder IS NOT NULL',
    [before],
  );
  let dropped = 0;
  for (const { folder } of rows.filter((each) => !folders.has(each.folder))) {
    const sql = 'DELETE FROM uploads WHERE folder = ? AND (updated_at < ? OR lost = 1)';
    dropped += await database.transaction((tx) => tx.run(sql, [folder, before]));
  }
  return dropped;
}

/** The sessions of a data folder that were not changed since `before` and have no staged file. */
export async function withoutFile(
  database: Database,
  blobs: BlobStore,
  folder: string,
  before: number,
): Promise<string[]> {
  // Rejects if the disk is not there.
  const staged = new Set(await blobs.stagedIds());
  const sql = 'SELECT id FROM uploads WHERE lost = 0 AND folder = ? AND updated_at < ?';
  const sessions = await database.select<{ id: string }>(sql, [folder, before]);
  return sessions.map(({ id }) => id).filter((id) => !staged.has(id));
}

/**
 * Removes the staged files of this data folder that were not changed since `before` and have no session; resolves to their
 * number and size. Each instance does it, because it cannot see the files of others.
 */
export function dropStagedFiles(
  database: Database,
  blobs: BlobStore,
  before: number,
): Promise<{ files: number; bytes: number }> {
  const isSession = async (id: string) =>
    (await database.get('SELECT id FROM uploads WHERE id = ?', [id])) !== undefined;
  return blobs.expireStaged(before, isSession);
}
