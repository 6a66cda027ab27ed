import { forUpdate, placeholders, type Database } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { Pace } from '../../storage/upkeep/pace.ts';
import { sizeOf } from '../../storage/blobs/sizes.ts';
import { lockRepository } from './repositories.ts';
import { addRepositoryCounts, bytesOfLinks } from './repository-counts.ts';

interface AbandonedOptions {
  /** Only blobs that were pushed, or lost their last manifest, before this time; milliseconds since 1970 UTC. */
  before: number;
  now: number;
  dryRun: boolean;
  signal: AbortSignal;
}

interface Link {
  repository_id: number;
  digest: Digest;
  size: number;
}

const page = 500;

/**
 * SQL condition on a row `rb` of `repository_blobs`: no manifest of the repository refers to the blob, and none that was deleted and
 * can be restored. SQLite keeps the order of a CROSS JOIN. It would otherwise read all manifests of the repository for each row, here and in other statements.
 */
export const isAbandoned = `NOT EXISTS (SELECT 1 FROM manifest_references f CROSS JOIN manifests m ON m.id = f.manifest_id
                     WHERE f.digest = rb.digest AND m.repository_id IN (rb.repository_id, -rb.repository_id))`;

/**
 * Removes blobs from repositories that have no manifest with a reference to them: layers of deleted images, and of pushes
 * that were never finished. Resolves to their number and size.
 */
export async function dropAbandonedBlobs(
  database: Database,
  { before, now, dryRun, signal }: AbandonedOptions,
): Promise<{ layers: number; layer_bytes: number }> {
  const dropped = { layers: 0, layer_bytes: 0 };
  const pace = new Pace(signal);
  let last: Link = { repository_id: 0, digest: '' as Digest, size: 0 };
  for (;;) {
    const links: (Link & { abandoned: number })[] = await database.select(
      `SELECT rb.repository_id, rb.digest, COALESCE(${sizeOf('rb.digest')}, 0) AS size,
         CASE WHEN rb.linked_at < ? AND ${isAbandoned} THEN 1 ELSE 0 END AS abandoned
       FROM repository_blobs rb
       WHERE rb.repository_id >= ? AND (rb.repository_id > ? OR rb.digest > ?)
       ORDER BY rb.repository_id, rb.digest LIMIT ${page}`,
      [before, last.repository_id, last.repository_id, last.digest],
    );
    await pace.step();
    const found = links.filter(({ abandoned }) => abandoned === 1);
    for (const [repositoryId, some] of Map.groupBy(found, (link) => link.repository_id)) {
      const removed = dryRun ? some : await drop(database, repositoryId, some, before, now);
      dropped.layers += removed.length;
      for (const { size } of removed) dropped.layer_bytes += size;
      await pace.step();
    }
    if (links.length < page) return dropped;
    last = links.at(-1)!;
  }
}

/** Checks again with the repository locked, because a new manifest may refer to the blobs, and removes the rest. */
function drop(
  database: Database,
  repositoryId: number,
  links: readonly Link[],
  before: number,
  now: number,
): Promise<Link[]> {
  return database.transaction(async (tx) => {
    await lockRepository(tx, repositoryId, now);
    const digests = links.map(({ digest }) => digest);
    const old = await tx.select<{ digest: Digest }>(
      `SELECT digest FROM repository_blobs
       WHERE repository_id = ? AND digest IN (${placeholders(digests)}) AND linked_at < ? ORDER BY digest${forUpdate(tx)}`,
      [repositoryId, ...digests, before],
    );
    if (old.length === 0) return [];
    const free = await tx.select<{ digest: Digest }>(
      `SELECT rb.digest FROM repository_blobs rb
       WHERE rb.repository_id = ? AND rb.digest IN (${placeholders(old)}) AND ${isAbandoned}`,
      [repositoryId, ...old.map(({ digest }) => digest)],
    );
    if (free.length === 0) return [];
    const removed = new Set(free.map(({ digest }) => digest));
    await addRepositoryCounts(tx, repositoryId, { bytes: -(await bytesOfLinks(tx, repositoryId, [...removed])) });
    await tx.run(`DELETE FROM repository_blobs WHERE repository_id = ? AND digest IN (${placeholders(free)})`, [
      repositoryId,
      ...removed,
    ]);
    return links.filter(({ digest }) => removed.has(digest));
  });
}
