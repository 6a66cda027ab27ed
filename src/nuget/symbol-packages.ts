import type { Readable } from 'node:stream';
import { DomainError } from '../errors.ts';
import type { Digest } from '../digest.ts';
import type { StagedFile } from '../storage/staged-file.ts';
import type { Shelf } from './feed.ts';
import { lockVersion, packageKey, versionNotFound } from './packages.ts';
import { openPdb, readSnupkg, type Snupkg } from './symbols.ts';
import { normalize, versionKey } from './version.ts';

/** What the table's columns hold. */
const maxFileName = 255;
const maxPath = 1024;

/**
 * Publishes the symbols package in `staged`, in place of the version's earlier one; `staged` is used up whatever the
 * outcome. Throws `PackageInvalid`, or `NotFound` when the version it belongs to is not there.
 */
export async function publishSymbols(
  { database, blobs }: Shelf,
  accountId: number,
  staged: StagedFile,
): Promise<{ id: string; version: string }> {
  let snupkg: Snupkg;
  let digest: Digest;
  try {
    snupkg = await readSnupkg(staged.path);
    const tooLong = snupkg.pdbs.find(({ fileName, path }) => fileName.length > maxFileName || path.length > maxPath);
    if (tooLong) throw new DomainError('PackageInvalid', `The path '${tooLong.path.slice(0, 100)}…' is too long.`);
    const parent = await database.get(
      `SELECT v.id FROM packages p JOIN package_versions v ON v.package_row = p.id
       WHERE p.account_id = ? AND p.package_key = ? AND v.version_key = ?`,
      [accountId, packageKey(snupkg.nuspec.id), versionKey(snupkg.version)],
    );
    if (!parent) throw parentMissing(snupkg);
    digest = await staged.digest('sha256');
  } catch (error) {
    await staged.discard();
    throw error;
  }
  const { id } = snupkg.nuspec;
  const version = normalize(snupkg.version);
  return blobs.commit([{ staged, digest }], async (tx) => {
    const { versionRow } = await lockVersion(tx, accountId, id, version);
    await tx.run(
      `DELETE FROM package_blobs WHERE version_row = ?
       AND digest = (SELECT snupkg_digest FROM package_versions WHERE id = ?)`,
      [versionRow, versionRow],
    );
    await tx.insertNew('package_blobs', [{ version_row: versionRow, digest }]);
    await tx.run('UPDATE package_versions SET snupkg_digest = ? WHERE id = ?', [digest, versionRow]);
    await tx.run('DELETE FROM package_symbols WHERE version_row = ?', [versionRow]);
    await tx.insertNew(
      'package_symbols',
      snupkg.pdbs.map(({ path, fileName, key }) => ({
        account_id: accountId,
        file_name: fileName.toLowerCase(),
        signature: key,
        version_row: versionRow,
        path,
      })),
    );
    return { id, version };
  });
}

/**
 * The PDB of that name and signature, if a symbols package of the account has it; both in any case.
 * https://github.com/dotnet/symstore/blob/main/docs/specs/Simple_Symbol_Query_Protocol.md
 */
export async function openSymbols(
  { database, blobs }: Shelf,
  accountId: number,
  fileName: string,
  key: string,
): Promise<{ size: number; stream: Readable } | undefined> {
  const row = await database.get<{ path: string; digest: Digest }>(
    `SELECT s.path, v.snupkg_digest AS digest FROM package_symbols s JOIN package_versions v ON v.id = s.version_row
     WHERE s.account_id = ? AND s.signature = ? AND s.file_name = ? ORDER BY s.version_row DESC LIMIT 1`,
    [accountId, key.toLowerCase(), fileName.toLowerCase()],
  );
  return row && openPdb(blobs.pathOf(row.digest), row.path);
}

function parentMissing({ nuspec, version }: Snupkg): DomainError {
  const { message } = versionNotFound(nuspec.id, normalize(version));
  return new DomainError('NotFound', `${message} Push the package before its symbols.`);
}
