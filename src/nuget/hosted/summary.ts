import type { NameSet } from '../../accounts/names.ts';
import type { AccountList } from '../../accounts/shared-names.ts';
import { placeholders, type Database, type Value } from '../../database/database.ts';
import { rankedRows } from '../../database/ranked-rows.ts';
import { type Rank, type Ranked } from '../../runtime/ranked.ts';
import { DomainError } from '../../runtime/errors.ts';
import { storedDeprecation } from '../format/deprecation.ts';
import { parseMetadata, type VersionMetadata } from '../format/metadata.ts';
import { advisoriesOf } from './advisories.ts';
import type { SizedName } from '../../usage/stored.ts';
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
  /** The upstream of a mirrored package, whose numbers count only stored versions; null for a hosted one. */
  upstream: string | null;
}

export interface VersionSummary {
  version: string;
  listed: boolean;
  publishedAt: number;
  sizeBytes: number;
  /** Hash of the nupkg, in Base64. */
  sha512: string;
  downloadCount: number;
  /** When it was copied from an upstream; null for a hosted version. */
  cachedAt: number | null;
  /** When its upstream had certainly withdrawn it; null for others. */
  withdrawnAt: number | null;
}

export interface PackageDetails extends PackageSummary {
  /** Newest first, up to `shownVersions`. */
  versions: VersionSummary[];
}

/** Most ranges that are shown of a dependency. */
const maxRanges = 5;
/** Most versions that are shown of a package; `versionCount` counts all. */
export const shownVersions = 1000;

const columns = `p.package_key AS packageKey, p.package_id AS id, p.package_types AS types, v.version AS latestVersion,
  p.version_count AS versionCount, p.size_bytes AS sizeBytes, p.download_count AS downloadCount,
  p.created_at AS createdAt, p.updated_at AS updatedAt, p.last_downloaded_at AS lastDownloadedAt`;
const newest = `packages p LEFT JOIN package_versions v ON v.id = COALESCE(p.latest_stable2, p.latest_pre2)`;
const versionColumns = `v.version, v.listed, v.published_at AS publishedAt, v.size_bytes AS sizeBytes, v.sha512,
  v.download_count AS downloadCount`;
const listedVersionColumns = `v.sort_key AS sortKey, ${versionColumns}`;

type SummaryRow = Omit<PackageSummary, 'key' | 'packageTypes' | 'upstream'> & { packageKey: string; types: string };
type VersionRow = Omit<VersionSummary, 'listed' | 'cachedAt' | 'withdrawnAt'> & { listed: number };
type ListedRow = VersionRow & { sortKey: string };

/** Up to `limit` packages of the account that have a version, by key, after the key `after`. `only` limits the ids. */
export async function listPackages(
  database: Database,
  accountId: number,
  limit: number,
  after = '',
  only?: NameSet,
): Promise<PackageSummary[]> {
  const among = only?.where('p.package_key');
  const rows = await database.select<SummaryRow>(
    `SELECT ${columns} FROM ${newest} WHERE p.account_id = ? AND p.package_key > ? AND p.version_count > 0
     ${among ? `AND ${among.sql}` : ''} ORDER BY p.package_key LIMIT ?`,
    [accountId, after, ...(among?.values ?? []), limit],
  );
  return rows.map(summaryOf);
}

/** The numbers by which packages are sorted, the largest first. */
export const packageOrders = {
  versions: { column: 'version_count', counted: 'refs' },
  size: { column: 'size_bytes', counted: 'bytes' },
  downloads: { column: 'download_count', counted: 'downloads' },
  updated: { column: 'updated_at', counted: 'storedAt' },
  used: { column: 'last_downloaded_at', counted: 'usedAt' },
} as const;

/** Packages whose ID contains `text`, which is in lower case. */
interface PackageFilter extends Omit<AccountList, 'accountId'> {
  text: string;
}

const ofOther = 'SELECT 1 FROM packages o WHERE o.account_id = ? AND o.package_key = p.package_key';

function filtered(accountId: number, { text, only, without }: PackageFilter): { sql: string; values: Value[] } {
  const among = only?.where('p.package_key');
  return {
    sql: `p.account_id = ? AND p.size_bytes > 0 ${text === '' ? '' : 'AND INSTR(p.package_key, ?) > 0'}
      ${among ? `AND ${among.sql}` : ''} ${without === undefined ? '' : `AND (${ofOther} LIMIT 1) IS NULL`}`,
    values: [
      accountId,
      ...(text === '' ? [] : [text]),
      ...(among?.values ?? []),
      ...(without === undefined ? [] : [without]),
    ],
  };
}

/** Up to `limit` packages of the account that have a version, sorted by a number or by key, after `after`. */
export async function rankedPackages(
  database: Database,
  accountId: number,
  { sort, ...filter }: PackageFilter & { sort: keyof typeof packageOrders | undefined },
  limit: number,
  after: Rank | undefined,
): Promise<Ranked<PackageSummary>[]> {
  const { sql, values } = filtered(accountId, filter);
  const statement = {
    columns,
    from: `${newest} WHERE ${sql}`,
    values,
    value: sort && `p.${packageOrders[sort].column}`,
    name: 'p.package_key',
  };
  const rows = await rankedRows<SummaryRow>(database, statement, limit, after);
  return rows.map(({ rank, item }) => ({ rank, item: summaryOf(item) }));
}

