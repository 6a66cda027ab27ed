import type { Logger } from 'pino';
import type { Cache } from '../cache/cache.ts';
import { fetchJson } from '../mirror/fetch.ts';
import { isUpstreamFailure } from '../mirror/mirror.ts';
import type { Upstream } from '../upstream/upstream.ts';
import type { SearchHit } from './search.ts';
import { documentLimit, type PackageMirror } from './upstream.ts';
import { linkOf, metadataIn, objectOf, objectsIn, textOf } from './upstream-metadata.ts';
import { fullString, normalize, parseVersion } from './version.ts';

/** What an upstream found. */
export interface UpstreamResults<T> {
  upstream: Upstream;
  totalHits: number;
  data: T[];
}

/** As it was sent. */
interface RawResults {
  totalHits: number;
  data: unknown[];
}

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

  /** Hits of every upstream that answers in time, in the order of the configuration. */
  query(parameters: URLSearchParams): Promise<UpstreamResults<SearchHit>[]> {
    return this.#all(this.#packages.origin.all, searchTypes, parameters, hitIn);
  }

  /** Ids that complete what was typed. */
  autocomplete(parameters: URLSearchParams): Promise<UpstreamResults<string>[]> {
    return this.#all(this.#packages.origin.all, autocompleteTypes, parameters, textOf);
  }

  /** The versions of an id that its upstream offers. */
  async versions(upstream: Upstream, parameters: URLSearchParams): Promise<string[]> {
    return (await this.#all([upstream], autocompleteTypes, parameters, textOf))[0]?.data ?? [];
  }

  async #all<T>(
    upstreams: readonly Upstream[],
    types: string[],
    parameters: URLSearchParams,
    read: (item: unknown) => T | undefined,
  ): Promise<UpstreamResults<T>[]> {
    const answers = upstreams.map(async (upstream) => {
      try {
        const results = await this.#inTime(upstream, types, parameters);
        return (
          results && { upstream, totalHits: results.totalHits, data: results.data.flatMap((item) => read(item) ?? []) }
        );
      } catch (error) {
        if (!isUpstreamFailure(error)) throw error;
        this.#log.info({ upstream: upstream.name, reason: (error as Error).message }, 'left out of a search');
        return undefined;
      }
    });
    return (await Promise.all(answers)).filter((each) => each !== undefined);
  }

  /** An answer that comes too late for this search is kept for the next. */
  #inTime(upstream: Upstream, types: string[], parameters: URLSearchParams): Promise<RawResults | undefined> {
    const asked = this.#ask(upstream, types, parameters);
    asked.catch(() => undefined);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, Math.min(upstream.config.timeout, patience), undefined);
      asked.then(resolve, reject).finally(() => clearTimeout(timer));
    });
  }

  async #ask(upstream: Upstream, types: string[], parameters: URLSearchParams): Promise<RawResults | undefined> {
    const key = `search:${upstream.name}:${types[0]}:${parameters.toString()}`;
    const cached = await this.#cache.get<RawResults>(key);
    if (cached) return cached;
    const url = new URL(await this.#packages.resource(upstream, types));
    for (const [name, value] of parameters) url.searchParams.append(name, value);
    const answer = await fetchJson(upstream, { url, headers: { 'accept-encoding': 'gzip' } }, documentLimit);
    const { totalHits, data } = (answer?.value ?? {}) as { totalHits?: unknown; data?: unknown };
    if (!Array.isArray(data)) return undefined;
    const results = { totalHits: typeof totalHits === 'number' ? totalHits : data.length, data };
    await this.#cache.set(key, results, upstream.config.freshFor);
    return results;
  }
}

/** One hit (search-query-service-resource, "Search result"); undefined when it names no package. */
function hitIn(item: unknown): SearchHit | undefined {
  const hit = objectOf(item);
  const version = parseVersion(textOf(hit['version']) ?? '');
  if (!version || textOf(hit['id']) === undefined) return undefined;
  return {
    version: normalize(version),
    fullVersion: fullString(version),
    hasIcon: false,
    metadata: metadataIn(hit, linkOf(hit['iconUrl'])),
    totalDownloads: Number(hit['totalDownloads']) || 0,
    versions: objectsIn(hit['versions']).flatMap((each) => {
      const one = parseVersion(textOf(each['version']) ?? '');
      return one
        ? [{ version: normalize(one), fullVersion: fullString(one), downloads: Number(each['downloads']) || 0 }]
        : [];
    }),
  };
}
