import { pagesOf } from '../../runtime/pages.ts';
import type { NameSet } from '../../accounts/names.ts';
import type { MirroredOwner } from '../../history/history.ts';
import type { Database } from '../../database/database.ts';
import type { Rank, Ranked } from '../../runtime/ranked.ts';
import { pause } from '../../runtime/event-loop.ts';
import { recordEvent } from '../../events/record.ts';
import type { EntryMetadata } from '../../mirror/store/entries.ts';
import { CountedNames, type CountedName, type NameOrder } from '../../mirror/store/counted-names.ts';
import { entriesUnder, entryNames, totalsOfNames, type ListedEntry } from '../../mirror/store/listing.ts';
import { placeOf, storedNames, takeFrom, type NameQuery } from '../../mirror/store/words.ts';
import { mirroredDownloads, type MirroredDownloads } from '../../usage/mirrored.ts';
import { claimedAmong } from '../hosted/claims.ts';
import { keyOfVersion, packageKey } from '../hosted/packages.ts';
import { shownVersions, type PackageSummary, type VersionSummary } from '../hosted/summary.ts';
import type { FeedViews } from './feed-view.ts';
import type { PackageMirror } from './package-mirror.ts';
import type { StoredRegistrations } from './stored-registrations.ts';
import { publishedOf } from './upstream-files.ts';
import { isPrerelease, parseVersion, sortKey } from '../format/version.ts';

/** A package with stored versions of an upstream, the newest first, up to `shownVersions`, each with its sort key. */
interface MirroredPackage extends PackageSummary {
  versions: (VersionSummary & { order: string })[];
}

/** A stored version, and what identifies its nupkg. */
interface StoredVersion extends VersionSummary {
  id: string;
  upstream: string;
  nupkg: EntryMetadata;
}

/** What is known of the versions of a package beside their entries, by their keys. */
interface KnownOfVersions {
  downloads: MirroredDownloads;
  withdrawn: ReadonlyMap<string, number>;
  unlisted: ReadonlySet<string>;
}

/** How many versions of a package are shown, and whether with what the stored registration says of them. */
interface ShownParts {
  most: number;
  saysListed?: boolean;
}

const none: ReadonlySet<string> = new Set();

/** Names in one statement. Those that the account claims are then left out. */
const namesAtATime = 200;
/** Names whose versions are decided at the same time: as many as there are connections for reads. */
const atOnce = 10;

/** Stored upstream packages, for the management API. An account sees those of the upstreams that serve it. */
export class MirroredPackages {
  readonly #database: Database;
  readonly #views: FeedViews;
  readonly #registrations: StoredRegistrations;
  readonly #now: () => number;
  readonly #counted: CountedNames;

  constructor(database: Database, views: FeedViews, registrations: StoredRegistrations, now: () => number) {
    this.#database = database;
    this.#views = views;
    this.#registrations = registrations;
    this.#now = now;
    this.#counted = new CountedNames((accountId) => this.#countNames(accountId), now);
  }

