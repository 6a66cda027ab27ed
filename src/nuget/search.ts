import { placeholders, type Database } from '../database/database.ts';
import { parseMetadata, type VersionMetadata } from './metadata.ts';
import { views, viewOf } from './packages.ts';
import { SearchLists, type List } from './search-lists.ts';
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
  /** Exact up to some hundred hits beyond the page; from there on a number that there are at least. */
  totalHits: number;
  data: T[];
}

/** A package, its list and its standing there. */
interface Found {
  list: number;
  id: number;
  standing: number;
}

interface LatestRow {
  id: number;
  version: string;
  full_version: string;
  icon_digest: string | null;
  metadata: string;
  download_count: number;
}

interface VersionRow {
  package_row: number;
  version: string;
  full_version: string;
  download_count: number;
}

/** Search among the hosted packages; its order is that of `SearchLists`. */
export class Search {
  readonly #database: Database;
  readonly #lists: SearchLists;

  constructor(database: Database) {
    this.#database = database;
    this.#lists = new SearchLists(database);
  }

  /** The packages of the account that `query` finds. */
  async find(accountId: number, query: SearchQuery, options: SearchOptions): Promise<SearchResults<SearchHit>> {
    const { totalHits, data } = await this.#find(accountId, query, options);
    return { totalHits, data: data.length === 0 ? [] : await this.#hits(data, options) };
  }

  /** Their ids alone, as the newest versions write them. */
  async findIds(accountId: number, query: SearchQuery, options: SearchOptions): Promise<SearchResults<string>> {
    const { totalHits, data } = await this.#find(accountId, query, options);
    if (data.length === 0) return { totalHits, data: [] };
    const ids = data.map(({ id }) => id);
    const rows = await this.#database.select<{ id: number; package_id: string }>(
      `SELECT id, package_id FROM packages WHERE id IN (${placeholders(ids)})`,
      ids,
    );
    const names = new Map(rows.map((row) => [row.id, row.package_id]));
    return { totalHits, data: ids.flatMap((id) => names.get(id) ?? []) };
  }

  /** One read for the page and, where a list goes on behind it, one to count. */
  async #find(
    accountId: number,
    query: SearchQuery,
    { prerelease, semVer2, skip, take }: SearchOptions,
  ): Promise<SearchResults<Found>> {
    const lists = await this.#lists.of(accountId, query, views[viewOf(prerelease, semVer2)].bit);
    if (lists.length === 0) return { totalHits: 0, data: [] };
    const end = skip + take;
    const pages = lists.map((list) => this.#lists.page(list));
    const rows = await this.#database.select<Found>(
      pages
        .map(({ sql }, list) => `SELECT ${list} AS list, id, standing FROM (${sql}) AS l${list}`)
        .join(' UNION ALL '),
      // One more than the page, to know whether there is one.
      pages.flatMap(({ values }) => [...values, end + 1]),
    );
    const found = lists.map((_, list) => rows.filter((row) => row.list === list));
    const data = found.flatMap((each) => each.toSorted((a, b) => a.standing - b.standing).slice(0, end));
    const longer = lists.filter((_, list) => found[list]!.length > end);
    return { totalHits: rows.length + (await this.#countBehind(longer, end)), data: data.slice(skip, end) };
  }

  /** How many hits these lists have behind the one after their `end`th. */
  async #countBehind(lists: readonly List[], end: number): Promise<number> {
    const some = lists.filter(({ counted }) => counted > 0);
    let behind = lists.reduce((sum, list) => sum + (list.counted > 0 ? 0 : list.behind), 0);
    if (some.length === 0) return behind;
    const counts = some.map((list) => this.#lists.count(list, end));
    const counted = await this.#database.get<Record<string, number>>(
      `SELECT ${counts.map(({ sql }, index) => `(${sql}) AS c${index}`).join(', ')}`,
      counts.flatMap(({ values }) => values),
    );
    for (const count of Object.values(counted!)) behind += Math.max(0, count - (end + 1));
    return behind;
  }

  /** What the client sees of these packages, in their order; equals in standing by their exact downloads. */
  async #hits(found: readonly Found[], { prerelease, semVer2 }: SearchOptions): Promise<SearchHit[]> {
    const { latest } = views[viewOf(prerelease, semVer2)];
    const ids = found.map(({ id }) => id);
    const [newest, all] = await Promise.all([
      this.#database.select<LatestRow>(
        `SELECT p.id, v.version, v.full_version, v.icon_digest, v.metadata, p.download_count
         FROM packages p JOIN package_versions v ON v.id = p.${latest} WHERE p.id IN (${placeholders(ids)})`,
        ids,
      ),
      this.#database.select<VersionRow>(
        `SELECT package_row, version, full_version, download_count FROM package_versions
         WHERE package_row IN (${placeholders(ids)}) AND listed = 1 AND prerelease <= ? AND semver2 <= ?
         ORDER BY package_row, sort_key`,
        [...ids, prerelease ? 1 : 0, semVer2 ? 1 : 0],
      ),
    ]);
    const byPackage = new Map(newest.map((row) => [row.id, { row, versions: [] as SearchHit['versions'] }]));
    for (const { package_row, version, full_version, download_count } of all) {
      byPackage.get(package_row)?.versions.push({ version, fullVersion: full_version, downloads: download_count });
    }
    return found
      .flatMap((each) => {
        const known = byPackage.get(each.id);
        return known ? { ...each, ...known } : [];
      })
      .sort((a, b) => a.list - b.list || a.standing - b.standing || b.row.download_count - a.row.download_count)
      .map(({ row, versions }) => ({
        version: row.version,
        fullVersion: row.full_version,
        hasIcon: row.icon_digest !== null,
        metadata: parseMetadata(row.metadata),
        totalDownloads: row.download_count,
        versions,
      }));
  }
}
