import type { Transaction } from '../../database/database.ts';
import type { Subject } from '../../events/event.ts';
import { recordEvent } from '../../events/record.ts';
import { deletionOf, endDeletion, noteDeleted, type DeletedContents, type Deletion } from '../../permanence/deleted.ts';
import { guardOf, kept } from '../../permanence/rules.ts';
import type { Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { versionKey, type Version } from '../format/version.ts';
import type { FeedContext } from './feed-context.ts';
import { lockPackage, lockVersion, refreshPackage } from './packages.ts';
import { bytesOfSymbols } from './symbol-packages.ts';

/** A version that is being deleted; the caller has locked its package. */
interface GoingVersion {
  accountId: number;
  packageRow: number;
  versionRow: number;
  subject: Subject;
}

/**
 * Deletes a version; it can be restored for the time of the setting `deletedFor`. The account keeps its claim on the id. Throws
 * `NotFound`, and `Kept`.
 */
export async function deleteVersion(
  { database, now, deletedFor }: FeedContext,
  accountId: number,
  id: string,
  version: string,
): Promise<void> {
  await database.transaction(async (tx) => {
    const found = await lockVersion(tx, accountId, id, version);
    await refuseKeptVersion(tx, accountId, found.subject);
    await removeVersion(tx, { accountId, ...found }, { now: now(), deletedFor });
    await refreshPackage(tx, found.packageRow, now());
  });
}

/** Throws `Kept` for a version that cannot be deleted. */
export async function refuseKeptVersion(
  tx: Transaction,
  accountId: number,
  { name, reference }: Subject,
): Promise<void> {
  const guard = await guardOf(tx, accountId);
  if (guard.keepsVersion(name!, reference!)) throw kept(`${name} ${reference}`);
}

/** Deletes a version. The caller calls `refreshPackage` after the last deletion. */
export async function removeVersion(tx: Transaction, going: GoingVersion, deletion: Deletion): Promise<void> {
  const { accountId, packageRow, versionRow, subject } = going;
  const { size, digest } = (await tx.get<{ size: number; digest: Digest }>(
    'SELECT size_bytes AS size, nupkg_digest AS digest FROM package_versions WHERE id = ?',
    [versionRow],
  ))!;
  const count = 'UPDATE packages SET version_count = version_count - 1, size_bytes = size_bytes - ? WHERE id = ?';
  await tx.run(count, [size, packageRow]);
  if (deletion.deletedFor > 0) {
    await tx.run('UPDATE package_versions SET package_row = -package_row WHERE id = ?', [versionRow]);
    const { kind, name, reference } = subject;
    const what = { accountId, kind, name: name!, reference: reference!, digest, size, rowId: versionRow };
    await noteDeleted(tx, { ...what, type: 'version' }, deletion);
  } else await dropVersion(tx, packageRow, versionRow);
  await recordEvent(tx, { type: 'package.deleted', accountId, subject }, deletion.now);
}

/** Deletes the rows of a version. The bytes of its metadata count until then. */
async function dropVersion(tx: Transaction, packageRow: number, versionRow: number): Promise<void> {
  await tx.run(
    `UPDATE packages SET metadata_bytes = metadata_bytes - (SELECT metadata_bytes FROM package_versions WHERE id = ?) - ?
     WHERE id = ?`,
    [versionRow, await bytesOfSymbols(tx, versionRow), packageRow],
  );
  await tx.run('DELETE FROM package_symbols WHERE version_row = ?', [versionRow]);
  await tx.run('DELETE FROM package_blobs WHERE version_row = ?', [versionRow]);
  await tx.run('DELETE FROM package_versions WHERE id = ?', [versionRow]);
}

/** The deleted versions of packages. */
export function deletedVersions({ now }: Pick<FeedContext, 'now'>): DeletedContents {
  return {
    restore: async (tx, item) => {
      const packageRow = await lockPackage(tx, item.accountId, item.name);
      await bringBack(tx, packageRow!, item.rowId, now());
      await endDeletion(tx, item, now());
      return [];
    },
    purge: async (tx, item) => {
      const packageRow = await lockPackage(tx, item.accountId, item.name);
      await dropVersion(tx, packageRow!, item.rowId);
    },
  };
}

async function bringBack(tx: Transaction, packageRow: number, versionRow: number, now: number): Promise<void> {
  await tx.run('UPDATE package_versions SET package_row = ? WHERE id = ?', [packageRow, versionRow]);
  await tx.run(
    `UPDATE packages SET version_count = version_count + 1,
       size_bytes = size_bytes + (SELECT size_bytes FROM package_versions WHERE id = ?) WHERE id = ?`,
    [versionRow, packageRow],
  );
  await refreshPackage(tx, packageRow, now);
}

interface PushedVersion {
  packageRow: number;
  subject: { name: string; reference: string };
  files: { version: Version; digests: { nupkg: Digest } };
}

/**
 * Whether a push has restored a deleted version, because it has the same bytes. Throws `AlreadyExists` for a deleted version with
 * other bytes: it could not be restored any more.
 */
export async function restoredByPush(
  tx: Transaction,
  { packageRow, subject, files }: PushedVersion,
  now: number,
): Promise<boolean> {
  const deleted = await tx.get<{ id: number; digest: Digest }>(
    'SELECT id, nupkg_digest AS digest FROM package_versions WHERE package_row = ? AND version_key = ?',
    [-packageRow, versionKey(files.version)],
  );
  const item = deleted && (await deletionOf(tx, 'package', deleted.id));
  if (!item) return false;
  const { name, reference } = subject;
  if (deleted.digest !== files.digests.nupkg)
    throw new DomainError(
      'AlreadyExists',
      `${name} ${reference} was deleted with other bytes, and can be restored until ${new Date(item.endsAt).toISOString()}. Push under a new version, restore it, or let an administrator delete it for good: DELETE /v1/deleted/${item.id}?reason=….`,
    );
  await bringBack(tx, packageRow, deleted.id, now);
  await endDeletion(tx, item, now);
  return true;
}
