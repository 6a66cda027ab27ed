import { createHash } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../../src/database/database.ts';
import { makeNupkg, pngPixel } from '../../support/builders/nupkg.ts';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { TestFeed } from '../../support/feed.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { missingIn, toldOf } from '../../support/withdrawn.ts';
import { answer, type Behaviour } from '../../support/upstreams/faulty-upstream.ts';
import { json, UpstreamFeed, validated, type FeedPackage } from '../../support/upstreams/upstream-feed.ts';

// What an upstream withdraws stays here: it is listed, served, and marked when its absence is certain.

const minute = 60_000;
const hives = ['registration', 'registration-gz', 'registration-gz-semver2'];
const cacheOf = (response: Response) => response.headers.get('cache-status');
const withdrawn = 'entrepot; hit; detail=withdrawn';

interface Setup {
  up: UpstreamFeed;
  server: TestServer;
  feed: TestFeed;
  later: (minutes?: number) => void;
}

async function start(t: ExecutionContext, dialect: Dialect, more: readonly UpstreamFeed[] = []): Promise<Setup> {
  const up = await UpstreamFeed.start(t);
  const settings = { freshFor: '5m', negativeFor: '2m' };
  const upstreams = [up.as('up.test', settings), ...more.map((each, at) => each.as(`more-${at}.test`, settings))];
  const database = { url: await temporaryDatabase(t, dialect) };
  const server = await startTestServer(t, { upstreams, database });
  server.clock.now = Date.now();
  const later = (minutes = 6) => void (server.clock.now! += minutes * minute);
  return { up, server, feed: new TestFeed(server), later };
}

const path = (version: string, id = 'lib') => `/package/${id}/${version}/${id}.${version}.nupkg`;

/** Downloads versions, so that they are stored. */
async function store(t: ExecutionContext, { feed }: Pick<Setup, 'feed'>, ...versions: string[]): Promise<void> {
  await feed.json('/package/lib/index.json');
  for (const version of versions) {
    const response = await feed.fetch(path(version));
    t.is(response.status, 200);
    await response.arrayBuffer();
  }
}

const lib = (...versions: string[]): FeedPackage => ({ id: 'Lib', versions: versions.map((version) => ({ version })) });

/** The upstream offers only `left` of the versions. */
async function withdraw(up: UpstreamFeed, all: readonly string[], left: readonly string[]): Promise<void> {
  for (const version of all) up.upstream.on(`/flat/lib/${version}/lib.${version}.nupkg`, answer(404));
  if (left.length > 0) return up.offer(lib(...left));
  up.packages.delete('lib');
  for (const each of ['/flat/lib/index.json', '/registration/lib/index.json']) up.upstream.on(each, answer(404));
}

async function versionsOf(feed: TestFeed): Promise<string[]> {
  return (await feed.json('/package/lib/index.json')).versions;
}

/** The versions of each hive, with whether they are listed. */
async function registered(feed: TestFeed, hive: string): Promise<Record<string, boolean>> {
  const index = await feed.json(`/${hive}/lib/index.json`);
  const found: Record<string, boolean> = {};
  for (const page of index.items) {
    const items = page.items ?? (await feed.json(page['@id'])).items;
    if (items.length !== page.count) throw new Error(`a page has ${items.length} of ${page.count} versions`);
    for (const { catalogEntry } of items) found[catalogEntry.version] = catalogEntry.listed;
  }
  return found;
}

const all = ['1.0.0', '1.5.0', '2.0.0', '10.0.0'];

