import type { Logger } from 'pino';
import { runForSystem } from '../../runtime/caller.ts';
import { isDomainError } from '../../runtime/errors.ts';
import { pause } from '../../runtime/event-loop.ts';
import { inTime } from '../../runtime/in-time.ts';
import { joinInTurns, splitInTurns } from '../../runtime/long-texts.ts';
import type { Cache } from '../../cache/cache.ts';
import { fetchBytes, largeInTurn, unusable } from '../../mirror/fetch/fetch.ts';
import { isUpstreamFailure } from '../../mirror/mirror.ts';
import { unlessUpstreamFails } from '../../upstream/upstream-error.ts';
import type { Upstream } from '../../upstream/upstream.ts';
import type { HitOptions } from './reading/search-answers.ts';
import { read } from './reading/readers.ts';
import type { SearchHit } from '../format/search-hit.ts';
import { keyOfVersion, packageKey } from '../hosted/packages.ts';
import { addressIn, documentLimit, type PackageMirror } from './package-mirror.ts';

/** The search results of one upstream. */
export interface UpstreamResults<T> {
  upstream: Upstream;
  /** Whether they were kept, or the upstream was asked. */
  served: Answer['served'];
  totalHits: number;
  data: T[];
}

type Results<T> = Omit<UpstreamResults<T>, 'upstream' | 'served'>;

interface Answer {
  served: 'hit' | 'miss';
  text: string;
}

/** The requests under way, by the key under which their answers are kept. Views of the same mirror share them. */
export type SearchesUnderWay = Map<string, Promise<Answer | undefined>>;

/** Reads the bytes of an answer, and makes a text that can be kept. Throws with the reason for other bytes. */
type Reader = (upstream: Upstream, bytes: Buffer) => Promise<string>;

const readVersions: Reader = async ({ id }, bytes) =>
  joinInTurns(await read('version-list', bytes, {}, { of: 'upstream', id }));
/** The types of a search and of an autocompletion in a service index; the first one that there is, is used. */
export const searchTypes = [
  'SearchQueryService/3.5.0',
  'SearchQueryService/3.0.0-rc',
  'SearchQueryService/3.0.0-beta',
  'SearchQueryService',
];
export const autocompleteTypes = [
  'SearchAutocompleteService/3.5.0',
  'SearchAutocompleteService/3.0.0-rc',
  'SearchAutocompleteService/3.0.0-beta',
  'SearchAutocompleteService',
];
/** Milliseconds after which a search leaves out a slow upstream, because a person waits for the answer. */
const defaultWait = 3000;
/** Hits or ids that are compared with what lists show at the same time. */
const atATime = 50;

/**
 * Searches the upstreams. The results of an upstream are cached for its `freshFor`, and equal searches at the same time share one
 * request.
 */
export class UpstreamSearch {
  readonly #packages: PackageMirror;
  readonly #cache: Cache;
  readonly #underWay: SearchesUnderWay;
  readonly #log: Logger;
  readonly #wait: number;

  /** `wait`: milliseconds after which a search leaves out a slow upstream. */
  constructor(packages: PackageMirror, cache: Cache, underWay: SearchesUnderWay, log: Logger, wait = defaultWait) {
    this.#packages = packages;
    this.#cache = cache;
    this.#underWay = underWay;
    this.#log = log;
    this.#wait = wait;
  }

  /** Whether at least one upstream is configured. */
  get hasUpstreams(): boolean {
    return this.#packages.origin.all.length > 0;
  }

  /** The hits of every upstream that answers in time, in the order of the configuration. */
  async query(parameters: URLSearchParams): Promise<UpstreamResults<SearchHit>[]> {
    const reader: Reader = async (upstream, bytes) => {
      const options: HitOptions = { base: upstream.base.href, flat: await this.#packages.flat(upstream) };
      return (await read('hits', bytes, options, { of: 'upstream', id: upstream.id })).join('\n');
    };
    const results = await this.#results<SearchHit>(searchTypes, parameters, reader);
    return this.#admitted(results, (upstream, hit) => this.#shown(upstream, hit));
  }

  /** Ids that complete the typed text, and of which lists show at least one version. */
  async autocomplete(parameters: URLSearchParams): Promise<UpstreamResults<string>[]> {
    const results = await this.#results<string>(autocompleteTypes, parameters, async ({ id }, bytes) =>
      (await read('ids', bytes, {}, { of: 'upstream', id })).join('\n'),
    );
    return this.#admitted(results, async (upstream, id) => ((await this.#isShown(upstream, id)) ? id : undefined));
  }

