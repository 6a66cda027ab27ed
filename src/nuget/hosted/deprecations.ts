import { placeholders, type Database, type Transaction } from '../../database/database.ts';
import { pause } from '../../runtime/event-loop.ts';
import { pagesOf } from '../../runtime/pages.ts';
import { DomainError } from '../../runtime/errors.ts';
import { recordEvent } from '../../events/record.ts';
import { storedDeprecation, wrong, type HostedDeprecation } from '../format/deprecation.ts';
import { parseVersion, sortKey } from '../format/version.ts';
import type { FeedContext } from './feed-context.ts';
import { keyOfVersion, lockPackage, packageKey, refreshPackage } from './packages.ts';

/** Most versions that one request names. All versions of a package may be more. */
export const maxNamed = 1000;
/** Versions that one transaction changes. */
const batch = 100;

/** The versions to change: by name, in any spelling, or all that exist now. */
type VersionChoice = 'all' | readonly string[];

interface DeprecationChange {
  /** Undefined ends the deprecation of the versions. */
  deprecation: HostedDeprecation | undefined;
  /** Also lists or unlists the versions. */
  listed?: boolean | undefined;
}

/** A hosted version and its deprecation. */
export interface VersionDeprecation {
  key: string;
  version: string;
  listed: boolean;
  deprecation: HostedDeprecation | undefined;
}

interface VersionRow {
  id: number;
  version: string;
  version_key: string;
  listed: number;
  metadata_bytes: number;
  deprecation: string | null;
}

/**
 * Changes the deprecation of hosted versions; resolves to the number of versions that changed. Nothing changes if a named
 * version does not exist: then throws `NotFound`. Throws `Invalid` for no version or more than `maxNamed`. Many versions
 * are changed in several transactions, so a failure can leave some of them unchanged; the same request again continues.
 */
export async function changeDeprecation(
  context: FeedContext,
  accountId: number,
  id: string,
  versions: VersionChoice,
  change: DeprecationChange,
): Promise<number> {
  const batches = versions === 'all' ? undefined : await existingKeys(context.database, accountId, id, versions);
  const each = async (keys: readonly string[] | undefined, after: string) => {
    const one = { accountId, id, keys, after, now: context.now() };
    return context.database.transaction((tx) => changeNotices(tx, one, change));
  };
  let changed = 0;
  if (batches) {
    for (const keys of batches) changed += (await each(keys, '')).changed;
    return changed;
  }
  for (let after: string | undefined = ''; after !== undefined;) {
    const done = await each(undefined, after);
    changed += done.changed;
    after = done.next;
  }
  return changed;
}

/** The keys of these versions, each once, in batches. Throws `NotFound` for the first one that the account does not host. */
async function existingKeys(
  database: Database,
  accountId: number,
  id: string,
  versions: readonly string[],
): Promise<string[][]> {
  if (versions.length === 0) throw wrong('versions', 'Name one or more versions, or all.');
  if (versions.length > maxNamed) throw wrong('versions', `Name at most ${maxNamed} versions in one request, or all.`);
  const byKey = new Map<string, string>();
  for (const version of versions) {
    const key = keyOfVersion(version);
    if (key === undefined) throw notHosted(id, version);
    byKey.set(key, version);
  }
  const keys = [...byKey.keys()];
  const batches: string[][] = [];
  for (let start = 0; start < keys.length; start += batch) {
    const some = keys.slice(start, start + batch);
    const rows = await database.select<{ version_key: string }>(
      `SELECT v.version_key FROM packages p JOIN package_versions v ON v.package_row = p.id
       WHERE p.account_id = ? AND p.package_key = ? AND v.version_key IN (${placeholders(some)})`,
      [accountId, packageKey(id), ...some],
    );
    const found = new Set(rows.map((row) => row.version_key));
    const missing = some.find((key) => !found.has(key));
    if (missing !== undefined) throw notHosted(id, byKey.get(missing));
    batches.push(some);
  }
  return batches;
}

interface Batch {
  accountId: number;
  id: string;
  /** Undefined for all versions after `after`. */
  keys: readonly string[] | undefined;
  after: string;
  now: number;
}

