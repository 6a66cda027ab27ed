import { randomBytes } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import { answer, endless, held } from '../../support/upstreams/faulty-upstream.ts';
import { temporaryDatabase } from '../../support/databases.ts';
import { TestFeed } from '../../support/feed.ts';
import { folderUntilEnd } from '../../support/folder.ts';
import { redisUrl } from '../../support/processes/services.ts';
import { json, startMirrorOf, UpstreamFeed } from '../../support/upstreams/upstream-feed.ts';
import { tokenOf } from '../../support/inside.ts';
import { startTestServer } from '../../support/server.ts';
import { until, within } from '../../support/until.ts';

// Searches and advisories that combine hosted and upstream data, also while an upstream is slow or fails.

interface Setup {
  up: UpstreamFeed;
  feed: TestFeed;
}

async function mirrored(
  t: ExecutionContext,
  upstream: Record<string, unknown> = {},
  settings: Record<string, unknown> = {},
  surroundings: { searchWait?: undefined } = {},
): Promise<Setup> {
  const up = await UpstreamFeed.start(t);
  const server = await startTestServer(t, { upstreams: [up.as('up.test', upstream)], ...settings }, surroundings);
  server.clock.now = Date.now();
  return { up, feed: new TestFeed(server) };
}

/** Seven hosted packages and thirty upstream packages, two of which are also hosted. */
async function seamed(t: ExecutionContext): Promise<Setup> {
  const setup = await mirrored(t);
  for (let i = 0; i < 30; i += 1) await setup.up.offer({ id: `Seam.Up${i}`, versions: [{ version: '1.0.0' }] });
  for (const id of ['Seam.Here0', 'Seam.Here1', 'seam.up3', 'Seam.Here2', 'Seam.Up20', 'Seam.Here3', 'Seam.Here4']) {
    await setup.feed.publish({ id, version: '2.0.0' });
  }
  return setup;
}

const expected = 7 + 30 - 2;

for (const take of [1, 4, 10, 20, 1000]) {
  test(`pages of ${take} hits contain each package once, hosted ones first`, async (t) => {
    const { feed } = await seamed(t);
    const [ids, completed]: [string[], string[]] = [[], []];
    for (let skip = 0; skip < expected + 5; skip += take) {
      const page = await feed.json(`/search?q=seam&skip=${skip}&take=${take}`);
      t.is(page.data.length, Math.max(0, Math.min(take, expected - skip)));
      // Duplicates between upstream and hosted are known only for upstream hits that were requested.
      t.true(page.totalHits >= expected && page.totalHits <= expected + 2);
      ids.push(...page.data.map((hit: any) => hit.id));
      completed.push(...(await feed.json(`/autocomplete?q=seam&skip=${skip}&take=${take}`)).data);
    }
    t.is(ids.length, expected);
    t.is(new Set(ids.map((id) => id.toLowerCase())).size, expected);
    t.deepEqual(
      ids.slice(0, 7).map((id) => /here|up3$|up20$/i.test(id)),
      Array.from({ length: 7 }, () => true),
    );
    t.deepEqual([...completed].sort(), [...ids].sort());
  });
}

test('the result of an upstream search is cached for freshFor', async (t) => {
  const { up, feed } = await mirrored(t, { freshFor: '1m' });
  await up.offer({ id: 'First', versions: [{ version: '1.0.0' }] });
  const hits = async () => (await feed.json('/search?q=first')).data.map((hit: any) => hit.version as string);
  const queries = () => up.asked.filter((path) => path === '/query').length;
  t.deepEqual(await hits(), ['1.0.0']);
  const before = queries();
  await up.offer({ id: 'First', versions: [{ version: '1.0.0' }, { version: '2.0.0' }] });
  feed.server.clock.now! += 59_000;
  t.deepEqual(await hits(), ['1.0.0']);
  t.is(queries(), before);
  feed.server.clock.now! += 2000;
  t.deepEqual(await hits(), ['2.0.0']);
  t.is(queries(), before + 1);
});

