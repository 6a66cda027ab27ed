import { NameSet } from '../../accounts/names.ts';
import type { Database } from '../../database/database.ts';
import { withPauses } from '../../runtime/event-loop.ts';
import { isUpstreamFailure } from '../../mirror/mirror.ts';
import { claimedAmong } from '../hosted/claims.ts';
import { packageKey } from '../hosted/packages.ts';
import { listListed } from '../hosted/versions.ts';
import type { SearchQuery } from '../search/search-query.ts';
import type { SearchHit } from '../format/search-hit.ts';
import { Search, type SearchedAccounts, type SearchOptions, type SearchResults } from '../search/search.ts';
import type { PackageSource, Sourced } from './package-source.ts';
import type { FeedViews } from '../upstream/feed-view.ts';
import type { UpstreamResults, UpstreamSearch } from '../upstream/upstream-search.ts';
import type { SearchTargets } from '../format/frameworks.ts';
import { isPrerelease, isSemVer2, parseVersion } from '../format/version.ts';

/** A search: the text as typed, which upstreams get, and the parsed query. */
export interface SearchRequest {
  text: string;
  packageType: string | undefined;
  targets: SearchTargets | undefined;
  query: SearchQuery;
}

interface MergedOptions extends SearchOptions {
  /** The ids that the search may find; all if it is absent. */
  only?: NameSet | undefined;
  /** Find only packages of upstreams. */
  mirroredOnly?: boolean;
}

interface VersionsOptions extends MergedOptions {
  /** Whether another account shares the id, which shares nothing from its upstreams. */
  isShared: boolean;
}

/** Hits requested from an upstream beyond the page: they replace hits that are hosted here. */
const spare = 20;
/** Most hits requested from an upstream. */
const maxTaken = 1000;
const noNames = new NameSet([]);
const nothing: SearchResults<never> = { totalHits: 0, data: [] };

/**
 * Hosted hits first, then hits of the upstreams. Upstream hits with a hosted, shared or reserved id are dropped. A new answer of
 * an upstream makes the whole a miss; without any answer of an upstream it is hosted.
 */
export class MergedSearch {
  readonly #database: Database;
  readonly #search: Search;
  readonly #source: PackageSource;
  readonly #views: FeedViews;

  constructor(database: Database, source: PackageSource, views: FeedViews) {
    this.#database = database;
    this.#search = new Search(database);
    this.#source = source;
    this.#views = views;
  }

