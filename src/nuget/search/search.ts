import type { AccountList } from '../../accounts/shared-names.ts';
import { placeholders, type Database, type Value } from '../../database/database.ts';
import { pause, withPauses } from '../../runtime/event-loop.ts';
import { firstOfEach } from '../../runtime/sorted.ts';
import { storedDeprecation } from '../format/deprecation.ts';
import { parseMetadata } from '../format/metadata.ts';
import { packageKey, views, viewOf } from '../hosted/packages.ts';
import { maxVersions, versionsEach, type SearchHit } from '../format/search-hit.ts';
import { SearchLists, type Group } from './search-lists.ts';
import type { SearchQuery } from './search-query.ts';

/** Options of a search. */
export interface SearchOptions {
  prerelease: boolean;
  semVer2: boolean;
  skip: number;
  take: number;
}

/** The accounts whose packages a search finds. Of the others, the ids that the first one claims are left out. */
export type SearchedAccounts = readonly [AccountList, ...AccountList[]];

export interface SearchResults<T> {
  /** Exact up to a few hundred hits beyond the page; above that, or if a list is too long to check all of it, a lower bound. */
  totalHits: number;
  data: T[];
}

/** A found package, the number of its group, and its standing in that group. */
interface Found {
  groupIndex: number;
  id: number;
  standing: number;
}

interface LatestRow {
  id: number;
  version_row: number;
  version: string;
  full_version: string;
  icon_digest: string | null;
  /** Null if it is longer than `shortMetadata`: then it is read in its own statement. */
  metadata: string | null;
  deprecation: string | null;
  download_count: number;
}

interface VersionRow {
  package_row: number;
  version: string;
  full_version: string;
  download_count: number;
}

/**
 * Rows of a list beyond the page's end that MySQL reads at first: it copies all rows of a limited list before it checks
 * the first one. SQLite checks each row as it reads it.
 */
const firstRows = 1000;
/** Bytes of the longest metadata that is read for all hits in one statement. */
const shortMetadata = 16 * 1024;

/** Searches the hosted packages. The hits are in the order of `SearchLists`. */
export class Search {
  readonly #database: Database;
  readonly #lists: SearchLists;

  constructor(database: Database) {
    this.#database = database;
    this.#lists = new SearchLists(database);
  }

  /** The packages that `query` finds: those of the first account, then those of the others. */
  find(accounts: SearchedAccounts, query: SearchQuery, options: SearchOptions): Promise<SearchResults<SearchHit>> {
    const find = async (list: AccountList, page: SearchOptions) => {
      const { totalHits, data } = await this.#find(list, query, page);
      return { totalHits, data: data.length === 0 ? [] : await this.#hits(data, page) };
    };
    return this.#inAll(accounts, options, find, ({ metadata }) => metadata.id);
  }

  /** Only the ids, in the spelling of the newest versions. */
  findIds(accounts: SearchedAccounts, query: SearchQuery, options: SearchOptions): Promise<SearchResults<string>> {
    const find = async (list: AccountList, page: SearchOptions) => {
      const { totalHits, data } = await this.#find(list, query, page);
      if (data.length === 0) return { totalHits, data: [] };
      const ids = data.map(({ id }) => id);
      const rows = await this.#database.select<{ id: number; package_id: string }>(
        `SELECT id, package_id FROM packages WHERE id IN (${placeholders(ids)})`,
        ids,
      );
      const names = new Map(rows.map((row) => [row.id, row.package_id]));
      return { totalHits, data: ids.flatMap((id) => names.get(id) ?? []) };
    };
    return this.#inAll(accounts, options, find, (id) => id);
  }

