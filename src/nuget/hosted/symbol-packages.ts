import type { Readable } from 'node:stream';
import type { NameSet } from '../../accounts/names.ts';
import type { Transaction } from '../../database/database.ts';
import { DomainError } from '../../runtime/errors.ts';
import type { Digest } from '../../runtime/digest.ts';
import { sizeOf } from '../../storage/blobs/sizes.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import type { FeedContext } from './feed-context.ts';
import { keyOfVersion, lockVersion, packageKey, versionNotFound } from './packages.ts';
import type { OpenBytes } from '../../storage/files/zip-bytes.ts';
import { openPdb, readSnupkg, type Snupkg } from '../format/symbols.ts';
import { normalize } from '../format/version.ts';

/** Characters that the table's columns can contain. */
const maxFileName = 255;
const maxPath = 1024;
const rowsPerStatement = 100;

/**
 * Publishes the symbols package in `staged` and replaces the version's earlier one. `staged` is used up, also when this
 * fails. Throws `PackageInvalid`, the error of `permit` for the id, or `NotFound` if the package version does not
 * exist.
 */
export async function publishSymbols(
  { database, blobs }: FeedContext,
  accountId: number,
  staged: StagedFile,
  permit: (id: string) => void,
): Promise<{ id: string; version: string }> {
  let snupkg: SymbolsIndex;
  let digest: Digest;
  try {
    snupkg = await readSymbols(() => staged.open());
    permit(snupkg.id);
    const parent = await database.get(
      `SELECT v.id FROM packages p JOIN package_versions v ON v.package_row = p.id
       WHERE p.account_id = ? AND p.package_key = ? AND v.version_key = ?`,
      [accountId, packageKey(snupkg.id), keyOfVersion(snupkg.version)!],
    );
    if (!parent) throw parentMissing(snupkg);
    digest = await staged.digest('sha256');
  } catch (error) {
    await staged.discard();
    throw error;
  }
  const { id, version } = snupkg;
  await blobs.commit([{ staged, digest }], (tx) => writeSymbols(tx, accountId, snupkg, digest), accountId);
  return { id, version };
}

/** What a symbols package has. */
export interface SymbolsIndex {
  id: string;
  /** Normalised. */
  version: string;
  pdbs: Snupkg['pdbs'];
}

/** Reads the symbols package whose bytes `open` opens. Throws `PackageInvalid`. */
export async function readSymbols(open: OpenBytes): Promise<SymbolsIndex> {
  const { nuspec, version, pdbs } = await readSnupkg(open);
  const tooLong = pdbs.find(({ fileName, path }) => keyOfFile(fileName).length > maxFileName || path.length > maxPath);
  if (tooLong)
    throw new DomainError(
      'PackageInvalid',
      `The path '${tooLong.path.slice(0, 100)}…' is too long. Use a shorter path.`,
    );
  return { id: nuspec.id, version: normalize(version), pdbs };
}

/**
 * Makes stored content the symbols package of its version, in place of the earlier one. Throws `NotFound` if the version does not
 * exist.
 */
export async function writeSymbols(
  tx: Transaction,
  accountId: number,
  { id, version, pdbs }: SymbolsIndex,
  digest: Digest,
): Promise<void> {
  const { packageRow, versionRow } = await lockVersion(tx, accountId, id, version);
  await tx.run(
    `DELETE FROM package_blobs WHERE version_row = ?
     AND digest = (SELECT snupkg_digest FROM package_versions WHERE id = ?)`,
    [versionRow, versionRow],
  );
  await tx.insertNew('package_blobs', [{ version_row: versionRow, digest }]);
  await tx.run('UPDATE package_versions SET snupkg_digest = ? WHERE id = ?', [digest, versionRow]);
  const before = await bytesOfSymbols(tx, versionRow);
  await tx.run('DELETE FROM package_symbols WHERE version_row = ?', [versionRow]);
  const rows = pdbs.map(({ path, fileName, key }) => ({
    account_id: accountId,
    file_name: keyOfFile(fileName),
    signature: key,
    version_row: versionRow,
    path,
  }));
  for (let start = 0; start < rows.length; start += rowsPerStatement) {
    await tx.insertNew('package_symbols', rows.slice(start, start + rowsPerStatement));
  }
  await tx.run('UPDATE packages SET metadata_bytes = metadata_bytes + ? WHERE id = ?', [
    (await bytesOfSymbols(tx, versionRow)) - before,
    packageRow,
  ]);
}

/** About the bytes that a version's symbols take in the database; migration 009 uses the same formula. */
export async function bytesOfSymbols(tx: Transaction, versionRow: number): Promise<number> {
  const sum = await tx.get<{ bytes: number }>(
    `SELECT COALESCE(SUM(100 + OCTET_LENGTH(file_name) + OCTET_LENGTH(path)), 0) AS bytes
     FROM package_symbols WHERE version_row = ?`,
    [versionRow],
  );
  return sum!.bytes;
}

/**
 * The PDB with this name and signature from the account's symbols packages; undefined if there is none. Name and
 * signature are in any case. With `only`, other ids are left out.
 * https://github.com/dotnet/symstore/blob/main/docs/specs/Simple_Symbol_Query_Protocol.md
 */
export async function openSymbols(
  { database, blobs }: FeedContext,
  accountId: number,
  fileName: string,
  key: string,
  only?: NameSet,
): Promise<{ size: number; stream: Readable } | undefined> {
  const among = only?.where('p.package_key');
  const size = sizeOf('v.snupkg_digest');
  const row = await database.get<{ path: string; digest: Digest; size: number }>(
    `SELECT s.path, v.snupkg_digest AS digest, ${size} AS size
     FROM package_symbols s JOIN package_versions v ON v.id = s.version_row
     JOIN packages p ON p.id = v.package_row ${among ? `AND ${among.sql}` : ''}
     WHERE s.account_id = ? AND s.signature = ? AND s.file_name = ? AND ${size} IS NOT NULL
     ORDER BY s.version_row DESC LIMIT 1`,
    [...(among?.values ?? []), accountId, key.toLowerCase(), keyOfFile(fileName)],
  );
  return row && openPdb(() => blobs.open(row.digest, row.size), row.path);
}

/** File names are compared in lower case. The key can be longer than the name: some letters become two. */
function keyOfFile(name: string): string {
  return name.toLowerCase();
}

function parentMissing({ id, version }: SymbolsIndex): DomainError {
  const { message } = versionNotFound(id, version);
  return new DomainError('NotFound', `${message} Push the package before its symbols.`);
}
