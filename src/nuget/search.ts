import { placeholders, type Database } from '../database/database.ts';
import { parseMetadata, type VersionMetadata } from './metadata.ts';
import { views, viewOf } from './packages.ts';
import { countOf, listsOf, pageOf } from './search-lists.ts';
import type { SearchQuery } from './search-query.ts';

/** What a client asks of a search. */
export interface SearchOptions {
  prerelease: boolean;
  semVer2: boolean;
  skip: number;
  take: number;
}

/** A package that was found, as the newest version that its client sees shows it. */
export interface SearchHit {
  /** Normalised. */
  version: string;
  /** With its `+metadata`. */
  fullVersion: string;
  hasIcon: boolean;
  metadata: VersionMetadata;
  totalDownloads: number;
  /** Those that the client sees, in order. */
  versions: { version: string; fullVersion: string; downloads: number }[];
}

export interface SearchResults<T> {
  /** Exact up to some hundred hits beyond the page; more than those that were passed when there are more. */
  totalHits: number;
  data: T[];
}

/** How many packages beyond the page are looked at to count hits. */
const countLimit = 1000;

/** The packages that `query` finds, in the order of `search-lists.ts`; see `SearchHit`. */
export async function search(
  database: Database,
  accountId: number,
  query: SearchQuery,
  options: SearchOptions,
): Promise<SearchResults<SearchHit>> {
  const { totalHits, data } = await find(database, accountId, query, options);
  return { totalHits, data: await hitsOf(database, data, options) };
}

/** The ids of the packages that `query` finds, as their newest versions write them. */
export async function findIds(
  database: Database,
  accountId: number,
  query: SearchQuery,
  options: SearchOptions,
): Promise<SearchResults<string>> {
  const { totalHits, data } = await find(database, accountId, query, options);
  if (data.length === 0) return { totalHits, data: [] };
  const rows = await database.select<{ id: number; package_id: string }>(
    `SELECT id, package_id FROM packages WHERE id IN (${placeholders(data)})`,
    data,
  );
  const names = new Map(rows.map((row) => [row.id, row.package_id]));
  return { totalHits, data: data.flatMap((row) => names.get(row) ?? []) };
}

/** Rows of packages: one read for the page and, where a list went on behind it, one to count. */
async function find(
  database: Database,
  accountId: number,
  query: SearchQuery,
  { prerelease, semVer2, skip, take }: SearchOptions,
): Promise<SearchResults<number>> {
  const lists = await listsOf(database, accountId, query, views[viewOf(prerelease, semVer2)].bit);
  if (lists.length === 0) return { totalHits: 0, data: [] };
  const end = skip + take;
  const pages = lists.map((list) => pageOf(database, list));
  const rows = await database.select<{ list: number; id: number; standing: number }>(
    pages.map(({ sql }, list) => `SELECT ${list} AS list, id, standing FROM (${sql}) AS l${list}`).join(' UNION ALL '),
    // One more than the page, to know whether there is one.
    pages.flatMap(({ values }) => [...values, end + 1]),
  );
  const found = lists.map((_, list) => rows.filter((row) => row.list === list));
  const data = found.flatMap((each) => each.toSorted((a, b) => a.standing - b.standing).slice(0, end));
  const longer = lists.filter((_, list) => found[list]!.length > end);
  let totalHits = rows.length;
  if (longer.length > 0) {
    const counts = longer.map((list) => countOf(database, list, end + countLimit));
    const counted = await database.get<Record<string, number>>(
      `SELECT ${counts.map(({ sql }, index) => `(${sql}) AS c${index}`).join(', ')}`,
      counts.flatMap(({ values }) => values),
    );
    for (const count of Object.values(counted!)) totalHits += Math.max(0, count - (end + 1));
  }
  return { totalHits, data: data.slice(skip, end).map((row) => row.id) };
}

/** What the client sees of these packages, in their order. */
async function hitsOf(
  database: Database,
  packages: readonly number[],
  { prerelease, semVer2 }: SearchOptions,
): Promise<SearchHit[]> {
  if (packages.length === 0) return [];
  const { latest } = views[viewOf(prerelease, semVer2)];
  const rows = await database.select<HitRow>(
    `SELECT v.package_row, v.version, v.full_version, v.download_count, p.download_count AS total,
       CASE WHEN v.id = p.${latest} THEN v.metadata END AS metadata, v.icon_digest
     FROM packages p JOIN package_versions v ON v.package_row = p.id
     WHERE p.id IN (${placeholders(packages)}) AND v.listed = 1 AND v.prerelease <= ? AND v.semver2 <= ?
     ORDER BY v.package_row, v.sort_key`,
    [...packages, prerelease ? 1 : 0, semVer2 ? 1 : 0],
  );
  const hits = new Map<number, SearchHit>();
  let versions: SearchHit['versions'] = [];
  let current: number | undefined;
  for (const row of rows) {
    if (row.package_row !== current) versions = [];
    current = row.package_row;
    versions.push({ version: row.version, fullVersion: row.full_version, downloads: row.download_count });
    if (row.metadata === null) continue;
    hits.set(row.package_row, {
      version: row.version,
      fullVersion: row.full_version,
      hasIcon: row.icon_digest !== null,
      metadata: parseMetadata(row.metadata),
      totalDownloads: row.total,
      versions,
    });
  }
  return packages.flatMap((row) => hits.get(row) ?? []);
}

interface HitRow {
  package_row: number;
  version: string;
  full_version: string;
  download_count: number;
  total: number;
  metadata: string | null;
  icon_digest: string | null;
}
