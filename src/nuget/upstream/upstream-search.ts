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

/** What an upstream found. */
export interface UpstreamResults<T> {
  upstream: Upstream;
  totalHits: number;
  data: T[];
}

type Results<T> = Omit<UpstreamResults<T>, 'upstream'>;
/** Makes what an upstream sends into what is shown, as far as it can be. */
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
/** Hits and ids that are taken, as many as are asked for at most; and versions of an id. */
const mostHits = 1000;
const mostVersions = 100_000;
/** Newest versions that are kept of a hit. */
const versionsOfHit = 1000;
/** A search is typed by a person: a slow upstream is left out, in milliseconds. */
const patience = 3000;

/** Searches the upstreams; what one found stays in the cache for as long as its documents are fresh. */
export class UpstreamSearch {
  readonly #packages: PackageMirror;
  readonly #cache: Cache;
  readonly #log: Logger;

  constructor(packages: PackageMirror, cache: Cache, log: Logger) {
    this.#packages = packages;
    this.#cache = cache;
    this.#log = log;
  }

  /** Whether there is anybody to ask. */
  get hasUpstreams(): boolean {
    return this.#packages.origin.all.length > 0;
  }

  /** Hits of every upstream that answers in time, in the order of the configuration. */
  query(parameters: URLSearchParams): Promise<UpstreamResults<SearchHit>[]> {
    const reader = async (upstream: Upstream) => {
      const own = ownLinks(upstream.base, await this.#packages.flat(upstream));
      return (item: unknown) => hitIn(item, own);
    };
    return this.#all(this.#packages.origin.all, searchTypes, parameters, reader, mostHits);
  }

  /** Ids that complete what was typed. */
  autocomplete(parameters: URLSearchParams): Promise<UpstreamResults<string>[]> {
    return this.#all(this.#packages.origin.all, autocompleteTypes, parameters, () => idIn, mostHits);
  }

  /** The versions of an id that its upstream offers; undefined when it does not answer in time. */
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
        this.#log.info({ upstream: upstream.name, reason: (error as Error).message }, 'left out of a search');
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
    const key = `search:${upstream.name}:${types[0]}:${parameters.toString()}`;
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

/** An answer that comes too late for this search is kept for the next. */
function inTime<T>(upstream: Upstream, asked: Promise<T>): Promise<T | undefined> {
  asked.catch(() => undefined);
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, Math.min(upstream.config.timeout, patience), undefined);
    asked.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

function idIn(item: unknown): string | undefined {
  return typeof item === 'string' && isPackageId(item) ? item : undefined;
}

function versionIn(item: unknown): string | undefined {
  return typeof item === 'string' && parseVersion(item) ? item : undefined;
}

/** One hit (search-query-service-resource, "Search result"); undefined when it names no package. */
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