for (const dialect of dialects) {
  test(`a stored version that the upstream deletes stays in every document, and is downloaded (${dialect})`, async (t) => {
    const setup = await start(t, dialect);
    const { up, server, feed, later } = setup;
    const nuspec = {
      id: 'Lib',
      version: '2.0.0',
      description: 'What the package says',
      readme: '# Read me',
      icon: pngPixel,
    };
    const nupkg = await makeNupkg(nuspec);
    const versions = all.map((version) => ({ version, ...(version === '2.0.0' && { nupkg }) }));
    await up.offer({ id: 'Lib', versions });
    await store(t, setup, '1.0.0', '2.0.0');
    await withdraw(up, all, ['1.0.0', '10.0.0']);
    later();
    // 1.5.0 was never stored, so it is gone.
    t.deepEqual(await versionsOf(feed), ['1.0.0', '2.0.0', '10.0.0']);
    t.deepEqual(await versionsOf(feed), ['1.0.0', '2.0.0', '10.0.0'], 'also the answer from the storage');
    const expected = { '1.0.0': true, '2.0.0': false, '10.0.0': true };
    for (const hive of hives) t.deepEqual(await registered(feed, hive), expected, hive);
    for (const hive of hives) {
      const leaf = await feed.json(`/${hive}/lib/2.0.0.json`);
      t.is(leaf.listed, false);
      const file = (name: string) => new URL(`/v3/package/lib/2.0.0/${name}`, server.url).href;
      t.like(leaf.catalogEntry, {
        description: 'What the package says',
        packageHash: createHash('sha512').update(nupkg).digest('base64'),
        packageHashAlgorithm: 'SHA512',
        readmeUrl: file('readme'),
        iconUrl: file('icon'),
      });
      t.true(leaf.packageContent.startsWith(server.url));
      const page = await feed.json(`/${hive}/lib/page/1.2.0/3.0.0.json`);
      t.deepEqual(
        page.items.map((each: any) => each.catalogEntry.version),
        ['2.0.0'],
      );
    }
    for (const file of [path('2.0.0'), '/package/lib/2.0.0/lib.nuspec', '/package/lib/2.0.0/readme']) {
      const response = await feed.fetch(file);
      t.is(response.status, 200, file);
      await response.arrayBuffer();
    }
    const response = await feed.fetch(path('2.0.0'));
    t.is(cacheOf(response), withdrawn);
    t.deepEqual(Buffer.from(await response.arrayBuffer()), nupkg);
    t.is(cacheOf(await feed.fetch(path('1.0.0'))), 'entrepot; hit');
    t.is((await feed.fetch(path('1.5.0'))).status, 404);
    const hits = await feed.json('/search?q=lib');
    t.deepEqual(
      hits.data[0].versions.map((each: any) => each.version),
      ['1.0.0', '10.0.0'],
      'a search hides it',
    );
  });

  test(`an id that the upstream deletes stays with its stored versions (${dialect})`, async (t) => {
    const setup = await start(t, dialect);
    const { up, feed, later } = setup;
    await up.offer(lib(...all));
    await store(t, setup, '1.0.0', '2.0.0');
    await withdraw(up, all, []);
    later();
    for (let time = 0; time < 2; time += 1) {
      const flat = await feed.fetch('/package/lib/index.json');
      t.deepEqual(await flat.json(), { versions: ['1.0.0', '2.0.0'] });
      t.is(cacheOf(flat), withdrawn);
      for (const hive of hives) t.deepEqual(await registered(feed, hive), { '1.0.0': false, '2.0.0': false });
    }
    t.is((await feed.fetch('/registration/lib/1.5.0.json')).status, 404);
    t.is((await feed.fetch(path('2.0.0'))).status, 200);
    t.is((await feed.fetch('/package/never/index.json')).status, 404, 'an id of which nothing is stored');
  });

  test(`a version is marked at the second sighting, told, and restored when it comes back (${dialect})`, async (t) => {
    const setup = await start(t, dialect);
    const { up, server, feed, later } = setup;
    await up.offer(lib(...all));
    await store(t, setup, '1.0.0', '2.0.0');
    await withdraw(up, all, ['1.0.0']);
    later();
    await versionsOf(feed);
    t.deepEqual(await missingIn(server), ['2.0.0']);
    t.deepEqual(await toldOf(server), []);
    later();
    await versionsOf(feed);
    t.deepEqual(await missingIn(server), ['2.0.0 marked']);
    const told = 'package Lib 2.0.0 up.test';
    t.deepEqual(await toldOf(server), [`upstream.withdrawn ${told}`]);
    later();
    await versionsOf(feed);
    t.is((await toldOf(server)).length, 1, 'told once');
    await up.offer(lib('1.0.0', '2.0.0'));
    later();
    t.deepEqual(await versionsOf(feed), ['1.0.0', '2.0.0']);
    t.deepEqual(await missingIn(server), []);
    t.deepEqual(await toldOf(server), [`upstream.withdrawn ${told}`, `upstream.restored ${told}`]);
    t.is(cacheOf(await feed.fetch(path('2.0.0'))), 'entrepot; hit');
    t.deepEqual(await registered(feed, 'registration'), { '1.0.0': true, '2.0.0': true });
  });
}

