import type { ExecutionContext } from 'ava';
import { answer, serve, startFaultyUpstream, type Behaviour, type FaultyUpstream } from './faulty-upstream.ts';
import { makeNupkg } from '../builders/nupkg.ts';
import { startTestServer, type TestServer } from '../server.ts';

// A package feed like the public ones: documents of another program, registrations in pages at other paths, links
// everywhere. Each path can be made to fail, and all requests are recorded.

type Test = Pick<ExecutionContext, 'teardown'>;
type Json = Record<string, unknown>;

/** One version in the feed's registration. */
export interface FeedVersion {
  version: string;
  /** If absent, one is made, unless the package has many versions. */
  nupkg?: Buffer;
  published?: string;
  /** When its leaf was changed last. */
  changed?: string;
  /** Fields that are added to the catalog entry, or replace its fields. */
  entry?: Json;
}

export interface FeedPackage {
  id: string;
  versions: readonly FeedVersion[];
  /** Versions on a page of the registration; if absent, all are in the index. */
  pageSize?: number;
}

const hives = ['RegistrationsBaseUrl', 'RegistrationsBaseUrl/3.4.0', 'RegistrationsBaseUrl/3.6.0'];

export class UpstreamFeed {
  readonly upstream: FaultyUpstream;
  /** Without a slash at the end. */
  readonly url: string;
  /** Addresses by type. Call `announce` after a change. */
  readonly resources: Record<string, string>;
  readonly packages = new Map<string, FeedPackage>();

  private constructor(upstream: FaultyUpstream) {
    this.upstream = upstream;
    this.url = upstream.url.href.slice(0, -1);
    this.resources = {
      'PackageBaseAddress/3.0.0': `${this.url}/flat/`,
      ...Object.fromEntries(hives.map((type) => [type, `${this.url}/registration/`])),
      'SearchQueryService/3.5.0': `${this.url}/query`,
      'SearchAutocompleteService/3.5.0': `${this.url}/autocomplete`,
      'VulnerabilityInfo/6.7.0': `${this.url}/vulnerabilities/index.json`,
    };
  }

  static async start(t: Test): Promise<UpstreamFeed> {
    const feed = new UpstreamFeed(await startFaultyUpstream(t));
    feed.announce();
    feed.upstream.on('/query', feed.search());
    feed.upstream.on('/autocomplete', feed.complete());
    feed.upstream.on('/vulnerabilities/index.json', json([]));
    return feed;
  }

  /** Requested paths without queries, except those of the service index. */
  get asked(): string[] {
    return this.upstream.asked.map(({ path }) => path.split('?', 1)[0]!).filter((path) => path !== '/index.json');
  }

  /** The upstream setting for a mirror of this feed. */
  as(name: string, settings: Json = {}): Json {
    return { name, kind: 'nuget', url: `${this.url}/index.json`, allowPrivateNetwork: true, ...settings };
  }

  announce(): void {
    const resources = Object.entries(this.resources).map(([type, id]) => ({ '@id': id, '@type': type }));
    this.upstream.on('/index.json', json({ version: '3.0.0', resources }));
  }

  /** Offers a package in every document. Another call with the same id replaces it. */
  async offer(offered: FeedPackage): Promise<void> {
    const { id, versions } = offered;
    const key = id.toLowerCase();
    this.packages.set(key, offered);
    const flat = `/flat/${key}`;
    this.upstream.on(`${flat}/index.json`, json({ versions: versions.map(({ version }) => version.toLowerCase()) }));
    for (const { version, nupkg } of versions) {
      const bytes = nupkg ?? (versions.length <= 8 ? await makeNupkg({ id, version }) : undefined);
      if (bytes) this.upstream.on(fileOf(key, version), serve(bytes));
    }
    this.#register(offered, key);
  }

  #register({ id, versions, pageSize }: FeedPackage, key: string): void {
    const index = `${this.url}/registration/${key}/index.json`;
    const leaves = versions.map((each) => this.#leaf(id, each, index));
    const pages = [];
    for (let start = 0; start < leaves.length; start += pageSize ?? leaves.length) {
      const items = leaves.slice(start, start + (pageSize ?? leaves.length));
      const [lower, upper] = [versions[start]!.version, versions[start + items.length - 1]!.version];
      const path = `/registration-pages/${key}/page/${lower}/${upper}.json`;
      const page = { '@id': `${this.url}${path}`, '@type': 'catalog:CatalogPage', count: items.length, lower, upper };
      if (pageSize !== undefined) this.upstream.on(path, json({ ...page, items, parent: index }));
      pages.push(pageSize === undefined ? { ...page, items, parent: index } : page);
    }
    this.upstream.on(`/registration/${key}/index.json`, json({ '@id': index, count: pages.length, items: pages }));
  }