  /** The results with what `shown` makes of their items; undefined leaves out the item. */
  #admitted<T>(
    results: readonly UpstreamResults<T>[],
    shown: (upstream: Upstream, item: T) => Promise<T | undefined>,
  ): Promise<UpstreamResults<T>[]> {
    const admitted = results.map(async ({ data, ...rest }) => {
      const found: T[] = [];
      for (let start = 0; start < data.length; start += atATime) {
        await pause();
        const some = data.slice(start, start + atATime).map((item) => shown(rest.upstream, item));
        found.push(...(await Promise.all(some)).filter((item) => item !== undefined));
      }
      return { ...rest, data: found };
    });
    return Promise.all(admitted);
  }

  /** The versions of an id from its upstream's autocompletion, in order; undefined if it does not answer in time. */
  async versions(
    upstream: Upstream,
    parameters: URLSearchParams,
  ): Promise<{ served: Answer['served']; value: readonly string[] } | undefined> {
    const answer = await this.#askInTime(upstream, autocompleteTypes, parameters, readVersions);
    if (!answer) return undefined;
    const versions = await splitInTurns(answer.text);
    const key = packageKey(parameters.get('id')!);
    const shown = await this.#packages.listed(upstream, key, versions, (each) => keyOfVersion(each)!);
    return { served: answer.served, value: shown };
  }

  /** A hit with the versions that lists show, under the newest of them if its own is hidden; undefined without one. */
  async #shown(upstream: Upstream, hit: SearchHit): Promise<SearchHit | undefined> {
    const key = packageKey(hit.metadata.id);
    if (!(await this.#packages.isLimited(upstream, key))) return hit;
    const versions = await this.#packages.listed(upstream, key, hit.versions, ({ version }) => keyOfVersion(version)!);
    const [own] = await this.#packages.listed(upstream, key, [hit], ({ version }) => keyOfVersion(version)!);
    const { version, fullVersion } = own ?? versions.at(-1) ?? {};
    if (version === undefined || fullVersion === undefined) return undefined;
    return { ...hit, version, fullVersion, versions: [...versions] };
  }

  /** Whether lists show a version of the id. Of an id with hidden versions it is not known while the upstream fails: then not. */
  async #isShown(upstream: Upstream, id: string): Promise<boolean> {
    const key = packageKey(id);
    if (!(await this.#packages.isLimited(upstream, key))) return true;
    const shown = await unlessUpstreamFails(async () => {
      const all = await this.#packages.allVersions({ upstream }, key);
      return all && this.#packages.listed(upstream, key, all.value, String);
    });
    return shown !== undefined && shown.length > 0;
  }

  async #results<T>(types: string[], parameters: URLSearchParams, reader: Reader): Promise<UpstreamResults<T>[]> {
    const answers = this.#packages.origin.all.map(async (upstream) => {
      const answer = await this.#askInTime(upstream, types, parameters, reader);
      return answer && { upstream, served: answer.served, ...(JSON.parse(answer.text) as Results<T>) };
    });
    return (await Promise.all(answers)).filter((each) => each !== undefined);
  }

  /** With the text that `reader` makes of the answer; undefined if the upstream fails or does not answer in time. */
  async #askInTime(
    upstream: Upstream,
    types: string[],
    parameters: URLSearchParams,
    reader: Reader,
  ): Promise<Answer | undefined> {
    try {
      // A later answer still gets into the cache, for the next search.
      const milliseconds = Math.min(upstream.config.timeout, this.#wait);
      const work = () => this.#ask(upstream, types, parameters, reader);
      return await inTime(work, milliseconds, { late: () => undefined });
    } catch (error) {
      if (!isUpstreamFailure(error) && !isDomainError(error, 'TooManyRequests')) throw error;
      this.#log.info({ upstream: upstream.id, reason: (error as Error).message }, 'left out of a search');
      return undefined;
    }
  }

  async #ask(
    upstream: Upstream,
    types: string[],
    parameters: URLSearchParams,
    reader: Reader,
  ): Promise<Answer | undefined> {
    // Older releases, which may use the same Redis, keep objects under `search:`.
    const key = `search-text:${upstream.id}:${types[0]}:${parameters.toString()}`;
    const cached = await this.#cache.get<string>(key);
    if (cached !== undefined) return { served: 'hit', text: cached };
    let asking = this.#underWay.get(key);
    if (!asking) {
      // For all who wait for it: a client that leaves does not end it.
      const work = () => this.#fetch(key, upstream, types, parameters, reader);
      asking = runForSystem(null, work).finally(() => this.#underWay.delete(key));
      this.#underWay.set(key, asking);
    }
    return asking;
  }

  /** The upstream's own answer, which is kept under `key`. */
  async #fetch(
    key: string,
    upstream: Upstream,
    types: string[],
    parameters: URLSearchParams,
    reader: Reader,
  ): Promise<Answer | undefined> {
    const url = addressIn(upstream, await this.#packages.resource(upstream, types));
    for (const [name, value] of parameters) url.searchParams.append(name, value);
    const headers = { 'accept-encoding': 'gzip' };
    const text = await largeInTurn(upstream, 'search', async (grown) => {
      const request = { url, subject: url.href, headers, service: 'search' } as const;
      const answer = await fetchBytes(upstream, request, documentLimit, grown);
      return answer && this.#read(upstream, answer.bytes, reader);
    });
    if (text === undefined) return undefined;
    await this.#cache.set(key, text, upstream.config.freshFor);
    return { served: 'miss', text };
  }

  #read(upstream: Upstream, bytes: Buffer, reader: Reader): Promise<string> {
    return reader(upstream, bytes).catch((error: unknown) => {
      if (isUpstreamFailure(error)) throw error;
      throw unusable(upstream, 'sent an answer that is not of the expected form', error);
    });
  }
}
