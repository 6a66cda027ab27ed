import type { Database, Value } from '../database/database.ts';
import { parseMetadata, type VersionMetadata } from './metadata.ts';
import { packageKey } from './packages.ts';
import { parseVersion, sortKey } from './version.ts';

/** A version as registration shows it. */
export interface RegisteredVersion {
  /** Normalised. */
  version: string;
  /** With its `+metadata`. */
  fullVersion: string;
  listed: boolean;
  publishedAt: number;
  /** As its upstream wrote it, to the last digit. */
  published?: string;
  /** Of the nupkg, in Base64. */
  sha512?: string;
  hasIcon: boolean;
  hasReadme: boolean;
  metadata: VersionMetadata;
}

/** One page of a registration: versions from `lower` to `upper`, both normalised and included. */
export interface RegisteredPage {
  lower: string;
  upper: string;
  count: number;
  /** Absent where the index is too long to hold all versions. */
  items?: RegisteredVersion[];
}

/** As the public gallery does: 64 versions a page, and all of them in the index while they are fewer than 128. */
const pageSize = 64;
const inlineBelow = 128;
/** A page grows when versions are published in between; more than this is no page of ours. */
const pageLimit = 1024;

const columns = `v.version, v.full_version, v.listed, v.published_at, v.sha512, v.icon_digest, v.readme_digest, v.metadata`;
const join = 'packages p JOIN package_versions v ON v.package_row = p.id';

interface VersionRow {
  version: string;
  full_version: string;
  listed: number;
  published_at: number;
  sha512: string;
  icon_digest: string | null;
  readme_digest: string | null;
  metadata: string;
}

/**
 * What all documents of a package depend on: another one after each change to its versions. Undefined when the account
 * has no such package.
 */
export async function revisionOf(database: Database, accountId: number, id: string): Promise<string | undefined> {
  const row = await database.recall<{ id: number; created_at: number; revision: number }>(
    'SELECT id, created_at, revision FROM packages WHERE account_id = ? AND package_key = ?',
    [accountId, packageKey(id)],
  );
  return row && `${row.id}/${row.created_at}/${row.revision}`;
}

/** The keys of all versions, listed or not, in order; empty when the account has no such package. */
export async function listVersionKeys(database: Database, accountId: number, id: string): Promise<string[]> {
  const rows = await database.select<{ version_key: string }>(
    `SELECT v.version_key FROM ${join} WHERE p.account_id = ? AND p.package_key = ? ORDER BY v.sort_key`,
    [accountId, packageKey(id)],
  );
  return rows.map((row) => row.version_key);
}

/** The pages of a package's registration, with or without SemVer 2 versions; undefined when it has no version. */
export async function listPages(
  database: Database,
  accountId: number,
  id: string,
  semVer2: boolean,
): Promise<RegisteredPage[] | undefined> {
  const where = `p.account_id = ? AND p.package_key = ? AND v.semver2 <= ? ORDER BY v.sort_key`;
  const values: Value[] = [accountId, packageKey(id), semVer2 ? 1 : 0];
  const rows = await database.select<VersionRow>(
    `SELECT ${columns} FROM ${join} WHERE ${where} LIMIT ${inlineBelow}`,
    values,
  );
  if (rows.length === 0) return undefined;
  if (rows.length < inlineBelow) return paged(rows.map(registered));
  const narrow = await database.select<{ version: string }>(`SELECT v.version FROM ${join} WHERE ${where}`, values);
  return pagesOf(narrow, false);
}

/** The pages of a registration with these versions; with the versions in them while they are few. */
export function paged(versions: readonly RegisteredVersion[]): RegisteredPage[] {
  return pagesOf(versions, versions.length < inlineBelow);
}

/** The versions between two, both included, in order; empty when there are none or the bounds are no versions. */
export async function listPage(
  database: Database,
  accountId: number,
  id: string,
  semVer2: boolean,
  lower: string,
  upper: string,
): Promise<RegisteredVersion[]> {
  const [from, to] = [parseVersion(lower), parseVersion(upper)];
  if (!from || !to) return [];
  const rows = await database.select<VersionRow>(
    `SELECT ${columns} FROM ${join}
     WHERE p.account_id = ? AND p.package_key = ? AND v.semver2 <= ? AND v.sort_key BETWEEN ? AND ?
     ORDER BY v.sort_key LIMIT ${pageLimit}`,
    [accountId, packageKey(id), semVer2 ? 1 : 0, sortKey(from), sortKey(to)],
  );
  return rows.map(registered);
}

/** The versions that a client may choose from, in order: listed ones, as autocompletion shows them. */
export async function listListed(
  database: Database,
  accountId: number,
  id: string,
  prerelease: boolean,
  semVer2: boolean,
): Promise<string[]> {
  const rows = await database.select<{ full_version: string }>(
    `SELECT v.full_version FROM ${join} WHERE p.account_id = ? AND p.package_key = ? AND v.listed = 1
       AND v.prerelease <= ? AND v.semver2 <= ? ORDER BY v.sort_key`,
    [accountId, packageKey(id), prerelease ? 1 : 0, semVer2 ? 1 : 0],
  );
  return rows.map((row) => row.full_version);
}

function registered(row: VersionRow): RegisteredVersion {
  return {
    version: row.version,
    fullVersion: row.full_version,
    listed: row.listed === 1,
    publishedAt: row.published_at,
    sha512: row.sha512,
    hasIcon: row.icon_digest !== null,
    hasReadme: row.readme_digest !== null,
    metadata: parseMetadata(row.metadata),
  };
}

function pagesOf(versions: readonly { version: string }[], inline: boolean): RegisteredPage[] {
  const pages: RegisteredPage[] = [];
  for (let start = 0; start < versions.length; start += pageSize) {
    const items = versions.slice(start, start + pageSize);
    const page = { lower: items[0]!.version, upper: items.at(-1)!.version, count: items.length };
    pages.push(inline ? { ...page, items: items as RegisteredVersion[] } : page);
  }
  return pages;
}