  #leaf(
    id: string,
    { version, published = '2021-03-04T05:06:07.1234567+00:00', changed, entry }: FeedVersion,
    index: string,
  ) {
    const key = id.toLowerCase();
    const packageContent = `${this.url}${fileOf(key, version)}`;
    const leaf = `${this.url}/registration/${key}/${version}.json`;
    return {
      '@id': leaf,
      '@type': 'Package',
      commitTimeStamp: changed,
      catalogEntry: {
        '@id': `${this.url}/catalog0/data/${key}.${version}.json`,
        '@type': 'PackageDetails',
        authors: 'Some Author',
        description: `About ${id}`,
        iconUrl: `${this.url}/flat/${key}/${version}/icon`,
        id,
        licenseUrl: `${this.url}/packages/${id}/${version}/license`,
        listed: !published.startsWith('1900-'),
        packageContent,
        projectUrl: 'https://project.example/',
        published,
        readmeUrl: `${this.url}/packages/${id}/${version}#readme`,
        tags: ['one', 'two'],
        version,
        dependencyGroups: [
          {
            '@id': `${this.url}/catalog0/data/${key}.${version}.json#dependencygroup`,
            targetFramework: 'net8.0',
            dependencies: [
              { '@id': `${this.url}/catalog0/x`, id: 'Other', range: '[1.0.0, )', registration: `${this.url}/other` },
            ],
          },
        ],
        ...entry,
      },
      packageContent,
      registration: index,
    };
  }

  /** Hits for every package whose id contains the search text. */
  search(): Behaviour {
    return (request, response) => {
      const { searchParams } = new URL(request.url!, this.url);
      const found = this.#containing(searchParams.get('q') ?? '');
      const data = found.map(({ id, versions }) => {
        const { version } = versions.at(-1)!;
        const registration = `${this.url}/registration/${id.toLowerCase()}/index.json`;
        const leaf = (each: string) => `${this.url}/registration/${id.toLowerCase()}/${each}.json`;
        return {
          '@id': registration,
          '@type': 'Package',
          registration,
          id,
          version,
          description: `About ${id}`,
          iconUrl: `${this.url}/flat/${id.toLowerCase()}/${version}/icon`,
          licenseUrl: `${this.url}/packages/${id}/license`,
          authors: ['Some Author'],
          totalDownloads: 1000,
          versions: versions.map((each) => ({ version: each.version, downloads: 1, '@id': leaf(each.version) })),
        };
      });
      json(pageOf(data, searchParams))(request, response);
    };
  }

  complete(): Behaviour {
    return (request, response) => {
      const { searchParams } = new URL(request.url!, this.url);
      const id = searchParams.get('id');
      const data =
        id === null
          ? this.#containing(searchParams.get('q') ?? '').map((each) => each.id)
          : (this.packages.get(id.toLowerCase())?.versions ?? []).map(({ version }) => version);
      json(id === null ? pageOf(data, searchParams) : { data })(request, response);
    };
  }

  #containing(text: string): FeedPackage[] {
    return [...this.packages.values()].filter(({ id }) => id.toLowerCase().includes(text.toLowerCase()));
  }
}

function pageOf(data: readonly unknown[], asked: URLSearchParams): Json {
  const skip = Number(asked.get('skip') ?? 0);
  return { totalHits: data.length, data: data.slice(skip, skip + Number(asked.get('take') ?? 20)) };
}

/** The path of the file of a version: both names are in small letters. */
function fileOf(key: string, version: string): string {
  const name = version.toLowerCase();
  return `/flat/${key}/${name}/${key}.${name}.nupkg`;
}

/** A JSON document. */
export function json(document: unknown): Behaviour {
  return answer(200, { 'content-type': 'application/json' }, JSON.stringify(document));
}

/** A JSON document with an ETag: a request with this ETag gets 304. */
export function validated(document: unknown, etag: string): Behaviour {
  return (request, response) => {
    if (request.headers['if-none-match'] === etag) answer(304, { etag })(request, response);
    else answer(200, { 'content-type': 'application/json', etag }, JSON.stringify(document))(request, response);
  };
}

/** A server of this project that mirrors `upstreams`. */
export async function startMirrorOf(
  t: Test,
  upstreams: readonly Json[],
  settings: Record<string, unknown> = {},
): Promise<TestServer> {
  return startTestServer(t, { upstreams, ...settings });
}

/** Every string in a JSON value, keys included. */
export function stringsIn(value: unknown): string[] {
  if (typeof value === 'string') return [value];
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, each]) => [key, ...stringsIn(each)]);
}