  async #inAll<T>(
    [own, ...others]: SearchedAccounts,
    options: SearchOptions,
    find: (list: AccountList, options: SearchOptions) => Promise<SearchResults<T>>,
    idOf: (item: T) => string,
  ): Promise<SearchResults<T>> {
    const results = await find(own, options);
    for (const other of others) {
      const skip = Math.max(0, options.skip - results.totalHits);
      const { totalHits, data } = await find(other, { ...options, skip, take: options.take - results.data.length });
      results.totalHits += totalHits;
      results.data.push(...data);
    }
    // Two accounts can share the same id.
    return { ...results, data: firstOfEach(results.data, (each) => packageKey(idOf(each))) };
  }

  /** One statement for the page (two with MySQL if it has few hits) and, if a list is longer than the page, one to count. */
  async #find(
    list: AccountList,
    query: SearchQuery,
    { prerelease, semVer2, skip, take }: SearchOptions,
  ): Promise<SearchResults<Found>> {
    if (list.only?.isEmpty) return { totalHits: 0, data: [] };
    const groups = await this.#lists.of(list, query, views[viewOf(prerelease, semVer2)].bit);
    if (groups.length === 0) return { totalHits: 0, data: [] };
    const end = skip + take;
    const rows = await this.#page(groups, end);
    // The sizes are up to a minute old, so that two groups may have a new package.
    const seenIds = new Set<number>();
    const found = groups.map((group, index) =>
      merge(
        rows.filter((row) => row.groupIndex === index),
        group,
        seenIds,
      ).slice(0, end + 1),
    );
    const data = found.flatMap((each) => each.slice(0, end));
    const longer = groups.filter((_, index) => found[index]!.length > end);
    const seen = found.reduce((sum, { length }) => sum + length, 0);
    return { totalHits: seen + (await this.#countBehind(longer, end)), data: data.slice(skip, end) };
  }

  /** The first hits of each list, one more than the page, to know whether the group is longer. */
  async #page(groups: readonly Group[], end: number): Promise<Found[]> {
    const lists = groups.flatMap(({ pages }, groupIndex) => pages.map((list) => ({ groupIndex, list })));
    const read = async (most: number) => {
      const pages = lists.map(({ list }) => this.#lists.page(list, most));
      return this.#database.select<{ listIndex: number; id: number; standing: number }>(
        pages
          .map(({ sql }, index) => `SELECT ${index} AS listIndex, id, standing FROM (${sql}) AS l${index}`)
          .join(' UNION ALL '),
        pages.flatMap(({ values }) => [...values, end + 1]),
      );
    };
    const most = this.#database.dialect === 'sqlite' ? Infinity : firstRows + end;
    let rows = await read(most);
    const counts = lists.map(() => 0);
    for (const { listIndex } of rows) counts[listIndex]! += 1;
    if (lists.some(({ list }, index) => (list.scanned ?? 0) > most && counts[index]! <= end)) {
      rows = await read(Infinity);
    }
    return rows.map(({ listIndex, id, standing }) => ({ groupIndex: lists[listIndex]!.groupIndex, id, standing }));
  }

  /** The number of hits in these groups after position `end` + 1. */
  async #countBehind(groups: readonly Group[], end: number): Promise<number> {
    let behind = 0;
    const counts: { group: number; sql: string; values: readonly Value[] }[] = [];
    groups.forEach(({ counts: lists }, group) => {
      if (lists.every(({ counted }) => counted > 0)) {
        counts.push(...lists.map((list) => ({ group, ...this.#lists.count(list, end) })));
      } else behind += Math.min(...lists.map((list) => list.behind));
    });
    if (counts.length === 0) return behind;
    const counted = await this.#database.get<Record<string, number>>(
      `SELECT ${counts.map(({ sql }, index) => `(${sql}) AS c${index}`).join(', ')}`,
      counts.flatMap(({ values }) => values),
    );
    groups.forEach((_, group) => {
      const hits = counts.reduce((sum, each, index) => sum + (each.group === group ? counted![`c${index}`]! : 0), 0);
      behind += Math.max(0, hits - (end + 1));
    });
    return behind;
  }

  /** The hits for these packages, in their order. Packages of equal standing are ordered by exact downloads. */
  async #hits(found: readonly Found[], options: SearchOptions): Promise<SearchHit[]> {
    const { latest } = views[viewOf(options.prerelease, options.semVer2)];
    const ids = found.map(({ id }) => id);
    const [newest, versions] = await Promise.all([
      this.#database.select<LatestRow>(
        `SELECT p.id, v.id AS version_row, v.version, v.full_version, v.icon_digest, v.deprecation, p.download_count,
           CASE WHEN v.metadata_bytes <= ${shortMetadata} THEN v.metadata END AS metadata
         FROM packages p JOIN package_versions v ON v.id = p.${latest} WHERE p.id IN (${placeholders(ids)})`,
        ids,
      ),
      this.#versions(ids, options),
    ]);
    const byPackage = new Map(newest.map((row) => [row.id, row]));
    const rows = found
      .flatMap((each) => {
        const row = byPackage.get(each.id);
        return row ? { ...each, row } : [];
      })
      .sort(
        (a, b) => a.groupIndex - b.groupIndex || a.standing - b.standing || b.row.download_count - a.row.download_count,
      );
    const hits: SearchHit[] = [];
    for (const { row } of rows) {
      const metadata = row.metadata ?? (await this.#longMetadata(row.version_row));
      if (metadata === undefined) continue;
      hits.push({
        version: row.version,
        fullVersion: row.full_version,
        hasIcon: row.icon_digest !== null,
        // Dependencies are the longest part of the metadata, and hits do not show them.
        metadata: {
          ...parseMetadata(metadata),
          dependencyGroups: undefined,
          deprecation: storedDeprecation(row.deprecation),
        },
        totalDownloads: row.download_count,
        versions: versions.get(row.id) ?? [],
      });
    }
    return hits;
  }

  /** Undefined if the version was deleted in the meantime. */
  async #longMetadata(versionRow: number): Promise<string | undefined> {
    const sql = 'SELECT metadata FROM package_versions WHERE id = ?';
    return (await this.#database.get<{ metadata: string }>(sql, [versionRow]))?.metadata;
  }

  /** The versions that the client sees. If there are too many, only the newest ones of each package. */
  async #versions(
    ids: readonly number[],
    { prerelease, semVer2 }: SearchOptions,
  ): Promise<Map<number, SearchHit['versions']>> {
    const select = `SELECT package_row, version, full_version, download_count FROM package_versions`;
    const seen = 'listed = 1 AND prerelease <= ? AND semver2 <= ?';
    const flags = [prerelease ? 1 : 0, semVer2 ? 1 : 0];
    let rows = await this.#database.select<VersionRow>(
      `${select} WHERE package_row IN (${placeholders(ids)}) AND ${seen} ORDER BY package_row, sort_key LIMIT ?`,
      [...ids, ...flags, maxVersions + 1],
    );
    if (rows.length > maxVersions) {
      rows = [];
      for (const id of ids) {
        const newest = await this.#database.select<VersionRow>(
          `${select} WHERE package_row = ? AND ${seen} ORDER BY sort_key DESC LIMIT ?`,
          [id, ...flags, versionsEach(ids.length)],
        );
        rows.push(...newest.toReversed());
        await pause();
      }
    }
    const versions = new Map<number, SearchHit['versions']>();
    for await (const row of withPauses(rows)) {
      const { package_row: id, version, full_version: fullVersion, download_count: downloads } = row;
      let list = versions.get(id);
      if (!list) versions.set(id, (list = []));
      list.push({ version, fullVersion, downloads });
    }
    return versions;
  }
}

/** The packages of a group's lists that are not in `seen`, each once, in order. Adds them to `seen`. */
function merge(rows: readonly Found[], { pages }: Group, seen: Set<number>): Found[] {
  // Each list is in order: packages of equal standing by their rows if there are several lists.
  const byRow = pages.length > 1 ? 1 : 0;
  const sorted = rows.toSorted((a, b) => a.standing - b.standing || byRow * (a.id - b.id));
  return sorted.filter(({ id }) => !seen.has(id) && seen.add(id));
}
