import { placeholders, type Transaction } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { recordEvent } from '../../events/record.ts';
import { batches } from '../../database/batches.ts';
import { deletionOf, noteDeleted, noteDeletedTags, replaceDeletion, type Deletion } from '../../permanence/deleted.ts';
import { addRepositoryCounts, isLinked } from './repository-counts.ts';
import { deleteTags, tagOwner } from './tags.ts';

/** The most tags in the details of an event. */
export const tagsInEvent = 50;
/** Rows that one statement of a deletion reads or changes: other requests run between two statements. */
const pageOfRows = 200;

/**
 * Deletes a manifest with its tags; the caller has locked the repository. Resolves to 0 if there is no such manifest, else
 * to 1. Its blobs count as unused since `now`, its children and referrers since `since`, unless something else uses them. It can be
 * restored with its tags for a time.
 */
export async function deleteManifest(
  tx: Transaction,
  repositoryId: number,
  digest: Digest,
  deletion: Deletion,
  since = deletion.now,
): Promise<number> {
  const { now, deletedFor } = deletion;
  const key = [repositoryId, digest];
  const row = await tx.get<{ id: number; image_bytes: number; size_bytes: number }>(
    'SELECT id, image_bytes, size_bytes FROM manifests WHERE repository_id = ? AND digest = ?',
    key,
  );
  if (!row) return 0;
  const { account_id: accountId, name } = await tagOwner(tx, repositoryId);
  await resizeParents(tx, repositoryId, digest, -row.image_bytes);
  const held = await noteUnused(tx, repositoryId, row.id, now);
  const later = `UPDATE manifests SET untagged_at = CASE WHEN COALESCE(untagged_at, pushed_at) > ?
                 THEN COALESCE(untagged_at, pushed_at) ELSE ? END WHERE repository_id = ?`;
  for (const part of batches(held)) {
    const digests = part.map((each) => each.digest);
    await tx.run(`${later} AND digest IN (${placeholders(digests)})`, [since, since, repositoryId, ...digests]);
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
  const what = { accountId, kind: 'container', name, digest } as const;
  const note = { ...what, type: 'manifest', reference: digest, size: row.size_bytes, rowId: row.id } as const;
  const partOf = deletedFor > 0 ? await noteDeleted(tx, note, deletion) : 0;
  const deleted = { tags: [] as string[], tag_count: 0 };
  for (;;) {
    const rows = await tx.select<{ name: string; changedAt: number }>(
      `SELECT name, updated_at AS changedAt FROM tags WHERE repository_id = ? AND digest = ? ORDER BY name LIMIT ${pageOfRows}`,
      key,
    );
    if (rows.length === 0) break;
    const names = rows.map(({ name: tag }) => tag);
    await deleteTags(tx, repositoryId, names, now);
    if (deletedFor > 0) {
      const tag = { ...what, type: 'tag', size: 0, partOf } as const;
      const tags = rows.map(({ name: reference, changedAt }) => ({ ...tag, reference, changedAt }));
      await noteDeletedTags(tx, tags, deletion);
    }
    deleted.tags.push(...names.slice(0, tagsInEvent - deleted.tags.length));
    deleted.tag_count += names.length;
  }
  const subject = { kind: 'container', name, reference: digest } as const;
  await recordEvent(tx, { type: 'manifest.deleted', accountId, subject, details: deleted }, now);
  const bytes = (await isLinked(tx, repositoryId, digest)) ? 0 : row.size_bytes;
  await addRepositoryCounts(tx, repositoryId, { manifests: -1, bytes: -bytes });
  if (deletedFor === 0) return dropManifest(tx, row.id);
  await replaceEarlier(tx, repositoryId, digest, row.id, partOf);
  return tx.run('UPDATE manifests SET repository_id = -repository_id WHERE id = ?', [row.id]);
}

/** A manifest that was deleted, pushed again and deleted again is one deleted manifest, with the tags and pulls of both. */
async function replaceEarlier(
  tx: Transaction,
  repositoryId: number,
  digest: Digest,
  manifestId: number,
  deletionId: number,
): Promise<void> {
  const sql = 'SELECT id, pull_count FROM manifests WHERE repository_id = ? AND digest = ?';
  const before = await tx.get<{ id: number; pull_count: number }>(sql, [-repositoryId, digest]);
  if (!before) return;
  const earlier = await deletionOf(tx, 'container', before.id);
  if (earlier) await replaceDeletion(tx, earlier.id, deletionId);
  await tx.run('UPDATE manifests SET pull_count = pull_count + ? WHERE id = ?', [before.pull_count, manifestId]);
  await dropManifest(tx, before.id);
}

/** Deletes the rows of a manifest; resolves to their number. */
export async function dropManifest(tx: Transaction, manifestId: number): Promise<number> {
  await tx.run('DELETE FROM manifest_references WHERE manifest_id = ?', [manifestId]);
  return tx.run('DELETE FROM manifests WHERE id = ?', [manifestId]);
}

/** Lets the blobs of a manifest count as unused since `now`, unless another one uses them. Resolves to what it refers to. */
export async function noteUnused(
  tx: Transaction,
  repositoryId: number,
  manifestId: number,
  now: number,
): Promise<{ digest: Digest }[]> {
  const held = await tx.select<{ digest: Digest }>('SELECT digest FROM manifest_references WHERE manifest_id = ?', [
    manifestId,
  ]);
  for (const part of batches(held)) {
    const digests = part.map((each) => each.digest);
    await tx.run(
      `UPDATE repository_blobs SET linked_at = ? WHERE repository_id = ? AND digest IN (${placeholders(digests)})`,
      [now, repositoryId, ...digests],
    );
  }
  return held;
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