for (const [what, stall] of [
  ['says nothing', () => undefined],
  ['sends a body without end', endless({ bytes: 0 })],
] as const) {
  test(`an upstream whose search ${what} is left out after its time limit`, async (t) => {
    const { up, feed } = await mirrored(t, { timeout: '2s' });
    await feed.publish({ id: 'Slow.Hosted', version: '1.0.0' });
    await up.offer({ id: 'Slow.Upstream', versions: [{ version: '1.0.0' }] });
    for (const path of ['/query', '/autocomplete']) up.upstream.on(path, stall);
    for (const path of ['/search?q=slow', '/autocomplete?q=slow']) {
      t.is((await within(feed.json(path))).totalHits, 1, path);
    }
  });
}

test('a slow search delays neither the answer nor other requests to its upstream', async (t) => {
  const { up, feed } = await mirrored(t, { timeout: '5s' });
  await up.offer({ id: 'Slow.Upstream', versions: [{ version: '1.0.0' }] });
  // This search reads the service index, which takes time on a busy machine.
  t.is((await feed.json('/search?q=other')).totalHits, 0);
  let givenUp = false;
  up.upstream.on('/query', (_request, response) => response.once('close', () => (givenUp = true)));
  await feed.json('/search?q=slow');
  await until(() => givenUp);
  t.deepEqual(await feed.json('/package/slow.upstream/index.json'), { versions: ['1.0.0'] });
});

test('an answer that is too late for one search is cached for the next', async (t) => {
  // The time of the product.
  const { up, feed } = await mirrored(t, { timeout: '60s' }, {}, { searchWait: undefined });
  await up.offer({ id: 'Late', versions: [{ version: '1.0.0' }] });
  const { behaviour, release } = held(up.search());
  up.upstream.on('/query', behaviour);
  t.is((await feed.json('/search?q=late')).totalHits, 0);
  release();
  await until(async () => (await feed.json('/search?q=late')).totalHits === 1);
  t.is(up.asked.filter((path) => path === '/query').length, 1);
});

for (const [path, asked] of [
  ['/search', '/query'],
  ['/autocomplete', '/autocomplete'],
] as const) {
  test(`equal requests for ${path} at the same time share one request, which no client ends that leaves`, async (t) => {
    const { up, feed } = await mirrored(t, { timeout: '60s' });
    await up.offer({ id: 'Same', versions: [{ version: '1.0.0' }] });
    const other = await TestFeed.ofAccount(feed.server, 'other');
    const resources = Object.entries(up.resources).map(([type, id]) => ({ '@id': id, '@type': type }));
    const index = held(json({ version: '3.0.0', resources }));
    const search = held(path === '/search' ? up.search() : up.complete());
    up.upstream.on('/index.json', index.behaviour);
    up.upstream.on(asked, search.behaviour);
    const { cache } = feed.server.installation.core;
    const get = cache.get.bind(cache);
    let looked = 0;
    cache.get = <T>(key: string) => {
      if (key.startsWith('search-text:')) looked += 1;
      return get<T>(key);
    };
    // The first one leaves while the service index, which it needs, is on its way.
    const leaving = new AbortController();
    const left = feed.fetch(`${path}?q=same`, { signal: leaving.signal });
    await until(() => up.upstream.count('/index.json') === 1);
    const others = [feed, feed, other].map((each) => each.json(`${path}?q=same`));
    await until(() => looked === 4);
    leaving.abort();
    await t.throwsAsync(left);
    index.release();
    await until(() => up.upstream.asked.some((each) => each.path.startsWith(`${asked}?`)));
    search.release();
    for (const { totalHits } of await Promise.all(others)) t.is(totalHits, 1);
    t.is(up.asked.filter((each) => each === asked).length, 1);
  });
}

for (const [what, behaviour] of [
  ['fails', answer(500)],
  ['is not there', answer(404)],
  ['is a web page', answer(200, { 'content-type': 'text/html' }, '<html>')],
  ['is another document', json({ hits: [] })],
  ['finds invalid packages', json({ totalHits: 3, data: [null, { id: '../x', version: '1.0.0' }, { id: 'A' }] })],
] as const) {
  test(`a search upstream that ${what} leaves the hosted hits`, async (t) => {
    const { up, feed } = await mirrored(t);
    await feed.publish({ id: 'Hosted', version: '1.0.0' });
    for (const path of ['/query', '/autocomplete']) up.upstream.on(path, behaviour);
    const found = await feed.json('/search?q=');
    t.deepEqual(
      found.data.map((hit: any) => hit.id),
      ['Hosted'],
    );
    t.deepEqual((await feed.json('/autocomplete?q=')).data, ['Hosted']);
  });
}

