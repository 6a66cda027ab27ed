import type { NameSet } from '../accounts/names.ts';
import { placeholders, type Database } from '../database/database.ts';
import type { Facts } from '../mirror/entries.ts';
import { mirroredDownloads, type MirroredDownloads } from '../usage/mirrored.ts';
import { claimedAmong } from './claims.ts';
import { keyOfVersion, packageKey } from './packages.ts';
import { shownVersions, type PackageSummary, type VersionSummary } from './summary.ts';
import type { PackageMirror } from './upstream.ts';
import { isPrerelease, parseVersion, sortKey } from './version.ts';

/** A package of which a version was mirrored; its figures are of what is stored here. */
export interface MirroredSummary extends PackageSummary {
  upstream: string;
}

export interface MirroredVersion extends VersionSummary {
  cachedAt: number;
}

export interface MirroredDetails extends MirroredSummary {
  /** Newest first, up to `shownVersions`. */
  versions: MirroredVersion[];
}

interface EntryRow {
  upstream: string;
  name: string;
  reference: string;
  size_bytes: number;
  attributes: string;
  last_modified: string | null;
  stored_at: number;
  used_at: number;
}

/** Names read at a time: some may be hidden by what an account hosts. */
const namesAtATime = 200;

/** What the mirror has stored of packages, for the management API. It is nobody's own, so every account sees it. */
export class MirroredPackages {
  readonly #database: Database;
  readonly #mirror: PackageMirror;

  constructor(database: Database, mirror: PackageMirror) {
    this.#database = database;
    this.#mirror = mirror;
  }

  /** Up to `limit` packages that the account gets from the mirror, by key, after the key `cursor`; `only` of these if given. */
  async list(accountId: number, limit: number, cursor = '', only?: NameSet): Promise<MirroredSummary[]> {
    const among = only?.where('name');
    const found: MirroredSummary[] = [];
    for (let after = cursor; ;) {
      const rows = await this.#database.select<{ name: string }>(
        `SELECT DISTINCT name FROM mirror_entries WHERE kind = 'nupkg' AND name > ?
         ${among ? `AND ${among.sql}` : ''} ORDER BY name LIMIT ${namesAtATime}`,
        [after, ...(among?.values ?? [])],
      );
      const names = rows.map(({ name }) => name);
      const claimed = await claimedAmong(this.#database, accountId, names);
      const visible = names.filter((name) => !claimed.has(name));
      found.push(...(await this.#packages(accountId, visible)));
      if (found.length >= limit || names.length < namesAtATime) return found.slice(0, limit);
      after = names.at(-1)!;
    }
  }

  /** One package with the versions that are stored; undefined when there are none, or the account claims the id. */
  async get(accountId: number, id: string): Promise<MirroredDetails | undefined> {
    if ((await claimedAmong(this.#database, accountId, [id])).size > 0) return undefined;
    return (await this.#packages(accountId, [packageKey(id)]))[0];
  }

  /** Drops a version that is stored, to be asked for anew. Resolves to whether there was one for the account. */
  async deleteVersion(accountId: number, id: string, version: string): Promise<boolean> {
    const key = keyOfVersion(version);
    if (key === undefined) return false;
    const claimed = (await claimedAmong(this.#database, accountId, [id])).size > 0;
    if (claimed && !this.#mirror.origin.isMerged(id)) return false;
    return this.#mirror.forget(id, key);
  }

  /** In the order of `names`, without those of which nothing is served any more. */
  async #packages(accountId: number, names: readonly string[]): Promise<MirroredDetails[]> {
    if (names.length === 0) return [];
    const rows = await this.#database.select<EntryRow>(
      `SELECT upstream, name, reference, size_bytes, attributes, last_modified, stored_at, used_at FROM mirror_entries
       WHERE kind = 'nupkg' AND name IN (${placeholders(names)})`,
      [...names],
    );
    const byName = Map.groupBy(rows, ({ name }) => name);
    const downloadsOf = await mirroredDownloads(this.#database, accountId, 'package', names);
    return names.flatMap((name) => {
      // What lower upstreams had before is not what is served.
      for (const { name: upstream } of this.#mirror.origin.candidates(name)) {
        const stored = byName.get(name)?.filter((row) => row.upstream === upstream) ?? [];
        if (stored.length > 0) return detailsOf(name, upstream, stored, downloadsOf(name));
      }
      return [];
    });
  }
}

function detailsOf(
  key: string,
  upstream: string,
  rows: readonly EntryRow[],
  downloads: MirroredDownloads,
): MirroredDetails {
  const versions = rows
    .map((row) => ({ row, attributes: JSON.parse(row.attributes) as Facts['attributes'], order: orderOf(row) }))
    .sort((a, b) => (a.order < b.order ? 1 : -1));
  const newest = versions.find(({ row }) => !isPrerelease(parseVersion(row.reference)!)) ?? versions[0]!;
  const storedAt = rows.map(({ stored_at }) => stored_at);
  return {
    key,
    id: newest.attributes['id'] ?? key,
    upstream,
    packageTypes: [newest.attributes['type'] ?? 'Dependency'],
    latestVersion: newest.attributes['version'] ?? newest.row.reference,
    versionCount: rows.length,
    sizeBytes: rows.reduce((sum, { size_bytes }) => sum + size_bytes, 0),
    downloadCount: downloads.total,
    createdAt: Math.min(...storedAt),
    updatedAt: Math.max(...storedAt),
    lastDownloadedAt: Math.max(...rows.map(({ used_at }) => used_at)),
    versions: versions.slice(0, shownVersions).map(({ row, attributes }) => ({
      version: attributes['version'] ?? row.reference,
      listed: true,
      publishedAt: Date.parse(row.last_modified ?? '') || row.stored_at,
      cachedAt: row.stored_at,
      sizeBytes: row.size_bytes,
      sha512: attributes['sha512'] ?? '',
      downloadCount: downloads.versions.get(row.reference) ?? 0,
    })),
  };
}

function orderOf({ reference }: EntryRow): string {
  return sortKey(parseVersion(reference)!);
}
