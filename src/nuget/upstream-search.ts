import type { Logger } from 'pino';
import type { Cache } from '../cache/cache.ts';
import { fetchJson } from '../mirror/fetch.ts';
import { isUpstreamFailure } from '../mirror/mirror.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { documentLimit, type PackageMirror } from './upstream.ts';

/** What an upstream found. */
export interface UpstreamResults<T> {
  totalHits: number;
  data: T[];
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
  query(parameters: URLSearchParams): Promise<UpstreamResults<Record<string, unknown>>[]> {
    return this.#all(searchTypes, parameters, (hit) => typeof (hit as { id?: unknown } | null)?.id === 'string');
  }

  /** Ids, or versions, that complete what was typed. */
  autocomplete(parameters: URLSearchParams): Promise<UpstreamResults<string>[]> {
    return this.#all(autocompleteTypes, parameters, (item) => typeof item === 'string');
  }

  async #all<T>(
    types: string[],
    parameters: URLSearchParams,
    fits: (item: unknown) => boolean,
  ): Promise<UpstreamResults<T>[]> {
    const answers = this.#packages.origin.all.map(async (upstream) => {
      try {
        const results = await this.#inTime(upstream, types, parameters);
        return results && { totalHits: results.totalHits, data: results.data.filter(fits) as T[] };
      } catch (error) {
        if (!isUpstreamFailure(error)) throw error;
        this.#log.info({ upstream: upstream.name, reason: (error as Error).message }, 'left out of a search');
        return undefined;
      }
    });
    return (await Promise.all(answers)).filter((each) => each !== undefined);
  }

  /** An answer that comes too late for this search is kept for the next. */
  #inTime(
    upstream: Upstream,
    types: string[],
    parameters: URLSearchParams,
  ): Promise<UpstreamResults<unknown> | undefined> {
    const asked = this.#ask(upstream, types, parameters);
    asked.catch(() => undefined);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, Math.min(upstream.config.timeout, patience), undefined);
      asked.then(resolve, reject).finally(() => clearTimeout(timer));
    });
  }

  async #ask(
    upstream: Upstream,
    types: string[],
    parameters: URLSearchParams,
  ): Promise<UpstreamResults<unknown> | undefined> {
    const key = `search:${upstream.name}:${types[0]}:${parameters.toString()}`;
    const cached = await this.#cache.get<UpstreamResults<unknown>>(key);
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
