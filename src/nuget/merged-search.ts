import type { Feed } from './feed.ts';
import { packageKey } from './packages.ts';
import type { SearchQuery } from './search-query.ts';
import type { SearchHit, SearchOptions, SearchResults } from './search.ts';
import type { PackageSource } from './source.ts';
import type { UpstreamResults, UpstreamSearch } from './upstream-search.ts';

/** A search as it was typed, for upstreams, and as it was understood. */
export interface Wanted {
  text: string;
  packageType: string | undefined;
  query: SearchQuery;
}

/** Hits that an upstream is asked for beyond the page, in place of those that are hosted here. */
const spare = 20;
/** What an upstream is asked for at most. */
const mostTaken = 1000;

/** Searches what is hosted and, after it, the upstreams: hosted and reserved ids are not heard of from there. */
export class MergedSearch {
  readonly #feed: Feed;
  readonly #source: PackageSource;
  readonly #upstreams: UpstreamSearch;

  constructor(feed: Feed, source: PackageSource, upstreams: UpstreamSearch) {
    this.#feed = feed;
    this.#source = source;
    this.#upstreams = upstreams;
  }

  async find(accountId: number, wanted: Wanted, options: SearchOptions): Promise<SearchResults<SearchHit>> {
    const hosted = this.#feed.search(accountId, wanted.query, options);
    const found = this.#upstreams.query(parametersOf(wanted, options));
    return this.#join(accountId, options, await hosted, await found, ({ metadata }) => metadata.id);
  }

  async findIds(accountId: number, wanted: Wanted, options: SearchOptions): Promise<SearchResults<string>> {
    const hosted = this.#feed.findIds(accountId, wanted.query, options);
    const found = this.#upstreams.autocomplete(parametersOf(wanted, options));
    return this.#join(accountId, options, await hosted, await found, (id) => id);
  }

  /** The versions of an id that a client may choose from, in order. */
  async versions(accountId: number, id: string, options: SearchOptions): Promise<string[]> {
    const { prerelease, semVer2 } = options;
    const hosted = await this.#feed.listListed(accountId, id, prerelease, semVer2);
    const upstream = hosted.length > 0 ? undefined : await this.#source.upstreamOf(accountId, id);
    if (!upstream) return hosted;
    const parameters = new URLSearchParams({
      id,
      prerelease: String(prerelease),
      semVerLevel: semVer2 ? '2.0.0' : '1.0.0',
    });
    return this.#upstreams.versions(upstream, parameters);
  }

  async #join<T>(
    accountId: number,
    { skip, take }: SearchOptions,
    hosted: SearchResults<T>,
    found: readonly UpstreamResults<T>[],
    idOf: (item: T) => string,
  ): Promise<SearchResults<T>> {
    const closed = await this.#source.closedAmong(
      accountId,
      found.flatMap(({ data }) => data.map(idOf)),
    );
    const seen = new Set<string>();
    const others: T[] = [];
    let total = hosted.totalHits;
    for (const { totalHits, data } of found) {
      total += totalHits;
      for (const item of data) {
        const key = packageKey(idOf(item));
        if (closed.has(key) || seen.has(key)) total -= 1;
        else others.push(item);
        seen.add(key);
      }
    }
    const start = Math.max(0, skip - hosted.totalHits);
    const rest = others.slice(start, start + take - hosted.data.length);
    return { totalHits: Math.max(total, hosted.totalHits), data: [...hosted.data, ...rest] };
  }
}

/** Always from the first hit on: what is hosted shifts the upstream's pages. */
function parametersOf(
  { text, packageType }: Wanted,
  { prerelease, semVer2, skip, take }: SearchOptions,
): URLSearchParams {
  const parameters = new URLSearchParams({
    q: text,
    skip: '0',
    take: String(Math.min(skip + take + spare, mostTaken)),
  });
  parameters.set('prerelease', String(prerelease));
  parameters.set('semVerLevel', semVer2 ? '2.0.0' : '1.0.0');
  if (packageType !== undefined) parameters.set('packageType', packageType);
  return parameters;
}
