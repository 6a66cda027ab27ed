import test, { type ExecutionContext } from 'ava';

// What every package feed in the tests must do, the fake one and that of this program (NuGet's server API, v3).

/** A feed with the package `Some.Lib` in the versions 1.0.0, 1.1.0-Beta and 2.0.0, and with `Some.Tool` 1.0.0. */
export interface OpenedFeed {
  /** The address of its service index. */
  index: string;
  headers: Record<string, string>;
  /** The file of each version of `Some.Lib`, by the version as it was pushed. */
  files: Record<string, Buffer>;
}

interface Catalogued {
  items?: Catalogued[];
  count: number;
  lower: string;
  upper: string;
  '@id': string;
  catalogEntry: { id: string; version: string; listed: boolean; published: string; packageContent?: string };
  packageContent: string;
}

interface Hit {
  id: string;
  version: string;
  totalDownloads: number;
  registration: string;
  versions: { version: string; downloads: number; '@id': string }[];
}

interface Page<T> {
  totalHits: number;
  data: T[];
}

/** Requests to an opened feed. */
class Asking {
  readonly #feed: OpenedFeed;
  readonly #resources = new Map<string, string>();

  constructor(feed: OpenedFeed) {
    this.#feed = feed;
  }

  async read(): Promise<this> {
    const { version, resources } = await this.json<{ version: string; resources: Record<string, string>[] }>(
      this.#feed.index,
    );
    if (version !== '3.0.0') throw new Error(`no version of the protocol: ${version}`);
    for (const { '@type': type, '@id': id } of resources) this.#resources.set(type!, id!);
    return this;
  }

  get(url: string): Promise<Response> {
    return fetch(url, { headers: this.#feed.headers });
  }

  async json<T>(url: string): Promise<T> {
    const answer = await this.get(url);
    if (answer.status !== 200) throw new Error(`${url} answered ${answer.status}`);
    if (!answer.headers.get('content-type')?.startsWith('application/json')) throw new Error(`${url} is no JSON`);
    return (await answer.json()) as T;
  }

  /** The address of `path` below that of a resource, which may lack the slash at its end. */
  at(type: string, path: string): string {
    return `${this.#of(type).replace(/\/$/, '')}/${path}`;
  }

  #of(type: string): string {
    const address = this.#resources.get(type);
    if (address === undefined) throw new Error(`the feed has no ${type}`);
    return address;
  }

  search(query: string): Promise<Page<Hit>> {
    return this.json(`${this.#of(searchType)}?semVerLevel=2.0.0&prerelease=true&${query}`);
  }

  complete(query: string): Promise<Page<string>> {
    return this.json(`${this.#of(completionType)}?semVerLevel=2.0.0&prerelease=true&${query}`);
  }
}

const flat = 'PackageBaseAddress/3.0.0';
const hive = 'RegistrationsBaseUrl/3.6.0';
const searchType = 'SearchQueryService/3.5.0';
const completionType = 'SearchAutocompleteService/3.5.0';

/** The tests of a feed. */
export function testFeed(name: string, open: (t: ExecutionContext) => Promise<OpenedFeed>): void {
  const suite = (title: string, run: (t: ExecutionContext, asking: Asking, feed: OpenedFeed) => Promise<void>) =>
    test(`${name}: ${title}`, async (t) => {
      const feed = await open(t);
      await run(t, await new Asking(feed).read(), feed);
    });

  suite('versions and files are found by ids and versions in small letters', async (t, asking, { files }) => {
    const { versions } = await asking.json<{ versions: string[] }>(asking.at(flat, 'some.lib/index.json'));
    t.deepEqual(versions, ['1.0.0', '1.1.0-beta', '2.0.0']);
    for (const [version, bytes] of Object.entries(files)) {
      const key = version.toLowerCase();
      const file = await asking.get(asking.at(flat, `some.lib/${key}/some.lib.${key}.nupkg`));
      t.is(file.status, 200, key);
      t.is(file.headers.get('content-length'), String(bytes.length));
      t.true(Buffer.from(await file.arrayBuffer()).equals(bytes));
    }
    for (const path of ['some.none/index.json', 'some.lib/3.0.0/some.lib.3.0.0.nupkg'])
      t.is((await asking.get(asking.at(flat, path))).status, 404, path);
  });

  suite('the registration has each version once, in order, on pages that may be documents', async (t, asking) => {
    const { count, items: pages } = await asking.json<Catalogued>(asking.at(hive, 'some.lib/index.json'));
    t.is(pages?.length, count);
    const found: Catalogued[] = [];
    for (const page of pages!) {
      const items = page.items ?? (await asking.json<Catalogued>(page['@id'])).items!;
      t.is(items.length, page.count);
      t.deepEqual(
        [items[0], items.at(-1)].map((each) => each!.catalogEntry.version),
        [page.lower, page.upper],
      );
      found.push(...items);
    }
    t.deepEqual(
      found.map(({ catalogEntry: { id, version, listed } }) => [id, version, listed]),
      [
        ['Some.Lib', '1.0.0', true],
        ['Some.Lib', '1.1.0-Beta', true],
        ['Some.Lib', '2.0.0', true],
      ],
    );
    for (const { catalogEntry, packageContent } of found) {
      t.true(Date.parse(catalogEntry.published) > 0);
      t.is((await asking.get(packageContent)).status, 200, packageContent);
    }
    t.is((await asking.get(asking.at(hive, 'some.none/index.json'))).status, 404);
  });

  suite('a search finds ids with all their versions, page by page', async (t, asking) => {
    const { totalHits, data } = await asking.search('q=some.lib');
    t.deepEqual([totalHits, data.map(({ id, version }) => [id, version])], [1, [['Some.Lib', '2.0.0']]]);
    const [{ versions, registration, totalDownloads }] = data as [Hit];
    t.deepEqual(
      versions.map(({ version }) => version),
      ['1.0.0', '1.1.0-Beta', '2.0.0'],
    );
    t.true(versions.every(({ downloads }) => Number.isInteger(downloads)) && Number.isInteger(totalDownloads));
    t.is((await asking.get(registration)).status, 200);
    const all = await asking.search('q=');
    t.deepEqual(all.data.map(({ id }) => id).toSorted(), ['Some.Lib', 'Some.Tool']);
    const pages = [0, 1, 2].map((skip) => asking.search(`q=&take=1&skip=${skip}`));
    t.deepEqual(
      (await Promise.all(pages)).map((page) => [page.totalHits, page.data.map(({ id }) => id)]),
      [...all.data.map(({ id }) => [2, [id]]), [2, []]],
    );
    t.deepEqual(await asking.search('q=nothing.like.it').then(({ totalHits: hits, data: none }) => [hits, none]), [
      0,
      [],
    ]);
  });

  suite('completion lists ids, and the versions of one', async (t, asking) => {
    const { totalHits, data } = await asking.complete('q=some');
    t.deepEqual([totalHits, data.toSorted()], [2, ['Some.Lib', 'Some.Tool']]);
    const page = await asking.complete('q=some&take=1&skip=1');
    t.deepEqual([page.totalHits, page.data], [2, data.slice(1)]);
    const versions = await asking.complete('id=some.lib');
    t.deepEqual(versions.data, ['1.0.0', '1.1.0-Beta', '2.0.0']);
    t.deepEqual((await asking.complete('id=some.none')).data, []);
  });
}
