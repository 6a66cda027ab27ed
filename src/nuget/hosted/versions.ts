import type { Database, Row, Value } from '../../database/database.ts';
import { parseMetadata } from '../format/metadata.ts';
import { storedDeprecation } from '../format/deprecation.ts';
import { advisoriesOf, type PackageAdvisories } from './advisories.ts';
import { packageKey } from './packages.ts';
import {
  fitIndex,
  inlineBelow,
  pageBytes,
  paged,
  pagedInline,
  pageVersions,
  rangeBytes,
  RangeSize,
  rangeTooLong,
  rangeVersions,
  type RegisteredPage,
  type RegisteredVersion,
  type SizedVersion,
} from '../format/pages.ts';
import { parseVersion, sortKey } from '../format/version.ts';

const columns = `v.version, v.full_version AS fullVersion, v.listed, v.published_at AS publishedAt, v.sha512,
  v.icon_digest AS icon, v.readme_digest AS readme, v.metadata_bytes AS bytes, v.metadata, v.deprecation`;
const join = 'packages p JOIN package_versions v ON v.package_row = p.id';
const all = 'p.account_id = ? AND p.package_key = ? AND v.semver2 <= ?';

type VersionRow = Pick<RegisteredVersion, 'version' | 'fullVersion' | 'publishedAt' | 'sha512' | 'bytes'> & {
  listed: number;
  icon: string | null;
  readme: string | null;
  metadata: string;
  deprecation: string | null;
};

/** The condition for versions that were published by a time; all versions without one. */
export function publishedBy(until: number | undefined): { sql: string; values: Value[] } {
  return until === undefined ? { sql: '', values: [] } : { sql: 'AND v.published_at <= ?', values: [until] };
}

/** Rows of one statement for documents that list all versions. */
const step = 5000;

/** Sizes of a package's metadata, known without reading its versions. */
interface Measured {
  metadata_bytes: number;
  /** Bytes; no version has more. */
  largest_metadata: number;
}

/**
 * The revision of a package, on which all its documents depend: it changes with each change to the versions. Undefined
 * if the account does not claim the id.
 */
export async function revisionOf(database: Database, accountId: number, id: string): Promise<string | undefined> {
  const row = await database.getCached<{ id: number; created_at: number; revision: number }>(
    'SELECT id, created_at, revision FROM packages WHERE account_id = ? AND package_key = ?',
    [accountId, packageKey(id)],
  );
  return row && `${row.id}/${row.created_at}/${row.revision}`;
}

/** The keys of all versions, listed or not, in order; with `until`, of those published by then. Empty if there is no such package. */
export async function listVersionKeys(
  database: Database,
  accountId: number,
  id: string,
  until?: number,
): Promise<string[]> {
  const past = publishedBy(until);
  return inSteps(
    database,
    `SELECT v.version_key, v.sort_key FROM ${join} WHERE p.account_id = ? AND p.package_key = ? ${past.sql}`,
    [accountId, packageKey(id), ...past.values],
    (row) => row['version_key'] as string,
  );
}

/** When the first version of a package, or the one with a key, was published; undefined if there is none. */
export async function firstPublished(
  database: Database,
  accountId: number,
  id: string,
  key: string | undefined,
): Promise<number | undefined> {
  const row = await database.get<{ first: number | null }>(
    `SELECT MIN(v.published_at) AS first FROM ${join} WHERE p.account_id = ? AND p.package_key = ?
     ${key === undefined ? '' : 'AND v.version_key = ?'}`,
    [accountId, packageKey(id), ...(key === undefined ? [] : [key])],
  );
  return row?.first ?? undefined;
}

/** The pages of a package's registration, with or without SemVer 2 versions; `until` as above. Undefined if there is no version. */
export async function listPages(
  database: Database,
  accountId: number,
  id: string,
  semVer2: boolean,
  until?: number,
): Promise<RegisteredPage[] | undefined> {
  const past = publishedBy(until);
  const measured = await measuredOf(database, accountId, id);
  if (!measured) return undefined;
  const advisories = await advisoriesOf(database, accountId, id);
  const readFirst = async (limit: number) => {
    const values = [accountId, packageKey(id), semVer2 ? 1 : 0, ...past.values, limit];
    const sql = `SELECT ${columns} FROM ${join} WHERE ${all} ${past.sql} ORDER BY v.sort_key LIMIT ?`;
    return (await database.select<VersionRow>(sql, values)).map((row) => registered(row, advisories));
  };
  if (measured.metadata_bytes + inlineBelow * advisories.bytes <= pageBytes) {
    const versions = await readFirst(inlineBelow);
    if (versions.length < inlineBelow) return versions.length > 0 ? pagedInline(versions) : undefined;
  }
  const sizes = await sizesOf(database, accountId, id, semVer2, measured, advisories, until);
  if (sizes.length === 0) return undefined;
  return fitIndex(sizes) ? pagedInline(await readFirst(sizes.length)) : paged(sizes);
}

/** All versions in order, each with an upper bound of its metadata's bytes. Empty if there is no such package. */
export async function listSizes(
  database: Database,
  accountId: number,
  id: string,
  semVer2: boolean,
  until?: number,
): Promise<SizedVersion[]> {
  const measured = await measuredOf(database, accountId, id);
  if (!measured) return [];
  return sizesOf(database, accountId, id, semVer2, measured, await advisoriesOf(database, accountId, id), until);
}