test('a list that is confirmed with 304 counts as a further sighting', async (t) => {
  const setup = await start(t, 'sqlite');
  const { up, server, feed, later } = setup;
  await up.offer(lib('1.0.0', '2.0.0'));
  await store(t, setup, '1.0.0', '2.0.0');
  await withdraw(up, all, ['1.0.0']);
  up.upstream.on('/flat/lib/index.json', validated({ versions: ['1.0.0'] }, '"one"'));
  for (const isMarked of [false, true]) {
    later();
    t.deepEqual(await versionsOf(feed), ['1.0.0', '2.0.0']);
    t.deepEqual(await missingIn(server), [isMarked ? '2.0.0 marked' : '2.0.0']);
  }
  // The id is deleted, and then comes back as it was.
  up.upstream.on('/flat/lib/index.json', answer(404));
  later();
  await versionsOf(feed);
  t.is((await missingIn(server)).length, 2);
  up.upstream.on('/flat/lib/index.json', validated({ versions: ['1.0.0'] }, '"one"'));
  later();
  t.deepEqual(await versionsOf(feed), ['1.0.0', '2.0.0']);
  t.deepEqual(await missingIn(server), ['2.0.0 marked']);
});

test('two sightings sooner than negativeFor do not mark', async (t) => {
  const up = await UpstreamFeed.start(t);
  const server = await startTestServer(t, { upstreams: [up.as('up.test', { freshFor: '1s', negativeFor: '10m' })] });
  server.clock.now = Date.now();
  const feed = new TestFeed(server);
  await up.offer(lib('1.0.0', '2.0.0'));
  await store(t, { feed }, '2.0.0');
  await withdraw(up, all, ['1.0.0']);
  for (const [seconds, isMarked] of [
    [2, false],
    [300, false],
    [299, false],
    [5, true],
  ] as const) {
    server.clock.now += seconds * 1000;
    await versionsOf(feed);
    t.deepEqual(await missingIn(server), [isMarked ? '2.0.0 marked' : '2.0.0'], `${seconds}`);
  }
});

for (const [what, flat, nupkg] of [
  ['401', answer(401, { 'www-authenticate': 'Basic realm="up"' }), answer(404)],
  ['403', answer(403), answer(404)],
  ['500', answer(500), answer(404)],
  ['a cut', (request) => request.socket.destroy(), answer(404)],
  ['no list', json({ versions: 'none' }), answer(404)],
  ['an empty list', json({ versions: [] }), answer(404)],
  ['a shrunken list, and 503 for the package', json({ versions: ['1.0.0'] }), answer(503)],
  ['a shrunken list, and 403 for the package', json({ versions: ['1.0.0'] }), answer(403)],
  ['a list without unlisted versions, which it still has', json({ versions: ['1.0.0'] }), answer(200)],
] as [string, Behaviour, Behaviour][]) {
  test(`an upstream that answers with ${what} does not mark, and what is stored is served`, async (t) => {
    const setup = await start(t, 'sqlite');
    const { up, server, feed, later } = setup;
    await up.offer(lib('1.0.0', '2.0.0'));
    await store(t, setup, '1.0.0', '2.0.0');
    up.upstream.on('/flat/lib/index.json', flat);
    up.upstream.on('/flat/lib/2.0.0/lib.2.0.0.nupkg', nupkg);
    for (let time = 0; time < 4; time += 1) {
      later();
      t.deepEqual(await versionsOf(feed), ['1.0.0', '2.0.0']);
      t.is((await feed.fetch(path('2.0.0'))).status, 200);
    }
    t.false((await missingIn(server)).some((each) => each.includes('marked')));
    t.deepEqual(await toldOf(server), []);
  });
}

test('a withdrawn id stays with its owner: the next upstream is not asked for it', async (t) => {
  const other = await UpstreamFeed.start(t);
  const setup = await start(t, 'sqlite', [other]);
  const { up, feed, later } = setup;
  await up.offer(lib('1.0.0', '2.0.0'));
  await store(t, setup, '1.0.0');
  await other.offer(lib('1.0.0', '2.0.0', '9.0.0'));
  for (const gone of [json({ versions: [] }), answer(404), json({ versions: ['2.0.0'] })]) {
    up.upstream.on('/flat/lib/index.json', gone);
    up.upstream.on('/registration/lib/index.json', answer(404));
    later();
    for (let time = 0; time < 2; time += 1) {
      t.deepEqual(
        (await versionsOf(feed)).filter((each) => each !== '2.0.0'),
        ['1.0.0'],
      );
      t.deepEqual(Object.keys(await registered(feed, 'registration')), ['1.0.0']);
      t.is((await feed.fetch(path('9.0.0'))).status, 404);
      t.is((await feed.fetch(path('1.0.0'))).status, 200);
    }
  }
  t.deepEqual(other.asked, []);
  // A user drops what is stored on purpose: then the owner has nothing any more.
  up.upstream.on('/flat/lib/index.json', answer(404));
  later();
  await versionsOf(feed);
  t.is((await setup.server.fetch('/v1/packages/Lib/1.0.0', { method: 'DELETE' })).status, 204);
  t.deepEqual(await versionsOf(feed), ['1.0.0', '2.0.0', '9.0.0']);
});