/** Changes versions of one package in a transaction. `next` is where the next batch starts; undefined after the last one. */
export async function changeNotices(
  tx: Transaction,
  { accountId, id, keys, after, now }: Batch,
  { deprecation, listed }: DeprecationChange,
): Promise<{ changed: number; next: string | undefined }> {
  const packageRow = await lockPackage(tx, accountId, id);
  if (packageRow === undefined) throw notHosted(id);
  const named = keys ? `version_key IN (${placeholders(keys)})` : 'version_key > ?';
  const rows = await tx.select<VersionRow>(
    `SELECT id, version, version_key, listed, metadata_bytes, deprecation FROM package_versions
     WHERE package_row = ? AND ${named} ORDER BY version_key LIMIT ?`,
    [packageRow, ...(keys ?? [after]), batch],
  );
  if (after === '' && rows.length === 0) throw notHosted(id);
  const text = deprecation ? JSON.stringify(deprecation) : null;
  const deprecating = rows.filter((row) => row.deprecation !== text);
  const listing = listed === undefined ? [] : rows.filter((row) => (row.listed === 1) !== listed);
  const { package_id: name } = (await tx.get<{ package_id: string }>('SELECT package_id FROM packages WHERE id = ?', [
    packageRow,
  ]))!;
  const record = (type: Parameters<typeof recordEvent>[1]['type'], reference: string | null, details = {}) =>
    recordEvent(tx, { type, accountId, subject: { kind: 'package', name, reference }, details }, now);
  if (deprecating.length > 0) {
    await writeDeprecation(tx, packageRow, deprecating, text, now);
    const several = deprecating.length > 1;
    await record(
      deprecation ? 'package.deprecated' : 'package.undeprecated',
      several ? null : deprecating[0]!.version,
      {
        ...(deprecation && { reasons: deprecation.reasons }),
        ...(several && { versions: deprecating.map(({ version }) => version) }),
      },
    );
  }
  if (listing.length > 0) {
    const ids = listing.map((row) => row.id);
    await tx.run(`UPDATE package_versions SET listed = ? WHERE id IN (${placeholders(ids)})`, [listed ? 1 : 0, ...ids]);
    for (const { version } of listing) await record(listed ? 'package.relisted' : 'package.unlisted', version);
    await refreshPackage(tx, packageRow, now);
  }
  const changed = new Set([...deprecating, ...listing]).size;
  return { changed, next: !keys && rows.length === batch ? rows.at(-1)!.version_key : undefined };
}

/** All deprecated versions that an account hosts, by package. */
export async function* deprecatedVersions(
  database: Database,
  accountId: number,
): AsyncGenerator<{ id: string; version: string }> {
  const read = (after: string) =>
    database.select<{ packageRow: number; packageKey: string; id: string }>(
      `SELECT id AS packageRow, package_key AS packageKey, package_id AS id FROM packages
       WHERE account_id = ? AND has_deprecated = 1 AND package_key > ? ORDER BY package_key LIMIT ?`,
      [accountId, after, batch],
    );
  for await (const page of pagesOf('', batch, read, ({ packageKey: key }) => key)) {
    for (const { packageRow, id } of page) {
      const versions = await database.select<{ version: string }>(
        'SELECT version FROM package_versions WHERE package_row = ? AND deprecation IS NOT NULL ORDER BY sort_key DESC LIMIT ?',
        [packageRow, maxNamed],
      );
      for (const { version } of versions) yield { id, version };
    }
    await pause();
  }
}

/**
 * Writes the deprecation of these versions, the bytes of the versions and the package, and the revision. Search terms and
 * the newest versions of the package stay the same.
 */
async function writeDeprecation(
  tx: Transaction,
  packageRow: number,
  rows: readonly VersionRow[],
  text: string | null,
  now: number,
): Promise<void> {
  const added = rows.map((row) => bytesOf(text) - bytesOf(row.deprecation));
  const largest = Math.max(...rows.map((row, index) => row.metadata_bytes + added[index]!));
  const ids = rows.map(({ id }) => id);
  // MySQL assigns from left to right: the first assignment needs the old deprecation.
  await tx.run(
    `UPDATE package_versions SET metadata_bytes = metadata_bytes + ? - COALESCE(OCTET_LENGTH(deprecation), 0),
       deprecation = ? WHERE id IN (${placeholders(ids)})`,
    [bytesOf(text), text, ...ids],
  );
  await tx.run(
    `UPDATE packages SET metadata_bytes = metadata_bytes + ?, revision = revision + 1, updated_at = ?, has_deprecated = 1,
       largest_metadata = CASE WHEN largest_metadata < ? THEN ? ELSE largest_metadata END WHERE id = ?`,
    [added.reduce((sum, each) => sum + each, 0), now, largest, largest, packageRow],
  );
}

function bytesOf(text: string | null): number {
  return text === null ? 0 : Buffer.byteLength(text);
}

/** Up to `limit` versions of a package, the newest first, after the version with the key `after`. Throws `NotFound`. */
export async function listDeprecations(
  database: Database,
  accountId: number,
  id: string,
  limit: number,
  after: string | undefined,
): Promise<VersionDeprecation[]> {
  const from = after === undefined ? undefined : parseVersion(after);
  const packageOf = 'p.account_id = ? AND p.package_key = ?';
  const rows = await database.select<VersionRow>(
    `SELECT v.version, v.version_key, v.listed, v.deprecation
     FROM packages p JOIN package_versions v ON v.package_row = p.id WHERE ${packageOf}
     ${from ? 'AND v.sort_key <= ? AND (v.sort_key < ? OR v.version_key < ?)' : ''}
     ORDER BY v.sort_key DESC, v.version_key DESC LIMIT ?`,
    [accountId, packageKey(id), ...(from ? [sortKey(from), sortKey(from), after!] : []), limit],
  );
  if (rows.length === 0 && !from) throw notHosted(id);
  return rows.map((row) => ({
    key: row.version_key,
    version: row.version,
    listed: row.listed === 1,
    deprecation: storedDeprecation(row.deprecation),
  }));
}

/** `NotFound` for a package, or a version of it, that the account does not host. */
export function notHosted(id: string, version = ''): DomainError {
  const name = `${id.slice(0, 100)} ${version.slice(0, 100)}`.trim();
  return new DomainError(
    'NotFound',
    `This account does not host ${name}. Only hosted packages can be deprecated or have advisories.`,
  );
}