async function sizesOf(
  database: Database,
  accountId: number,
  id: string,
  semVer2: boolean,
  { largest_metadata }: Measured,
  advisories: PackageAdvisories,
  until: number | undefined,
): Promise<SizedVersion[]> {
  const past = publishedBy(until);
  const largest = largest_metadata + advisories.bytes;
  // If a page of the largest versions fits, their sizes are not read: the index on the sort key is enough.
  const sized = largest * pageVersions > pageBytes;
  return inSteps(
    database,
    `SELECT v.version, v.sort_key${sized ? ', v.metadata_bytes AS bytes' : ''} FROM ${join} WHERE ${all} ${past.sql}`,
    [accountId, packageKey(id), semVer2 ? 1 : 0, ...past.values],
    (row) => ({
      version: row['version'] as string,
      bytes: sized ? (row['bytes'] as number) + advisories.bytes : largest,
    }),
  );
}

/**
 * The versions from `lower` to `upper`, both included, in order. Empty if there are none or a bound is not a version.
 * Throws `Invalid` if they are more than a page can contain.
 */
export async function listPage(
  database: Database,
  accountId: number,
  id: string,
  semVer2: boolean,
  lower: string,
  upper: string,
  until?: number,
): Promise<RegisteredVersion[]> {
  const past = publishedBy(until);
  const [from, to] = [parseVersion(lower), parseVersion(upper)];
  if (!from || !to) return [];
  const range = `${all} ${past.sql} AND v.sort_key BETWEEN ? AND ? ORDER BY v.sort_key LIMIT ?`;
  const bounds = [...past.values, sortKey(from), sortKey(to), rangeVersions + 1];
  const values = [accountId, packageKey(id), semVer2 ? 1 : 0, ...bounds];
  const measured = lower === upper ? undefined : await measuredOf(database, accountId, id);
  const advisories = await advisoriesOf(database, accountId, id);
  if (measured && (measured.largest_metadata + advisories.bytes) * rangeVersions > rangeBytes) {
    const sizes = await database.select<{ bytes: number }>(
      `SELECT v.metadata_bytes AS bytes FROM ${join} WHERE ${range}`,
      values,
    );
    const size = new RangeSize();
    for (const { bytes } of sizes) size.add({ bytes: bytes + advisories.bytes });
  }
  const rows = await database.select<VersionRow>(`SELECT ${columns} FROM ${join} WHERE ${range}`, values);
  if (rows.length > rangeVersions) throw rangeTooLong();
  return rows.map((row) => registered(row, advisories));
}

function measuredOf(database: Database, accountId: number, id: string): Promise<Measured | undefined> {
  return database.getCached<Measured & Row>(
    'SELECT metadata_bytes, largest_metadata FROM packages WHERE account_id = ? AND package_key = ?',
    [accountId, packageKey(id)],
  );
}

/** The listed versions in order, for autocompletion. */
export async function listListed(
  database: Database,
  accountId: number,
  id: string,
  prerelease: boolean,
  semVer2: boolean,
): Promise<string[]> {
  return inSteps(
    database,
    `SELECT v.full_version, v.sort_key FROM ${join} WHERE p.account_id = ? AND p.package_key = ? AND v.listed = 1
       AND v.prerelease <= ? AND v.semver2 <= ?`,
    [accountId, packageKey(id), prerelease ? 1 : 0, semVer2 ? 1 : 0],
    (row) => row['full_version'] as string,
  );
}

/**
 * The items of all rows, in the order of versions. `sql` ends with its conditions. SQLite reads in the process of the server, so
 * the rows of a package with very many versions are read in several statements.
 */
async function inSteps<T>(
  database: Database,
  sql: string,
  values: readonly Value[],
  itemOf: (row: Row) => T,
): Promise<T[]> {
  const items: T[] = [];
  let from: string | undefined;
  for (let limit = step; ;) {
    const rows: Row[] = await database.select(
      `${sql} ${from === undefined ? '' : 'AND v.sort_key >= ?'} ORDER BY v.sort_key LIMIT ?`,
      [...values, ...(from === undefined ? [] : [from]), limit],
    );
    const isLast = rows.length < limit;
    const last = rows.at(-1)?.['sort_key'] as string | undefined;
    // Different versions can be equal in order. Those that are equal to the last row are read again, all together.
    const complete = isLast ? rows : rows.filter((row) => row['sort_key'] !== last);
    for (const row of complete) items.push(itemOf(row));
    if (isLast) return items;
    from = last;
    limit = complete.length > 0 ? step : 2 * limit;
  }
}

function registered(
  { listed, icon, readme, metadata, deprecation, ...row }: VersionRow,
  advisories: PackageAdvisories,
): RegisteredVersion {
  return {
    ...row,
    listed: listed === 1,
    hasIcon: icon !== null,
    hasReadme: readme !== null,
    bytes: row.bytes + advisories.bytes,
    metadata: {
      ...parseMetadata(metadata),
      deprecation: storedDeprecation(deprecation),
      vulnerabilities: advisories.of(row.version),
    },
  };
}
