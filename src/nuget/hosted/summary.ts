import type { NameSet } from '../../accounts/names.ts';
import type { Database, Row } from '../../database/database.ts';
import { DomainError } from '../../runtime/errors.ts';
import { storedDeprecation } from '../format/deprecation.ts';
import { parseMetadata, type VersionMetadata } from '../format/metadata.ts';
import { advisoriesOf } from './advisories.ts';
import { packageKey } from './packages.ts';

/** A package as the management API shows it. Times are milliseconds since 1970 UTC. */
export interface PackageSummary {
  /** Its position in the list, for `listPackages`. */
  key: string;
  id: string;
  /** `Dependency`, `DotnetTool` and others, from the newest version. */
  packageTypes: string[];
  /** The newest listed release, else the newest listed prerelease; null if all are unlisted. */
  latestVersion: string | null;
  versionCount: number;
  sizeBytes: number;
  downloadCount: number;
  createdAt: number;
  updatedAt: number;
  lastDownloadedAt: number | null;
}

export interface VersionSummary {
  version: string;
  listed: boolean;
  publishedAt: number;
  sizeBytes: number;
  /** Hash of the nupkg, in Base64. */
  sha512: string;
  downloadCount: number;
}

export interface PackageDetails extends PackageSummary {
  /** Newest first, up to `shownVersions`. */
  versions: VersionSummary[];
}

/** Most ranges that are shown of a dependency. */
const maxRanges = 5;
/** Most versions that are shown of a package; `versionCount` counts all. */
export const shownVersions = 1000;

const columns = `p.*, v.version AS latest_version FROM packages p
  LEFT JOIN package_versions v ON v.id = COALESCE(p.latest_stable2, p.latest_pre2)`;

/** Up to `limit` packages of the account that have a version, by key, after the key `after`. `only` limits the ids. */
export async function listPackages(
  database: Database,
  accountId: number,
  limit: number,
  after = '',
  only?: NameSet,
): Promise<PackageSummary[]> {
  const among = only?.where('p.package_key');
  const rows = await database.select(
    `SELECT ${columns} WHERE p.account_id = ? AND p.package_key > ? AND p.version_count > 0
     ${among ? `AND ${among.sql}` : ''} ORDER BY p.package_key LIMIT ?`,
    [accountId, after, ...(among?.values ?? []), limit],
  );
  return rows.map(summaryOf);
}

/** One package with its versions. Throws `NotFound` if the account has no version of it. */
export async function getPackage(database: Database, accountId: number, id: string): Promise<PackageDetails> {
  const row = await database.get(
    `SELECT ${columns} WHERE p.account_id = ? AND p.package_key = ? AND p.version_count > 0`,
    [accountId, packageKey(id)],
  );
  if (!row) throw packageNotFound(id);
  const versions = await database.select(
    `SELECT version, listed, published_at, size_bytes, sha512, download_count FROM package_versions
     WHERE package_row = ? ORDER BY sort_key DESC LIMIT ?`,
    [row['id']!, shownVersions],
  );
  return { ...summaryOf(row), versions: versions.map(versionOf) };
}

/**
 * Up to `limit` versions of a package, the newest first, after the one with the sort key `after`. Throws `NotFound` if the
 * account has no version of it.
 */
export async function listVersions(
  database: Database,
  accountId: number,
  id: string,
  limit: number,
  after: string | undefined,
): Promise<(VersionSummary & { order: string })[]> {
  const found = await database.get<{ id: number }>(
    'SELECT id FROM packages WHERE account_id = ? AND package_key = ? AND version_count > 0',
    [accountId, packageKey(id)],
  );
  if (!found) throw packageNotFound(id);
  const rows = await database.select(
    `SELECT version, sort_key, listed, published_at, size_bytes, sha512, download_count FROM package_versions
     WHERE package_row = ? ${after === undefined ? '' : 'AND sort_key < ?'} ORDER BY sort_key DESC LIMIT ?`,
    [found.id, ...(after === undefined ? [] : [after]), limit],
  );
  return rows.map((row) => ({ ...versionOf(row), order: row['sort_key'] as string }));
}

/**
 * Up to `limit` packages of the account whose newest listed version depends on `id`, by key, after the key `after`. `only`
 * limits the ids.
 */
export async function listDependents(
  database: Database,
  accountId: number,
  id: string,
  limit: number,
  after = '',
  only?: NameSet,
): Promise<{ key: string; id: string; version: string; ranges: string[] }[]> {
  const among = only?.where('p.package_key');
  const key = packageKey(id);
  const rows = await database.select<{ package_key: string; package_id: string; version: string; metadata: string }>(
    `SELECT p.package_key, p.package_id, v.version, v.metadata FROM package_dependencies d
     JOIN packages p ON p.id = d.package_row JOIN package_versions v ON v.id = p.latest_pre2
     WHERE d.account_id = ? AND d.dependency_key = ? AND p.package_key > ? ${among ? `AND ${among.sql}` : ''}
     ORDER BY p.package_key LIMIT ?`,
    [accountId, key, after, ...(among?.values ?? []), limit],
  );
  return rows.map((row) => {
    const groups = parseMetadata(row.metadata).dependencyGroups ?? [];
    const dependencies = groups.flatMap((group) => group.dependencies.filter((each) => packageKey(each.id) === key));
    const ranges = [...new Set(dependencies.map(({ range }) => range))].slice(0, maxRanges);
    return { key: row.package_key, id: row.package_id, version: row.version, ranges };
  });
}

/** One version of a package by its key, with its metadata; undefined if the account does not have it. */
export async function getVersion(
  database: Database,
  accountId: number,
  id: string,
  key: string,
): Promise<(VersionSummary & { id: string; upstream: null; metadata: VersionMetadata }) | undefined> {
  const row = await database.get(
    `SELECT v.version, v.listed, v.published_at, v.size_bytes, v.sha512, v.download_count, v.metadata,
       v.deprecation, p.package_id
     FROM packages p JOIN package_versions v ON v.package_row = p.id
     WHERE p.account_id = ? AND p.package_key = ? AND v.version_key = ?`,
    [accountId, packageKey(id), key],
  );
  if (!row) return undefined;
  const advisories = await advisoriesOf(database, accountId, id);
  const metadata = {
    ...parseMetadata(row['metadata'] as string),
    deprecation: storedDeprecation(row['deprecation'] as string | null),
    vulnerabilities: advisories.of(row['version'] as string),
  };
  return { ...versionOf(row), id: row['package_id'] as string, upstream: null, metadata };
}

function packageNotFound(id: string): DomainError {
  return new DomainError('NotFound', `This account has no package ${id.slice(0, 100)}.`);
}

function versionOf(row: Row): VersionSummary {
  return {
    version: row['version'] as string,
    listed: row['listed'] === 1,
    publishedAt: row['published_at'] as number,
    sizeBytes: row['size_bytes'] as number,
    sha512: row['sha512'] as string,
    downloadCount: row['download_count'] as number,
  };
}

function summaryOf(row: Row): PackageSummary {
  return {
    key: row['package_key'] as string,
    id: row['package_id'] as string,
    packageTypes: (row['package_types'] as string).split(' ').filter(Boolean),
    latestVersion: row['latest_version'] as string | null,
    versionCount: row['version_count'] as number,
    sizeBytes: row['size_bytes'] as number,
    downloadCount: row['download_count'] as number,
    createdAt: row['created_at'] as number,
    updatedAt: row['updated_at'] as number,
    lastDownloadedAt: row['last_downloaded_at'] as number | null,
  };
}