  async find(
    accounts: SearchedAccounts,
    request: SearchRequest,
    options: MergedOptions,
  ): Promise<Sourced<SearchResults<SearchHit>>> {
    const [hosted, found] = await Promise.all([
      options.mirroredOnly ? nothing : this.#search.find(accounts, request.query, options),
      this.#askUnlessPrivate(accounts, request, options, (upstreams) =>
        upstreams.query(parametersOf(request, options)),
      ),
    ]);
    return this.#join(accounts, options, hosted, found, ({ metadata }) => metadata.id);
  }

  async findIds(
    accounts: SearchedAccounts,
    request: SearchRequest,
    options: MergedOptions,
  ): Promise<Sourced<SearchResults<string>>> {
    const [hosted, found] = await Promise.all([
      options.mirroredOnly ? nothing : this.#search.findIds(accounts, request.query, options),
      this.#askUnlessPrivate(accounts, request, options, (upstreams) =>
        upstreams.autocomplete(parametersOf(request, options)),
      ),
    ]);
    return this.#join(accounts, options, hosted, found, (id) => id);
  }

  /** The versions of an id for autocompletion, in order. */
  async versions(accountId: number, id: string, options: VersionsOptions): Promise<Sourced<readonly string[]>> {
    if (options.only && !options.only.includes(packageKey(id))) return hostedOnly([]);
    if (options.mirroredOnly && !(await this.#source.isUpstreamOnly(accountId, id))) return hostedOnly([]);
    const hosted = await listListed(this.#database, accountId, id, options.prerelease, options.semVer2);
    if (options.isShared) return hostedOnly(hosted);
    try {
      const others = await this.#versionsUpstream(accountId, id, options);
      if (!others || others.value.length === 0) return hostedOnly(hosted);
      return { served: others.served, value: await this.#source.merged(accountId, id, hosted, others.value) };
    } catch (error) {
      if (hosted.length === 0 || !isUpstreamFailure(error)) throw error;
      return hostedOnly(hosted);
    }
  }

  /** The versions from the upstream's own autocompletion; if that does not answer, from its list of versions. */
  async #versionsUpstream(
    accountId: number,
    id: string,
    options: MergedOptions,
  ): Promise<Sourced<readonly string[]> | undefined> {
    const owner = await this.#source.ownerFor(accountId, id);
    if (!owner) return undefined;
    const { prerelease, semVer2 } = options;
    const semVerLevel = semVer2 ? '2.0.0' : '1.0.0';
    const parameters = new URLSearchParams({ id, prerelease: String(prerelease), semVerLevel });
    const found = owner.silence
      ? undefined
      : await (await this.#views.of(accountId)).search.versions(owner.upstream, parameters);
    if (found) return found;
    const all = await this.#source.versionKeys(accountId, id);
    const wanted: string[] = [];
    for await (const key of withPauses(all?.value ?? [])) {
      const version = parseVersion(key)!;
      if ((prerelease || !isPrerelease(version)) && (semVer2 || !isSemVer2(version))) wanted.push(key);
    }
    return all && { served: all.served, value: wanted };
  }

  /** Calls `ask`, unless the search would tell an upstream a private id. */
  async #askUnlessPrivate<T>(
    [own, ...others]: SearchedAccounts,
    { text, packageType = '' }: SearchRequest,
    { only, mirroredOnly }: MergedOptions,
    ask: (upstreams: UpstreamSearch) => Promise<UpstreamResults<T>[]>,
  ): Promise<UpstreamResults<T>[]> {
    const { search } = await this.#views.of(own.accountId);
    if (!search.hasUpstreams || only?.isEmpty) return [];
    const words = `${text} ${packageType}`;
    const begun = mirroredOnly ? noNames : only;
    if (await this.#source.tellsPrivateId(own.accountId, words, { begun })) return [];
    for (const { accountId, only: shared } of others)
      if (await this.#source.tellsPrivateId(accountId, words, { only: shared })) return [];
    return ask(search);
  }

  async #join<T>(
    [own, ...others]: SearchedAccounts,
    { skip, take, only }: MergedOptions,
    hosted: SearchResults<T>,
    found: readonly UpstreamResults<T>[],
    idOf: (item: T) => string,
  ): Promise<Sourced<SearchResults<T>>> {
    const seen = new Set<string>();
    const fromUpstreams: T[] = [];
    let total = hosted.totalHits;
    for (const { upstream, totalHits, data } of found) {
      const ids = data.map(idOf);
      const closed = await this.#source.closedAmong(own.accountId, ids, upstream, { admitted: false });
      for (const { accountId, only: shared } of others) {
        const some = ids.filter((id) => shared?.includes(packageKey(id)));
        for (const key of await claimedAmong(this.#database, accountId, some)) closed.add(key);
      }
      // With `only`, the upstream's total includes hits that this client may not see.
      total += only ? data.length : totalHits;
      for (const item of data) {
        const key = packageKey(idOf(item));
        if (closed.has(key) || seen.has(key) || !(only?.includes(key) ?? true)) total -= 1;
        else fromUpstreams.push(item);
        seen.add(key);
      }
    }
    const start = Math.max(0, skip - hosted.totalHits);
    const rest = fromUpstreams.slice(start, start + take - hosted.data.length);
    const value = { totalHits: Math.max(total, hosted.totalHits), data: [...hosted.data, ...rest] };
    if (found.length === 0) return hostedOnly(value);
    return { served: found.some(({ served }) => served === 'miss') ? 'miss' : 'hit', value };
  }
}

function hostedOnly<T>(value: T): Sourced<T> {
  return { served: 'hosted', value };
}

/** Always starts at the first hit, because hosted hits shift the upstream's pages. */
function parametersOf(
  { text, packageType, targets }: SearchRequest,
  { prerelease, semVer2, skip, take }: SearchOptions,
): URLSearchParams {
  const parameters = new URLSearchParams({
    q: text,
    skip: '0',
    take: String(Math.min(skip + take + spare, maxTaken)),
  });
  parameters.set('prerelease', String(prerelease));
  parameters.set('semVerLevel', semVer2 ? '2.0.0' : '1.0.0');
  if (packageType !== undefined) parameters.set('packageType', packageType);
  for (const [name, value] of targets?.parameters ?? []) parameters.append(name, value);
  return parameters;
}