test('versions for autocompletion come from the upstream’s autocompletion, or from its version list if that fails', async (t) => {
  const { up, feed } = await mirrored(t);
  await up.offer({ id: 'A', versions: [{ version: '1.0.0' }, { version: '2.0.0-beta' }, { version: '3.0.0-a.b' }] });
  t.is((await feed.fetch('/package/a/index.json')).status, 200);
  up.upstream.on('/autocomplete', answer(404));
  const versions = async (query: string) => (await feed.json(`/autocomplete?id=A&${query}`)).data;
  t.deepEqual(await versions(''), ['1.0.0']);
  t.deepEqual(await versions('prerelease=true'), ['1.0.0', '2.0.0-beta']);
  t.deepEqual(await versions('prerelease=true&semVerLevel=2.0.0'), ['1.0.0', '2.0.0-beta', '3.0.0-a.b']);
  const unknown = await feed.fetch('/autocomplete?id=nothing');
  t.deepEqual(await unknown.json(), { data: [] });
});

test('instances that share Redis share upstream search results', async (t) => {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'Shared', versions: [{ version: '1.0.0' }] });
  const name = `up-${randomBytes(8).toString('hex')}.test`;
  const database = { url: await temporaryDatabase(t, 'mysql') };
  const settings = { redis: { url: redisUrl() }, database, data: await folderUntilEnd(t) };
  const asked: number[] = [];
  for (let instance = 0; instance < 2; instance += 1) {
    const feed = new TestFeed(await startMirrorOf(t, [up.as(name)], settings));
    t.is((await feed.json('/search?q=shared')).data[0]?.version, '1.0.0');
    asked.push(up.asked.filter((path) => path === '/query').length);
  }
  t.is(asked[1], asked[0]);
});

test('search results that an older release has put into a shared cache are not used', async (t) => {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'Shared', versions: [{ version: '1.0.0' }] });
  const server = await startMirrorOf(t, [up.as('up.test')]);
  const { cache } = server.installation.core;
  const get = cache.get.bind(cache);
  const older: unknown = { totalHits: 0, data: [] };
  cache.get = async <T>(key: string) => (key.startsWith('search:') ? (older as T) : get<T>(key));
  const found = await new TestFeed(server).json('/search?q=shared');
  t.is(found.data[0].version, '1.0.0');
});

const advisory = [{ severity: 2, url: 'https://advisories.example/1', versions: '(, 2.0.0)' }];

const manyWords = (length: number) => Array.from({ length }, (_, index) => `w${index}`).join(' ');

test('a search that names a hosted or reserved id, a part of it or more than it reaches no upstream', async (t) => {
  const { up, feed } = await mirrored(
    t,
    {},
    { reserved: { packages: ['Reserved.Secret*', 'Exact'] }, merge: { packages: ['Merged.*'] } },
  );
  await feed.publish({ id: 'Contoso.Billing' }, { id: 'Json.Internal' }, { id: 'Single' }, { id: 'Merged.Lib' });
  const heard = async (query: string) => {
    const before = up.upstream.asked.length;
    await feed.json(`/search?${query}`);
    await feed.json(`/autocomplete?${query}`);
    return up.upstream.asked.slice(before).filter(({ path }) => path.includes('?'));
  };
  for (const q of [
    'Reserved.Secret*',
    '(Reserved.Secret)',
    'owner:id:Reserved.Secret',
    'Contoso.Billing json',
    'json contoso.billing',
    'Contoso.Bill',
    'contoso.b',
    '"Contoso.Billing"',
    'id:Contoso.Billing',
    'tags:"x Contoso.Billing.Api"',
    'Contoso.Billing.Api',
    'Reserved.Sec',
    'Exact.More',
    'single',
    '.Contoso.Billing.',
    '-Contoso.Billing_',
    '__Contoso.Billing--',
    'a,Contoso.Billing;b',
    '\u2003Contoso.Billing\u2003',
    manyWords(33),
  ]) {
    t.deepEqual(await heard(`q=${encodeURIComponent(q)}`), [], q);
  }
  t.deepEqual(await heard('q=json&packageType=Reserved.Secret'), [], 'in any parameter');
  for (const q of [
    'json',
    'contoso',
    'Contoso',
    'reserved',
    'Contosox.Billing',
    'billing',
    'Merged.Lib',
    'Merged.L',
    manyWords(32),
  ]) {
    t.is((await heard(`q=${encodeURIComponent(q)}`)).length, 2, q);
  }
  const other = new TestFeed(feed.server, await tokenOf(feed.server, ['read'], 'other'));
  const before = up.upstream.asked.length;
  await other.json('/search?q=Contoso.Bill');
  t.true(up.upstream.asked.length > before, 'another account does not have the id');
});