/** How many packages of the account have a version, and their bytes. */
export async function totalOfPackages(database: Database, accountId: number, filter: PackageFilter) {
  const { sql, values } = filtered(accountId, filter);
  return (await database.get<{ count: number; bytes: number }>(
    `SELECT COUNT(*) AS count, COALESCE(SUM(p.size_bytes), 0) AS bytes FROM packages p WHERE ${sql}`,
    values,
  ))!;
}

/** The version that lists show as the newest, by package key: of packages that the account hosts. */
export async function newestVersions(
  database: Database,
  accountId: number,
  keys: readonly string[],
): Promise<Map<string, string | null>> {
  if (keys.length === 0) return new Map();
  const rows = await database.select<{ packageKey: string; version: string | null }>(
    `SELECT p.package_key AS packageKey, v.version FROM ${newest}
     WHERE p.account_id = ? AND p.package_key IN (${placeholders(keys)})`,
    [accountId, ...keys],
  );
  return new Map(rows.map(({ packageKey: key, version }) => [key, version]));
}

/** One package with its versions. Throws `NotFound` if the account has no version of it. */
export async function getPackage(database: Database, accountId: number, id: string): Promise<PackageDetails> {
  const row = await database.get<SummaryRow>(
    `SELECT ${columns} FROM ${newest} WHERE p.account_id = ? AND p.package_key = ? AND p.version_count > 0`,
    [accountId, packageKey(id)],
  );
  if (!row) throw packageNotFound(id);
  return { ...summaryOf(row), versions: await listVersions(database, accountId, id, shownVersions, undefined) };
}

/** Up to `limit` packages that the account hosts, the largest first. */
export function largestPackages(database: Database, accountId: number, limit: number): Promise<SizedName[]> {
  return database.select<SizedName>(
    `SELECT package_id AS name, size_bytes AS sizeBytes, updated_at AS changedAt, last_downloaded_at AS lastUsedAt
     FROM packages WHERE account_id = ? AND size_bytes > 0 ORDER BY size_bytes DESC LIMIT ?`,
    [accountId, limit],
  );
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
  isRising = false,
): Promise<(VersionSummary & { order: string })[]> {
  const row = await packageRowOf(database, accountId, id);
  const [than, direction] = isRising ? ['>', 'ASC'] : ['<', 'DESC'];
  const rows = await database.select<ListedRow>(
    `SELECT ${listedVersionColumns} FROM package_versions v
     WHERE package_row = ? ${after === undefined ? '' : `AND sort_key ${than} ?`} ORDER BY sort_key ${direction} LIMIT ?`,
    [row, ...(after === undefined ? [] : [after]), limit],
  );
  return rows.map(listedOf);
}

/** The numbers by which versions are sorted, the largest first. */
export const versionOrders = {
  size: { column: 'size_bytes', field: 'sizeBytes' },
  downloads: { column: 'download_count', field: 'downloadCount' },
} as const;

/** As `listVersions`, the largest first, then the oldest version. */
export async function rankedVersions(
  database: Database,
  accountId: number,
  id: string,
  sort: keyof typeof versionOrders,
  limit: number,
  after: Rank | undefined,
): Promise<Ranked<VersionSummary & { order: string }>[]> {
  const statement = {
    columns: listedVersionColumns,
    from: 'package_versions v WHERE v.package_row = ?',
    values: [await packageRowOf(database, accountId, id)],
    value: `v.${versionOrders[sort].column}`,
    name: 'v.sort_key',
  };
  const rows = await rankedRows<ListedRow>(database, statement, limit, after);
  return rows.map(({ rank, item }) => ({ rank, item: listedOf(item) }));
}

/** The row of a package that has a version. Throws `NotFound`. */
async function packageRowOf(database: Database, accountId: number, id: string): Promise<number> {
  const found = await database.get<{ id: number }>(
    'SELECT id FROM packages WHERE account_id = ? AND package_key = ? AND version_count > 0',
    [accountId, packageKey(id)],
  );
  if (!found) throw packageNotFound(id);
  return found.id;
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
  const found = await database.get<VersionRow & { id: string; metadata: string; deprecation: string | null }>(
    `SELECT ${versionColumns}, v.metadata, v.deprecation, p.package_id AS id
     FROM packages p JOIN package_versions v ON v.package_row = p.id
     WHERE p.account_id = ? AND p.package_key = ? AND v.version_key = ?`,
    [accountId, packageKey(id), key],
  );
  if (!found) return undefined;
  const { metadata, deprecation, ...row } = found;
  const advisories = await advisoriesOf(database, accountId, id);
  const described = {
    ...parseMetadata(metadata),
    deprecation: storedDeprecation(deprecation),
    vulnerabilities: advisories.of(row.version),
  };
  return { ...versionOf(row), id: row.id, upstream: null, metadata: described };
}

function packageNotFound(id: string): DomainError {
  return new DomainError('NotFound', `This account has no package ${id.slice(0, 100)}.`);
}

function listedOf({ sortKey, ...row }: ListedRow): VersionSummary & { order: string } {
  return { ...versionOf(row), order: sortKey };
}

function versionOf<T extends VersionRow>({ listed, ...row }: T) {
  return { ...row, listed: listed === 1, cachedAt: null, withdrawnAt: null };
}

function summaryOf({ packageKey: key, types, ...row }: SummaryRow): PackageSummary {
  return { ...row, key, packageTypes: types.split(' ').filter(Boolean), upstream: null };
}
