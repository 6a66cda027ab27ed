import type { Transaction } from '../../database/database.ts';
import {
  deletionOf,
  endDeletion,
  tagsDeletedWith,
  type DeletedContents,
  type DeletedItem,
} from '../../permanence/deleted.ts';
import type { Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { bytesOfReferences } from './manifest-sizes.ts';
import { dropManifest, noteUnused, resizeParents } from './manifest-deletion.ts';
import { ensureRepository, lockRepository } from './repositories.ts';
import { addRepositoryCounts, isLinked } from './repository-counts.ts';
import { restoreTags } from './tags.ts';

/** The deleted manifests and tags of images. */
export function deletedImages(now: () => number): DeletedContents {
  return {
    restore: async (tx, item) => {
      const repositoryId = await repositoryOf(tx, item, now());
      if (item.type === 'manifest') return restoreManifest(tx, repositoryId, item, now());
      return restoreTag(tx, repositoryId, item, now());
    },
    purge: async (tx, item) => {
      if (item.type === 'tag') return;
      await noteUnused(tx, await repositoryOf(tx, item, now()), item.rowId, now());
      await dropManifest(tx, item.rowId);
    },
  };
}

async function repositoryOf(tx: Transaction, { accountId, name }: DeletedItem, now: number): Promise<number> {
  const repositoryId = await ensureRepository(tx, accountId, name, now);
  await lockRepository(tx, repositoryId, now);
  return repositoryId;
}

/** A tag points again to its manifest, which is restored, too, if it was deleted later. */
async function restoreTag(tx: Transaction, repositoryId: number, item: DeletedItem, now: number): Promise<string[]> {
  const { name, reference, changedAt } = item;
  const digest = item.digest as Digest;
  const manifest = 'SELECT id FROM manifests WHERE repository_id = ? AND digest = ?';
  if (!(await tx.get(manifest, [repositoryId, digest]))) {
    const row = await tx.get<{ id: number }>(manifest, [-repositoryId, digest]);
    const deleted = row && (await deletionOf(tx, item.kind, row.id));
    if (!deleted)
      throw new DomainError(
        'ManifestUnknown',
        `${name}:${reference} pointed to ${digest}, which was deleted for good.`,
      );
    await restoreManifest(tx, repositoryId, deleted, now);
  }
  const left = await restoreTags(tx, repositoryId, [{ reference, changedAt }], digest, now);
  if (left.length > 0)
    throw new DomainError(
      'AlreadyExists',
      `${name}:${reference} exists again, with another manifest. Delete that tag first, or pull ${name}@${digest}.`,
    );
  await endDeletion(tx, item, now);
  return [];
}

/** Resolves to the tags that were deleted with it and exist with another manifest now. */
async function restoreManifest(
  tx: Transaction,
  repositoryId: number,
  item: DeletedItem,
  now: number,
): Promise<string[]> {
  const digest = item.digest as Digest;
  const row = (await tx.get<{ size_bytes: number; media_type: string; pull_count: number }>(
    'SELECT size_bytes, media_type, pull_count FROM manifests WHERE id = ?',
    [item.rowId],
  ))!;
  const again = await tx.get<{ id: number }>('SELECT id FROM manifests WHERE repository_id = ? AND digest = ?', [
    repositoryId,
    digest,
  ]);
  if (again) {
    await tx.run('UPDATE manifests SET pull_count = pull_count + ? WHERE id = ?', [row.pull_count, again.id]);
    await dropManifest(tx, item.rowId);
  } else {
    const image = row.size_bytes + (await bytesOfReferences(tx, repositoryId, row.media_type, item.rowId));
    // Otherwise a rule about untagged images could delete it at once.
    const sql = 'UPDATE manifests SET repository_id = ?, image_bytes = ?, untagged_at = ? WHERE id = ?';
    await tx.run(sql, [repositoryId, image, now, item.rowId]);
    await resizeParents(tx, repositoryId, digest, image);
    const bytes = (await isLinked(tx, repositoryId, digest)) ? 0 : row.size_bytes;
    await addRepositoryCounts(tx, repositoryId, { manifests: 1, bytes });
  }
  const left: string[] = [];
  for (let after: string | undefined = ''; after !== undefined;) {
    const tags = await tagsDeletedWith(tx, item, after);
    left.push(...(await restoreTags(tx, repositoryId, tags, digest, now)));
    after = tags.at(-1)?.reference;
  }
  await endDeletion(tx, item, now);
  if (!again) await restoreRelated(tx, repositoryId, item, now);
  return left;
}

/** The images of an index and what refers to the manifest, such as signatures, come back with it if they were deleted after it. */
async function restoreRelated(
  tx: Transaction,
  repositoryId: number,
  { kind, rowId, digest, id }: DeletedItem,
  now: number,
): Promise<void> {
  const related = await tx.select<{ id: number }>(
    `SELECT m.id FROM manifest_references f CROSS JOIN manifests m ON m.repository_id = ? AND m.digest = f.digest
     WHERE f.manifest_id = ? UNION SELECT id FROM manifests WHERE repository_id = ? AND subject = ?`,
    [-repositoryId, rowId, -repositoryId, digest],
  );
  for (const each of related) {
    const deletion = await deletionOf(tx, kind, each.id);
    if (deletion && deletion.id > id) await restoreManifest(tx, repositoryId, deletion, now);
  }
}
