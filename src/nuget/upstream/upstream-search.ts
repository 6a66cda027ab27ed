import type { Logger } from 'pino';
import type { Cache } from '../../cache/cache.ts';
import { fetchJson } from '../../mirror/fetch.ts';
import { isUpstreamFailure } from '../../mirror/mirror.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import type { SearchHit } from '../search/search.ts';
import { isPackageId } from '../format/nuspec.ts';
import { addressIn, documentLimit, type PackageMirror } from './package-mirror.ts';
import { metadataIn, objectOf, objectsIn, ownLinks, textOf, type OwnLinks } from './upstream-metadata.ts';
import { fullString, normalize, parseVersion } from '../format/version.ts';

/** The search results of one upstream. */
export interface UpstreamResults<T> {
  upstream: Upstream;
  totalHits: number;
  data: T[];
}

type Results<T> = Omit<UpstreamResults<T>, 'upstream'>;
/** Makes a function that converts an upstream's items; it returns undefined for an invalid item. */
type Reader<T> = (upstream: Upstream) => ReadItem<T> | Promise<ReadItem<T>>;
type ReadItem<T> = (item: unknown) => T | undefined;

const searchTypes = [
  'SearchQueryService/3.5.0',
  'SearchQueryService/3.0.0-rc',
  'SearchQueryService/3.0.0-beta',
  'SearchQueryService',
];
const autocompleteTypes = [
  'SearchAutocompleteService/3.5.0',
  'SearchAutocompleteService/3.0.0-rc',
  'SearchAutocompleteService/3.0.0-beta',
  'SearchAutocompleteService',
];
/** Most hits and ids that are used of an answer, as many as are requested at most; and most versions of an id. */
const mostHits = 1000;
const mostVersions = 100_000;
/** Most versions that are kept of a hit; the newest ones. */
const versionsOfHit = 1000;
/** Milliseconds after which a search leaves out a slow upstream, because a person waits for the answer. */
const longestWait = 3000;

/** Searches the upstreams. The results of an upstream are cached for its `freshFor`. */
export class UpstreamSearch {
  readonly #packages: PackageMirror;
  readonly #cache: Cache;
  readonly #log: Logger;

  constructor(packages: PackageMirror, cache: Cache, log: Logger) {
    this.#packages = packages;
    this.#cache = cache;
    this.#log = log;
  }

  /** Whether at least one upstream is configured. */
  get hasUpstreams(): boolean {
    return this.#packages.origin.all.length > 0;
  }

  /** The hits of every upstream that answers in time, in the order of the configuration. */
  query(parameters: URLSearchParams): Promise<UpstreamResults<SearchHit>[]> {
    const reader = async (upstream: Upstream) => {
      const own = ownLinks(upstream.base, await this.#packages.flat(upstream));
      return (item: unknown) => hitIn(item, own);
    };
    return this.#all(this.#packages.origin.all, searchTypes, parameters, reader, mostHits);
  }

  /** Ids that complete the typed text. */
  autocomplete(parameters: URLSearchParams): Promise<UpstreamResults<string>[]> {
    return this.#all(this.#packages.origin.all, autocompleteTypes, parameters, () => idIn, mostHits);
  }

  /** The versions of an id from its upstream's autocompletion; undefined if it does not answer in time. */
  async versions(upstream: Upstream, parameters: URLSearchParams): Promise<string[] | undefined> {
    const found = await this.#all([upstream], autocompleteTypes, parameters, () => versionIn, mostVersions);
    return found[0]?.data;
  }

  async #all<T>(
    upstreams: readonly Upstream[],
    types: string[],
    parameters: URLSearchParams,
    reader: Reader<T>,
    most: number,
  ): Promise<UpstreamResults<T>[]> {
    const answers = upstreams.map(async (upstream) => {
      try {
        const results = await inTime(upstream, this.#ask(upstream, types, parameters, reader, most));
        return results && { upstream, ...results };
      } catch (error) {
        if (!isUpstreamFailure(error)) throw error;
        this.#log.info({ upstream: upstream.id, reason: (error as Error).message }, 'left out of a search');
        return undefined;
      }
    });
    return (await Promise.all(answers)).filter((each) => each !== undefined);
  }

  async #ask<T>(
    upstream: Upstream,
    types: string[],
    parameters: URLSearchParams,
    reader: Reader<T>,
    most: number,
  ): Promise<Results<T> | undefined> {
    const key = `search:${upstream.id}:${types[0]}:${parameters.toString()}`;
    const cached = await this.#cache.get<Results<T>>(key);
    if (cached) return cached;
    const url = addressIn(upstream, await this.#packages.resource(upstream, types));
    for (const [name, value] of parameters) url.searchParams.append(name, value);
    const read = await reader(upstream);
    const headers = { 'accept-encoding': 'gzip' };
    const answer = await fetchJson(upstream, { url, subject: url.href, headers, service: 'search' }, documentLimit);
    const { totalHits, data } = (answer?.value ?? {}) as { totalHits?: unknown; data?: unknown };
    if (!Array.isArray(data)) return undefined;
    const results = {
      totalHits: typeof totalHits === 'number' ? totalHits : data.length,
      data: data.slice(0, most).flatMap((item) => read(item) ?? []),
    };
    await this.#cache.set(key, results, upstream.config.freshFor);
    return results;
  }
}

/** Resolves to undefined after the time limit. A later answer still gets into the cache, for the next search. */
function inTime<T>(upstream: Upstream, answer: Promise<T>): Promise<T | undefined> {
  answer.catch(() => undefined);
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, Math.min(upstream.config.timeout, longestWait), undefined);
    answer.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

function idIn(item: unknown): string | undefined {
  return typeof item === 'string' && isPackageId(item) ? item : undefined;
}

function versionIn(item: unknown): string | undefined {
  return typeof item === 'string' && parseVersion(item) ? item : undefined;
}

/** One hit (search-query-service-resource, "Search result"); undefined if its id or version is invalid. */
function hitIn(item: unknown, own: OwnLinks): SearchHit | undefined {
  const hit = objectOf(item);
  const version = parseVersion(textOf(hit['version']) ?? '');
  if (!version || !isPackageId(textOf(hit['id']) ?? '')) return undefined;
  return {
    version: normalize(version),
    fullVersion: fullString(version),
    hasIcon: own.isFlat(hit['iconUrl']),
    metadata: { ...metadataIn(hit, own), dependencyGroups: undefined },
    totalDownloads: Number(hit['totalDownloads']) || 0,
    versions: objectsIn(hit['versions'])
      .slice(-versionsOfHit)
      .flatMap((each) => {
        const one = parseVersion(textOf(each['version']) ?? '');
        return one
          ? [{ version: normalize(one), fullVersion: fullString(one), downloads: Number(each['downloads']) || 0 }]
          : [];
      }),
  };
}