async function advised(t: ExecutionContext, settings: Record<string, unknown> = {}): Promise<Setup> {
  const setup = await mirrored(t, { freshFor: '1m' }, settings);
  const { up } = setup;
  const page = (name: string, updated: string) => ({
    '@name': name,
    '@id': `${up.url}/advisories/${updated}/${name}.json`,
    '@updated': updated,
  });
  up.upstream.on(
    '/vulnerabilities/index.json',
    json([page('base', '2024-01-01T00:00:00.1234567Z'), page('update', '2024-02-01T00:00:00Z'), { '@name': 'a/b' }]),
  );
  up.upstream.on('/advisories/2024-01-01T00:00:00.1234567Z/base.json', json({ a: advisory, hosted: advisory }));
  up.upstream.on('/advisories/2024-02-01T00:00:00Z/update.json', json({ b: advisory, 'secret.x': advisory }));
  up.upstream.on('/advisories/2024-03-01T00:00:00Z/update.json', json({ c: advisory }));
  return setup;
}

test('advisories come through the mirror, page by page', async (t) => {
  const { up, feed } = await advised(t);
  const index = await feed.json('/vulnerabilities/index.json');
  t.deepEqual(
    index.map((page: any) => [page['@id'].split('/vulnerabilities/')[1], page['@updated']]),
    [
      ['base.json', '2024-01-01T00:00:00.0000000Z'],
      ['up.test/base.json', '2024-01-01T00:00:00.1234567Z'],
      ['up.test/update.json', '2024-02-01T00:00:00Z'],
    ],
  );
  const pages = await Promise.all(index.map((page: any) => feed.json(page['@id'])));
  t.deepEqual(pages, [{}, { a: advisory, hosted: advisory }, { b: advisory, 'secret.x': advisory }]);
  t.is((await feed.fetch('/vulnerabilities/up.test/none.json')).status, 404);
  t.is((await feed.fetch('/vulnerabilities/other.test/base.json')).status, 404);

  // After the index has a new date for a page, the stored page is not served.
  const renewed = [
    {
      '@name': 'update',
      '@id': `${up.url}/advisories/2024-03-01T00:00:00Z/update.json`,
      '@updated': '2024-03-01T00:00:00Z',
    },
  ];
  up.upstream.on('/vulnerabilities/index.json', json(renewed));
  feed.server.clock.now! += 59_000;
  await feed.json('/vulnerabilities/up.test/update.json');
  feed.server.clock.now! += 2000;
  t.deepEqual(await feed.json('/vulnerabilities/up.test/update.json'), { c: advisory });

  await up.upstream.stop();
  feed.server.clock.now! += 3_600_000;
  t.is((await feed.json('/vulnerabilities/index.json')).length, 2);
  t.deepEqual(await feed.json('/vulnerabilities/up.test/update.json'), { c: advisory });
});

test('names of pages are short and without dots, as NuGet requires, and differ', async (t) => {
  const up = await UpstreamFeed.start(t);
  const names = ['base', 'update', 'page-of-a-feed.with-a-long-name'];
  const page = (name: string) => ({
    '@name': name,
    '@id': `${up.url}/${name}.json`,
    '@updated': '2024-06-06T07:08:09Z',
  });
  up.upstream.on('/vulnerabilities/index.json', json(names.map(page)));
  for (const name of names) up.upstream.on(`/${name}.json`, json({ [name]: advisory }));
  const feed = new TestFeed(await startMirrorOf(t, [up.as('packages.of-a-team.example')]));
  const index = await feed.json('/vulnerabilities/index.json');
  const found: string[] = index.map((each: any) => each['@name']);
  t.true(
    found.every((name) => /^[0-9A-Za-z-]{1,32}$/.test(name)),
    found.join(),
  );
  t.is(new Set(found).size, 4);
  t.deepEqual(await feed.json(index[3]['@id']), { [names[2]!]: advisory });
});