  /** Up to `limit` packages that the account gets from upstreams, by key, after key `cursor`. `only` limits the ids. */
  async list(accountId: number, limit: number, cursor = '', only?: NameSet): Promise<PackageSummary[]> {
    const { mirror } = await this.#views.of(accountId);
    const selection = { kind: 'nupkg', among: only?.where('name'), upstreams: mirror.origin.idsIfLimited };
    const found: PackageSummary[] = [];
    const size = Math.min(namesAtATime, Math.max(limit, atOnce));
    const read = (after: string) => entryNames(this.#database, selection, after, size);
    for await (const names of pagesOf(cursor, size, read, String)) {
      const claimed = await claimedAmong(this.#database, accountId, names);
      const visible = names.filter((name) => !claimed.has(name));
      found.push(...(await this.#packages(accountId, visible)));
      if (found.length >= limit) break;
    }
    return found.slice(0, limit);
  }

  /** As `list`, in an order. None while the names are counted for the first time. */
  ranked(
    accountId: number,
    { by, text, only }: Pick<NameOrder, 'by' | 'text'> & { only: NameSet | undefined },
    limit: number,
    after: Rank | undefined,
  ): Promise<Ranked<PackageSummary>[]> {
    const order = { by, text, isShown: among(only) };
    return this.#counted.page(accountId, order, limit, after, async (counted) => {
      const names = counted.map(({ name }) => name);
      const claimed = await claimedAmong(this.#database, accountId, names);
      const packages = await this.#packages(
        accountId,
        names.filter((name) => !claimed.has(name)),
      );
      const byKey = new Map(packages.map((each) => [each.key, each]));
      return new Map(counted.flatMap((each) => (byKey.has(each.name) ? [[each, byKey.get(each.name)!]] : [])));
    });
  }

  /** How many packages the account gets from upstreams, and their bytes; undefined while they are counted for the first time. */
  total(accountId: number, text: string, only: NameSet | undefined) {
    return this.#counted.total(accountId, { text, isShown: among(only) });
  }

  async *#countNames(accountId: number): AsyncGenerator<CountedName[]> {
    const { origin } = (await this.#views.of(accountId)).mirror;
    const selection = { kind: 'nupkg', upstreams: origin.idsIfLimited };
    const read = (after: string) => entryNames(this.#database, selection, after, namesAtATime);
    for await (const names of pagesOf('', namesAtATime, read, String)) {
      const claimed = await claimedAmong(this.#database, accountId, names);
      const visible = names.filter((name) => !claimed.has(name));
      const totals = Map.groupBy(await totalsOfNames(this.#database, ['nupkg'], visible), ({ name }) => name);
      const downloadsOf = await mirroredDownloads(this.#database, accountId, 'package', visible);
      yield visible.flatMap((name) => {
        const stored = totals.get(name) ?? [];
        const [first] = origin.candidates(name).flatMap(({ id }) => stored.filter(({ upstream }) => upstream === id));
        return first ? [{ ...first, listed: name, downloads: downloadsOf(name).total }] : [];
      });
    }
  }

  /** Up to `limit` packages that `query` finds and the account gets from upstreams, after a position. `only` limits the ids. */
  async find(
    accountId: number,
    query: NameQuery,
    limit: number,
    after: string,
    only?: NameSet,
  ): Promise<{ position: string; summary: PackageSummary }[]> {
    const { mirror } = await this.#views.of(accountId);
    const upstreams = mirror.origin.idsIfLimited;
    const nameOf = new Map(mirror.origin.all.map(({ id: key, name }) => [key, name]));
    const stored = storedNames(this.#database, 'nupkg', query, { upstreams, place: placeOf(after) });
    return takeFrom(stored, limit, async (rows) => {
      const names = rows.map(({ name }) => name).filter((name) => only?.includes(name) ?? true);
      const claimed = await claimedAmong(this.#database, accountId, names);
      const packages = await this.#packages(
        accountId,
        names.filter((name) => !claimed.has(name)),
      );
      const summaries = new Map(packages.map((each) => [each.key, each]));
      return rows.flatMap(({ suffix, upstream, name }) => {
        const summary = summaries.get(name);
        // An id of several upstreams is found once: at the one that it is served from.
        if (summary?.upstream !== nameOf.get(upstream)) return [];
        return summary ? [{ position: JSON.stringify([suffix, upstream, name]), summary }] : [];
      });
    });
  }

  /** Whether the account gets the id only from upstreams: it does not claim it, and an upstream may be asked. */
  async isUpstreamOnly(accountId: number, id: string): Promise<boolean> {
    if ((await claimedAmong(this.#database, accountId, [id])).size > 0) return false;
    return (await this.#views.of(accountId)).mirror.origin.candidates(id).length > 0;
  }

  /** The names under which the history of a package is recorded. */
  async historyOwners(accountId: number, id: string): Promise<MirroredOwner[]> {
    const { mirror } = await this.#views.of(accountId);
    const name = packageKey(id);
    return mirror.origin.candidates(id).map((upstream) => ({
      accountId: 0,
      upstream: upstream.id,
      name,
      upstreamName: upstream.name,
      listed: (entries) => mirror.listed(upstream, name, entries, ({ reference }) => reference),
    }));
  }

  /** One package with its stored versions; undefined if there are none, or if the account claims the id. */
  async get(accountId: number, id: string): Promise<MirroredPackage | undefined> {
    return this.#package(accountId, id, { most: shownVersions, saysListed: true });
  }

  /** As `get`, without a look at the registration: all versions that are not withdrawn count as listed. */
  async stored(accountId: number, id: string): Promise<MirroredPackage | undefined> {
    return this.#package(accountId, id, { most: shownVersions });
  }

  /** All stored versions of a package, the newest first, each with its sort key; undefined as for `get`. */
  async versions(accountId: number, id: string): Promise<MirroredPackage['versions'] | undefined> {
    return (await this.#package(accountId, id, { most: Infinity, saysListed: true }))?.versions;
  }

  /** One stored version by its key, with its nupkg; undefined if there is none, or the account may not get it. */
  async version(accountId: number, id: string, key: string): Promise<StoredVersion | undefined> {
    const mirror = await this.#mirrorFor(accountId, id);
    const stored = await mirror?.storedAt(id, key);
    if (!stored) return undefined;
    const { upstream, nupkg } = stored;
    const downloadsOf = await mirroredDownloads(this.#database, accountId, 'package', [packageKey(id)]);
    const entry = { ...nupkg, reference: key };
    const withdrawn = await mirror!.withdrawn.times(upstream, packageKey(id));
    const unlisted = await this.#registrations.unlisted(upstream.id, packageKey(id));
    const shown = versionOf(entry, { downloads: downloadsOf(packageKey(id)), withdrawn, unlisted });
    return { ...shown, id: nupkg.attributes['id'] ?? packageKey(id), upstream: upstream.name, nupkg };
  }

  /** The nupkg of one stored version, for a client; undefined as for `version`. Throws `Denied` if a policy refuses it. */
  async nupkg(accountId: number, id: string, key: string): Promise<EntryMetadata | undefined> {
    const mirror = await this.#mirrorFor(accountId, id);
    return (await mirror?.servedFromStore(id, key))?.nupkg;
  }

  /** The mirror from which an account gets versions of an id; undefined if only what it hosts is served. */
  async #mirrorFor(accountId: number, id: string): Promise<PackageMirror | undefined> {
    const { mirror } = await this.#views.of(accountId);
    const isClaimed = (await claimedAmong(this.#database, accountId, [id])).size > 0;
    return isClaimed && !mirror.origin.isMerged(id) ? undefined : mirror;
  }

  /**
   * Removes a stored version; the next request fetches it again. Resolves to whether the account had this version. If it
   * had, calls `mayDelete` first, which throws if the principal may not delete what all accounts share.
   */
  async deleteVersion(accountId: number, id: string, version: string, mayDelete: () => void): Promise<boolean> {
    const key = keyOfVersion(version);
    if (key === undefined) return false;
    const mirror = await this.#mirrorFor(accountId, id);
    if (!(await mirror?.storedAt(id, key))) return false;
    mayDelete();
    return mirror!.forget(id, key, (tx, upstream) => {
      const subject = { kind: 'package', name: id, reference: key } as const;
      const details = { origin: 'mirrored', upstream };
      return recordEvent(tx, { type: 'package.deleted', accountId, subject, details }, this.#now());
    });
  }

  async #package(accountId: number, id: string, shown: ShownParts): Promise<MirroredPackage | undefined> {
    if ((await claimedAmong(this.#database, accountId, [id])).size > 0) return undefined;
    return (await this.#packages(accountId, [packageKey(id)], shown))[0];
  }

  /** The packages in the order of `names`, without names that are no longer served. */
  async #packages(
    accountId: number,
    names: readonly string[],
    { most, saysListed = false }: ShownParts = { most: shownVersions },
  ): Promise<MirroredPackage[]> {
    const { mirror } = await this.#views.of(accountId);
    const entries = await entriesUnder(this.#database, 'nupkg', names);
    const byName = Map.groupBy(entries, ({ name }) => name);
    const downloadsOf = await mirroredDownloads(this.#database, accountId, 'package', names);
    const packageOf = async (name: string): Promise<MirroredPackage | undefined> => {
      // Only the first upstream with stored versions counts: copies from later upstreams are not served.
      for (const upstream of mirror.origin.candidates(name)) {
        const stored = byName.get(name)?.filter((row) => row.upstream === upstream.id) ?? [];
        if (stored.length === 0) continue;
        const shown = await mirror.listed(upstream, name, stored, ({ reference }) => reference);
        const withdrawn = await mirror.withdrawn.times(upstream, name);
        if (shown.length === 0) return undefined;
        const unlisted = saysListed ? await this.#registrations.unlisted(upstream.id, name) : none;
        return detailsOf(name, upstream.name, shown, { downloads: downloadsOf(name), withdrawn, unlisted }, most);
      }
      return undefined;
    };
    const packages: (MirroredPackage | undefined)[] = [];
    // With Redis, what each name asks of the cache is one answer for all that ask at the same time.
    for (let start = 0; start < names.length; start += atOnce)
      packages.push(...(await Promise.all(names.slice(start, start + atOnce).map(packageOf))));
    return packages.filter((each) => each !== undefined);
  }
}

async function detailsOf(
  key: string,
  upstream: string,
  entries: readonly ListedEntry[],
  known: KnownOfVersions,
  most: number,
): Promise<MirroredPackage> {
  const versions: (ListedEntry & { order: string })[] = [];
  for (const entry of entries) {
    versions.push({ ...entry, order: sortKey(parseVersion(entry.reference)!) });
    await pause();
  }
  versions.sort((a, b) => (a.order < b.order ? 1 : -1));
  const shown: MirroredPackage['versions'] = [];
  for (const entry of versions.slice(0, most)) {
    shown.push({ ...versionOf(entry, known), order: entry.order });
    await pause();
  }
  const newest = versions.find(({ reference }) => !isPrerelease(parseVersion(reference)!)) ?? versions[0]!;
  return {
    key,
    id: newest.attributes['id'] ?? key,
    upstream,
    packageTypes: [newest.attributes['type'] ?? 'Dependency'],
    latestVersion: newest.attributes['version'] ?? newest.reference,
    versionCount: entries.length,
    sizeBytes: entries.reduce((sum, { size }) => sum + size, 0),
    downloadCount: known.downloads.total,
    createdAt: leastOf(entries.map((entry) => entry.storedAt)),
    updatedAt: -leastOf(entries.map((entry) => -entry.storedAt)),
    lastDownloadedAt: -leastOf(entries.map(({ usedAt }) => -usedAt)),
    versions: shown,
  };
}

/** `Math.min` of a list that may be longer than the arguments of a call. */
function leastOf(numbers: readonly number[]): number {
  return numbers.reduce((least, each) => Math.min(least, each), Infinity);
}

function versionOf(
  { reference, attributes, ...entry }: Omit<ListedEntry, 'upstream' | 'name' | 'type' | 'usedAt'>,
  { downloads, withdrawn, unlisted }: KnownOfVersions,
): VersionSummary {
  return {
    version: attributes['version'] ?? reference,
    listed: !withdrawn.has(reference) && !unlisted.has(reference),
    publishedAt: publishedOf({ attributes, lastModified: entry.lastModified }) ?? entry.storedAt,
    cachedAt: entry.storedAt,
    withdrawnAt: withdrawn.get(reference) ?? null,
    sizeBytes: entry.size,
    sha512: attributes['sha512'] ?? '',
    downloadCount: downloads.versions.get(reference) ?? 0,
  };
}

function among(only: NameSet | undefined): NameOrder['isShown'] {
  return ({ name }) => only?.includes(name) ?? true;
}
