import { placeholders, type Transaction } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { recordEvent } from '../../events/record.ts';
import { batches } from '../../database/batches.ts';
import { addRepositoryCounts, isLinked } from './repository-counts.ts';
import { deleteTags, tagOwner } from './tags.ts';

/** The most tags in the details of an event. */
export const tagsInEvent = 50;
/** Rows that one statement of a deletion reads or changes: other requests run between two statements. */
const pageOfRows = 200;

/**
 * Deletes a manifest with its tags; the caller has locked the repository. Resolves to 0 if there is no such manifest, else
 * to 1. Its blobs count as unused since `now`, its children and referrers since `since`, unless something else uses them.
 */
export async function deleteManifest(
  tx: Transaction,
  repositoryId: number,
  digest: Digest,
  now: number,
  since = now,
): Promise<number> {
  const key = [repositoryId, digest];
  const row = await tx.get<{ id: number; image_bytes: number; size_bytes: number }>(
    'SELECT id, image_bytes, size_bytes FROM manifests WHERE repository_id = ? AND digest = ?',
    key,
  );
  if (!row) return 0;
  const { account_id: accountId, name } = await tagOwner(tx, repositoryId);
  await resizeParents(tx, repositoryId, digest, -row.image_bytes);
  const held = await tx.select<{ digest: Digest }>('SELECT digest FROM manifest_references WHERE manifest_id = ?', [
    row.id,
  ]);
  const later = `UPDATE manifests SET untagged_at = CASE WHEN COALESCE(untagged_at, pushed_at) > ?
                 THEN COALESCE(untagged_at, pushed_at) ELSE ? END WHERE repository_id = ?`;
  for (const part of batches(held)) {
    const digests = part.map((each) => each.digest);
    const among = `digest IN (${placeholders(digests)})`;
    await tx.run(`UPDATE repository_blobs SET linked_at = ? WHERE repository_id = ? AND ${among}`, [
      now,
      repositoryId,
      ...digests,
    ]);
    await tx.run(`${later} AND ${among}`, [since, since, repositoryId, ...digests]);
  }
  for (let after = ''; ;) {
    const rows = await tx.select<{ digest: Digest }>(
      `SELECT digest FROM manifests WHERE repository_id = ? AND subject = ? AND digest > ? ORDER BY digest LIMIT ${pageOfRows}`,
      [...key, after],
    );
    if (rows.length === 0) break;
    const referrers = rows.map((each) => each.digest);
    await tx.run(`${later} AND digest IN (${placeholders(referrers)})`, [since, since, repositoryId, ...referrers]);
    after = referrers.at(-1)!;
  }
  await tx.run('DELETE FROM manifest_references WHERE manifest_id = ?', [row.id]);
  const deleted = { tags: [] as string[], tag_count: 0 };
  for (;;) {
    const rows = await tx.select<{ name: string }>(
      `SELECT name FROM tags WHERE repository_id = ? AND digest = ? ORDER BY name LIMIT ${pageOfRows}`,
      key,
    );
    if (rows.length === 0) break;
    const names = rows.map(({ name: tag }) => tag);
    await deleteTags(tx, repositoryId, names, now);
    deleted.tags.push(...names.slice(0, tagsInEvent - deleted.tags.length));
    deleted.tag_count += names.length;
  }
  const subject = { kind: 'container', name, reference: digest } as const;
  await recordEvent(tx, { type: 'manifest.deleted', accountId, subject, details: deleted }, now);
  const bytes = (await isLinked(tx, repositoryId, digest)) ? 0 : row.size_bytes;
  await addRepositoryCounts(tx, repositoryId, { manifests: -1, bytes: -bytes });
  return tx.run('DELETE FROM manifests WHERE id = ?', [row.id]);
}

/** Adds `bytes` to the size of each index that lists the manifest, because its images may come and go after it. */
export async function resizeParents(
  tx: Transaction,
  repositoryId: number,
  digest: Digest,
  bytes: number,
): Promise<void> {
  if (bytes === 0) return;
  // First, because an UPDATE with a subquery would read all manifests of the repository.
  const parents = await tx.select<{ id: number }>(
    `SELECT p.id FROM manifest_references f CROSS JOIN manifests p ON p.id = f.manifest_id
     WHERE f.digest = ? AND p.repository_id = ?`,
    [digest, repositoryId],
  );
  for (const part of batches(parents)) {
    const sql = `UPDATE manifests SET image_bytes = image_bytes + ? WHERE id IN (${placeholders(part)})`;
    await tx.run(sql, [bytes, ...part.map(({ id }) => id)]);
  }
}
