import { forUpdate, type Transaction } from '../../database/database.ts';
import { DomainError } from '../../runtime/errors.ts';
import type { Subject } from '../../events/event.ts';
import { parseMetadata } from '../format/metadata.ts';
import { indexPackage, type IndexedPackage } from './term-index.ts';
import { typeFlags } from '../format/terms.ts';
import { parseVersion, versionKey } from '../format/version.ts';

/** The views of clients: the bit of `flags`, the column with the newest version in the view, and its condition. */
export const views = {
  stable: { bit: 1, latest: 'latest_stable', where: 'prerelease = 0 AND semver2 = 0' },
  pre: { bit: 2, latest: 'latest_pre', where: 'semver2 = 0' },
  stable2: { bit: 4, latest: 'latest_stable2', where: 'prerelease = 0' },
  pre2: { bit: 8, latest: 'latest_pre2', where: '1 = 1' },
} as const;
type PackageView = keyof typeof views;

/** The view of a client that requests prereleases or not, and supports SemVer 2 or not. */
export function viewOf(prerelease: boolean, semVer2: boolean): PackageView {
  if (semVer2) return prerelease ? 'pre2' : 'stable2';
  return prerelease ? 'pre' : 'stable';
}

/** The key of an id, in lower case: ids are compared without case, independent of a locale. */
export function packageKey(id: string): string {
  return id.toLowerCase();
}

/** The key of a version in any spelling; undefined if it is not a version. */
export function keyOfVersion(version: string): string | undefined {
  const parsed = parseVersion(version);
  return parsed && versionKey(parsed);
}

/** A package's row, by the names of its columns. */
interface LockedPackage {
  id: number;
  package_id: string;
  version_count: number;
}

/** The package's row, locked until the transaction ends, so that changes to one package run one after the other. */
export function lockedPackage(tx: Transaction, accountId: number, id: string): Promise<LockedPackage | undefined> {
  return tx.get<LockedPackage>(
    `SELECT id, package_id, version_count FROM packages WHERE account_id = ? AND package_key = ?${forUpdate(tx)}`,
    [accountId, packageKey(id)],
  );
}

/** As `lockedPackage`, but only the key of the row. */
export async function lockPackage(tx: Transaction, accountId: number, id: string): Promise<number | undefined> {
  return (await lockedPackage(tx, accountId, id))?.id;
}

/** As `lockPackage`, and the row of one version, with its name in the spelling that is shown. Throws `NotFound`. */
export async function lockVersion(
  tx: Transaction,
  accountId: number,
  id: string,
  version: string,
): Promise<{ packageRow: number; versionRow: number; subject: Subject }> {
  const key = keyOfVersion(version);
  const packageRow = key === undefined ? undefined : await lockPackage(tx, accountId, id);
  const found =
    packageRow === undefined
      ? undefined
      : await tx.get<{ id: number; version: string; package_id: string }>(
          `SELECT v.id, v.version, p.package_id FROM package_versions v JOIN packages p ON p.id = v.package_row
           WHERE v.package_row = ? AND v.version_key = ?`,
          [packageRow, key!],
        );
  if (packageRow === undefined || !found) throw versionNotFound(id, version);
  return {
    packageRow,
    versionRow: found.id,
    subject: { kind: 'package', name: found.package_id, reference: found.version },
  };
}

export function versionNotFound(id: string, version: string): DomainError {
  return new DomainError('NotFound', `${id.slice(0, 100)} ${version.slice(0, 100)} does not exist in this feed.`);
}

/**
 * Updates the data that depends on a package's versions: the newest version for each view, its metadata, and the search
 * terms. The caller has locked the package's row. Call this after every change to the versions.
 */
export async function refreshPackage(tx: Transaction, packageRow: number, now: number): Promise<void> {
  const newest = Object.values(views).map(
    ({ latest, where }) =>
      `(SELECT v.id FROM package_versions v WHERE v.package_row = p.id AND v.listed = 1 AND ${where}
        ORDER BY v.sort_key DESC LIMIT 1) AS newest_${latest}`,
  );
  const row = (await tx.get<IndexedPackage & Record<string, number | null>>(
    `SELECT p.id, p.account_id, p.standing, p.flags, p.terms, p.index_version, ${newest.join(', ')} FROM packages p WHERE p.id = ?`,
    [packageRow],
  ))!;
  const latest = Object.values(views).map((view) => row[`newest_${view.latest}`] ?? null);
  const newestRow = await tx.get<{ metadata: string }>('SELECT metadata FROM package_versions WHERE id = ?', [
    row[`newest_${views.pre2.latest}`] ?? null,
  ]);
  const metadata = newestRow && parseMetadata(newestRow.metadata);
  let flags = metadata ? typeFlags(metadata.packageTypes) : 0;
  Object.values(views).forEach(({ bit }, index) => (flags |= latest[index] === null ? 0 : bit));
  const types = metadata?.packageTypes.map(({ name }) => name).join(' ') ?? '';
  const changed = {
    ...Object.fromEntries(Object.values(views).map((view, index) => [view.latest, latest[index]!])),
    flags,
    updated_at: now,
    ...(metadata && { package_id: metadata.id, package_types: types.slice(0, 255) }),
  };
  const assignments = Object.keys(changed).map((column) => `${column} = ?`);
  await tx.run(`UPDATE packages SET ${assignments.join(', ')}, revision = revision + 1 WHERE id = ?`, [
    ...Object.values(changed),
    packageRow,
  ]);
  await indexPackage(tx, row, flags, metadata);
}