test('an index names at most 16 pages, and none with a name or date that is too long or none', async (t) => {
  const up = await UpstreamFeed.start(t);
  const page = (name: string, updated: unknown = '2024-06-06T07:08:09Z') => ({
    '@name': name,
    '@id': `${up.url}/${name}.json`,
    '@updated': updated,
  });
  const many = Array.from({ length: 20 }, (_, number) => `page-${number}`);
  const longest = 'x'.repeat(100);
  // A year of six digits, and digits that clients do not read.
  const longestDate = `+002024-06-06T07:08:09.${'0'.repeat(16)}Z`;
  up.upstream.on(
    '/vulnerabilities/index.json',
    json([
      page(`${longest}x`),
      page('none', 'yesterday'),
      page('number', 1_700_000_000_000),
      page('long-date', longestDate.replace('Z', '0Z')),
      page(longest, longestDate),
      ...many.map((name) => page(name)),
    ]),
  );
  const feed = new TestFeed(await startMirrorOf(t, [up.as('up.test')]));
  const index = await feed.json('/vulnerabilities/index.json');
  t.deepEqual(
    index.map((each: any) => each['@id'].split('/').at(-1)),
    ['base', longest, ...many.slice(0, 14)].map((name) => `${name}.json`),
  );
  t.is(index[1]['@updated'], longestDate);
  t.is(longestDate.length, 40);
});

test('upstream advisories on hosted or reserved ids are left out', async (t) => {
  const { feed } = await advised(t, { reserved: { packages: ['Secret.*'] }, merge: { packages: ['B'] } });
  for (const id of ['Hosted', 'B']) await feed.publish({ id, version: '1.0.0' });
  t.deepEqual(await feed.json('/vulnerabilities/up.test/base.json'), { a: advisory });
  t.deepEqual(await feed.json('/vulnerabilities/up.test/update.json'), { b: advisory });
  const other = await TestFeed.ofAccount(feed.server, 'other');
  t.deepEqual(await other.json('/vulnerabilities/up.test/base.json'), { a: advisory, hosted: advisory });
});

test('without upstream advisories there is an empty page', async (t) => {
  const { up, feed } = await advised(t);
  delete up.resources['VulnerabilityInfo/6.7.0'];
  up.announce();
  const index = await feed.json('/vulnerabilities/index.json');
  t.deepEqual(await Promise.all(index.map((page: any) => feed.json(page['@id']))), [{}]);
});

for (const [what, behaviour] of [
  ['missing', answer(404)],
  ['a list', json([])],
  ['failing', answer(500)],
] as const) {
  test(`a page of advisories that is ${what} upstream is an upstream failure`, async (t) => {
    const { up, feed } = await advised(t);
    up.upstream.on('/advisories/2024-02-01T00:00:00Z/update.json', behaviour);
    const response = await feed.fetch('/vulnerabilities/up.test/update.json');
    t.is(response.status, 502);
    t.regex(response.statusText, /up\.test/);
  });
}

test('an index of advisories that cannot be fetched is an upstream failure, so that audits warn', async (t) => {
  const { up, feed } = await advised(t);
  up.upstream.on('/vulnerabilities/index.json', answer(500));
  const response = await feed.fetch('/vulnerabilities/index.json');
  t.is(response.status, 502);
  t.regex(response.statusText, /up\.test/);
  t.is((await feed.fetch('/package/none/index.json')).status, 404, 'other requests go on');
});

test('a stored index of advisories is served while its upstream fails', async (t) => {
  const { up, feed } = await advised(t);
  const index = await feed.json('/vulnerabilities/index.json');
  up.upstream.on('/vulnerabilities/index.json', answer(500));
  feed.server.clock.now = Date.now() + 86_400_000;
  t.deepEqual(await feed.json('/vulnerabilities/index.json'), index);
});