test('what a user drops is gone, and its mark with it', async (t) => {
  const setup = await start(t, 'sqlite');
  const { up, server, feed, later } = setup;
  await up.offer(lib('1.0.0', '2.0.0'));
  await store(t, setup, '1.0.0', '2.0.0');
  await withdraw(up, all, ['1.0.0']);
  later();
  await versionsOf(feed);
  t.is((await server.fetch('/v1/packages/Lib/2.0.0', { method: 'DELETE' })).status, 204);
  t.deepEqual(await versionsOf(feed), ['1.0.0']);
  t.deepEqual(await registered(feed, 'registration'), { '1.0.0': true });
  t.is((await feed.fetch(path('2.0.0'))).status, 404);
  t.deepEqual(await missingIn(server), []);
});

test('a withdrawn version is put into the pages of a long registration, also between and behind them', async (t) => {
  const setup = await start(t, 'sqlite');
  const { up, feed, later } = setup;
  const left = Array.from({ length: 300 }, (_, at) => `${at + 2}.0.0`);
  const [before, between, behind] = ['1.0.0', '101.5.0', '999.0.0'];
  await up.offer(lib(before, between, behind));
  await store(t, setup, before, between, behind);
  for (const version of [before, between, behind])
    up.upstream.on(`/flat/lib/${version}/lib.${version}.nupkg`, answer(404));
  await up.offer({ ...lib(...left), pageSize: 50 });
  later();
  await versionsOf(feed);
  for (const hive of hives) {
    const found = await registered(feed, hive);
    t.is(Object.keys(found).length, 303);
    t.deepEqual(Object.keys(found).slice(0, 2), [before, '2.0.0']);
    t.is(Object.keys(found).at(-1), behind);
    t.deepEqual(
      Object.keys(found).filter((each) => !found[each]),
      [before, between, behind],
    );
    t.is((await feed.json(`/${hive}/lib/${between}.json`)).catalogEntry.version, between);
    t.is((await feed.json(`/${hive}/lib/${behind}.json`)).catalogEntry.version, behind);
  }
});

test('a hive without SemVer 2 versions gets no withdrawn one', async (t) => {
  const setup = await start(t, 'sqlite');
  const { up, feed, later } = setup;
  await up.offer(lib('1.0.0', '2.0.0-beta.1'));
  await store(t, setup, '1.0.0', '2.0.0-beta.1');
  await withdraw(up, ['2.0.0-beta.1'], ['1.0.0']);
  later();
  t.deepEqual(await versionsOf(feed), ['1.0.0', '2.0.0-beta.1']);
  t.deepEqual(await registered(feed, 'registration-gz'), { '1.0.0': true });
  t.deepEqual(await registered(feed, 'registration-gz-semver2'), { '1.0.0': true, '2.0.0-beta.1': false });
});

test('a withdrawn version is served by a server that is offline', async (t) => {
  const up = await UpstreamFeed.start(t);
  const database = { url: await temporaryDatabase(t, 'sqlite') };
  const first = await startTestServer(t, { upstreams: [up.as('up.test')], database });
  first.clock.now = Date.now();
  await up.offer(lib('1.0.0', '2.0.0'));
  const setup = { feed: new TestFeed(first) };
  await store(t, setup, '1.0.0', '2.0.0');
  for (const left of [['1.0.0'], []]) {
    await withdraw(up, all, left);
    first.clock.now += 10 * minute;
    await versionsOf(setup.feed);
  }
  await first.close();
  const offline = { upstreams: [up.as('up.test')], database, data: first.data, offline: true };
  const feed = new TestFeed(await startTestServer(t, offline));
  t.deepEqual(await versionsOf(feed), ['1.0.0', '2.0.0']);
  t.is((await feed.fetch(path('2.0.0'))).status, 200);
});
