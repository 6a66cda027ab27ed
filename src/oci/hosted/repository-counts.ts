import { pagesOf } from '../../runtime/pages.ts';
import { placeholders, type Database, type Queryable, type Transaction } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { Pace } from '../../storage/upkeep/pace.ts';
import { sizeOf } from '../../storage/blobs/sizes.ts';
import { lockRepository } from './repositories.ts';

/** What a repository has: columns of its row, which the transactions that change its content keep. */
interface RepositoryCounts {
  tags: number;
  manifests: number;
  /** The bytes of distinct manifests and blobs. */
  bytes: number;
}

/** Repositories that one statement checks. */
const page = 20;

/** Adds to the counts of a repository, or subtracts from them. */
export async function addRepositoryCounts(
  tx: Transaction,
  repositoryId: number,
  { tags = 0, manifests = 0, bytes = 0 }: Partial<RepositoryCounts>,
): Promise<void> {
  if (tags === 0 && manifests === 0 && bytes === 0) return;
  await tx.run(
    `UPDATE repositories SET tag_count = tag_count + ?, manifest_count = manifest_count + ?, size_bytes = size_bytes + ?
     WHERE id = ?`,
    [tags, manifests, bytes, repositoryId],
  );
}

/** Whether the repository has this blob. Then the bytes of a manifest with the same digest are counted already. */
export async function isLinked(tx: Queryable, repositoryId: number, digest: Digest): Promise<boolean> {
  const sql = 'SELECT digest FROM repository_blobs WHERE repository_id = ? AND digest = ?';
  return (await tx.get(sql, [repositoryId, digest])) !== undefined;
}

/** The bytes of blobs of the repository, without those that are manifests of it too. */
export async function bytesOfLinks(tx: Queryable, repositoryId: number, digests: readonly Digest[]): Promise<number> {
  const row = await tx.get<{ bytes: number | null }>(
    `SELECT SUM(COALESCE(${sizeOf('rb.digest')}, 0)) AS bytes FROM repository_blobs rb
     WHERE rb.repository_id = ? AND rb.digest IN (${placeholders(digests)}) AND NOT EXISTS (
       SELECT 1 FROM manifests m WHERE m.repository_id = rb.repository_id AND m.digest = rb.digest)`,
    [repositoryId, ...digests],
  );
  return row?.bytes ?? 0;
}

/** The content of repositories `r`, counted from its rows. */
const counted = {
  tags: '(SELECT COUNT(*) FROM tags t WHERE t.repository_id = r.id)',
  manifests: '(SELECT COUNT(*) FROM manifests m WHERE m.repository_id = r.id)',
  bytes: `COALESCE((SELECT SUM(m.size_bytes) FROM manifests m WHERE m.repository_id = r.id), 0)
    + COALESCE((SELECT SUM(COALESCE(${sizeOf('rb.digest')}, 0)) FROM repository_blobs rb
        WHERE rb.repository_id = r.id AND NOT EXISTS (
          SELECT 1 FROM manifests m WHERE m.repository_id = rb.repository_id AND m.digest = rb.digest)), 0)`,
};
const countAll = `SELECT r.id, ${counted.tags} AS tags, ${counted.manifests} AS manifests, ${counted.bytes} AS bytes,
  r.tag_count, r.manifest_count, r.size_bytes FROM repositories r`;

interface CountedRow extends RepositoryCounts {
  id: number;
  tag_count: number;
  manifest_count: number;
  size_bytes: number;
}

/**
 * Counts the content of all repositories again, and corrects wrong counts: an instance of an older version does not keep
 * them while the instances are being upgraded.
 */
export async function correctCounts(database: Database, now: () => number, signal: AbortSignal): Promise<void> {
  const pace = new Pace(signal);
  const read = (after: number) =>
    database.select<CountedRow>(`${countAll} WHERE r.id > ? ORDER BY r.id LIMIT ${page}`, [after]);
  for await (const rows of pagesOf(0, page, read, ({ id }) => id)) {
    await pace.step();
    for (const { id } of rows.filter(isWrong)) {
      await database.transaction((tx) => correct(tx, id, now()));
      await pace.step();
    }
  }
}

/** Counts again with the repository locked, because a push may have changed both in between. */
async function correct(tx: Transaction, id: number, now: number): Promise<void> {
  await lockRepository(tx, id, now);
  const row = await tx.get<CountedRow>(`${countAll} WHERE r.id = ?`, [id]);
  if (!row || !isWrong(row)) return;
  await addRepositoryCounts(tx, id, {
    tags: row.tags - row.tag_count,
    manifests: row.manifests - row.manifest_count,
    bytes: row.bytes - row.size_bytes,
  });
}

function isWrong(row: CountedRow): boolean {
  return row.tags !== row.tag_count || row.manifests !== row.manifest_count || row.bytes !== row.size_bytes;
}
