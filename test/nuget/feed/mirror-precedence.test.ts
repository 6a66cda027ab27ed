import test, { type ExecutionContext } from 'ava';
import { answer } from '../../support/upstreams/faulty-upstream.ts';
import { TestFeed } from '../../support/feed.ts';
import { makeNupkg } from '../../support/builders/nupkg.ts';
import type { TestServer } from '../../support/server.ts';
import { until } from '../../support/until.ts';
import { startMirrorOf, UpstreamFeed } from '../../support/upstreams/upstream-feed.ts';

// The owner of an id matters for security: hosted, claimed and reserved ids are never sent upstream, and of several
// upstreams only the first that has an id is used.

const hives = ['registration', 'registration-gz', 'registration-gz-semver2'];

/** The paths of all documents of a version. */
function pathsOf(id: string, version: string): string[] {
  const key = id.toLowerCase();
  return [
    `/package/${key}/index.json`,
    `/package/${key}/${version}/${key}.${version}.nupkg`,
    `/package/${key}/${version}/${key}.nuspec`,
    `/package/${key}/${version}/readme`,
    `/package/${key}/${version}/icon`,
    ...hives.flatMap((hive) => [
      `/${hive}/${key}/index.json`,
      `/${hive}/${key}/page/${version}/${version}.json`,
      `/${hive}/${key}/${version}.json`,
    ]),
  ];
}

async function statuses(feed: TestFeed, paths: readonly string[]): Promise<number[]> {
  const found: number[] = [];
  for (const path of paths) {
    const response = await feed.fetch(path);
    await response.arrayBuffer();
    found.push(response.status);
  }
  return found;
}

interface Setup {
  up: UpstreamFeed;
  server: TestServer;
  feed: TestFeed;
}

async function mirrored(t: ExecutionContext, settings: Record<string, unknown> = {}): Promise<Setup> {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'Contoso.Utility', versions: [{ version: '1.0.0' }, { version: '9.0.0' }] });
  await up.offer({ id: 'Public.Thing', versions: [{ version: '1.0.0' }] });
  const server = await startMirrorOf(t, [up.as('up.test')], settings);
  return { up, server, feed: new TestFeed(server) };
}

/** Checks that no document contains this id, and that the upstream is not asked for it. */
async function isClosed(t: ExecutionContext, { up, feed }: Setup, id: string, version = '9.0.0'): Promise<void> {
  const before = up.asked.length;
  const paths = pathsOf(id, version);
  const hosted = (await feed.fetch(paths[0]!)).status;
  t.deepEqual(
    await statuses(feed, paths),
    paths.map((path) => (path.endsWith('/index.json') ? hosted : 404)),
  );
  t.notRegex(JSON.stringify(await feed.json(`/autocomplete?id=${id}&semVerLevel=2.0.0`)), /9\.0\.0/);
  const asked = up.upstream.asked.slice(before).map(({ path }) => decodeURIComponent(path).toLowerCase());
  t.deepEqual(
    asked.filter((path) => path.includes(id.toLowerCase())),
    [],
  );
  const hits = await feed.json(`/search?q=&semVerLevel=2.0.0&prerelease=true`);
  t.false(hits.data.some((hit: { id: string }) => hit.id.toLowerCase() === id.toLowerCase() && isNine(hit)));
  const ids = await feed.json(`/autocomplete?q=${id.slice(0, 5)}`);
  const listed: string[] = ids.data;
  t.true(listed.filter((each) => each.toLowerCase() === id.toLowerCase()).length <= 1);
}

function isNine({ versions }: any): boolean {
  return versions.some(({ version }: { version: string }) => version === '9.0.0');
}

test('a hosted id is served from hosted versions only, and no upstream document of it is requested', async (t) => {
  const setup = await mirrored(t);
  await setup.feed.publish({ id: 'contoso.utility', version: '1.0.0' });
  await isClosed(t, setup, 'Contoso.Utility');
  t.deepEqual(await setup.feed.json('/package/contoso.utility/index.json'), { versions: ['1.0.0'] });
  const search = await setup.feed.json('/search?q=utility');
  t.is(search.totalHits, 1);
  t.deepEqual(search.data[0].versions.length, 1);
  // Other ids are still mirrored.
  t.deepEqual(await setup.feed.json('/package/public.thing/index.json'), { versions: ['1.0.0'] });
});

test('an id whose last version was deleted stays claimed', async (t) => {
  const setup = await mirrored(t);
  await setup.feed.publish({ id: 'Contoso.Utility', version: '1.0.0' });
  const deleted = await setup.server.fetch('/v1/packages/Contoso.Utility/1.0.0', { method: 'DELETE' });
  t.is(deleted.status, 204);
  await isClosed(t, setup, 'Contoso.Utility');
  t.is((await setup.feed.fetch('/package/contoso.utility/index.json')).status, 404);
  t.deepEqual((await setup.feed.json('/search?q=contoso')).data, []);
  t.deepEqual((await setup.feed.json('/autocomplete?q=contoso')).data, []);
});

for (const pattern of ['Contoso.Utility', 'contoso.*', 'CONTOSO*', '*utility', 'c*.*y']) {
  test(`an id that matches the reserved pattern ${pattern} is never sent upstream`, async (t) => {
    const setup = await mirrored(t, { reserved: { packages: [pattern] } });
    await isClosed(t, setup, 'Contoso.Utility');
    t.is((await setup.feed.fetch('/package/contoso.utility/index.json')).status, 404);
    t.deepEqual((await setup.feed.json('/search?q=contoso')).data, []);
    t.is((await setup.feed.json('/search?q=thing')).totalHits, 1);
  });
}

test('a search that names a hosted or reserved id is not sent upstream', async (t) => {
  const setup = await mirrored(t, { reserved: { packages: ['Secret.*'] } });
  await setup.feed.publish({ id: 'Contoso.Utility', version: '1.0.0' });
  const { up, feed } = setup;
  for (const q of [
    'secret.plans',
    'packageid:Secret.Plans',
    'SECRET.plans thing',
    'id:contoso.utility',
    'Contoso.Utility',
    '"Secret.Plans"',
    // Each word costs a look-up.
    Array.from({ length: 33 }, (_, at) => `w${at}`).join(' '),
  ]) {
    await feed.json(`/search?q=${encodeURIComponent(q)}`);
    await feed.json(`/autocomplete?q=${encodeURIComponent(q)}`);
    t.deepEqual(up.asked, [], q);
  }
  t.is((await feed.json('/search?q=packageid:Contoso.Utility')).totalHits, 1);
  // A search on a busy machine can leave out the upstream.
  await until(async () => (await feed.json('/search?q=thing')).totalHits === 1);
  t.deepEqual([...new Set(up.asked)], ['/query']);
});

test('a merged id has further versions from upstream, and the hosted ones win in every document', async (t) => {
  const setup = await mirrored(t, { merge: { packages: ['contoso.*'] } });
  const { up, server, feed } = setup;
  const hosted = await makeNupkg({ id: 'Contoso.Utility', version: '1.0.0', description: 'Ours' });
  t.is((await feed.push(hosted)).status, 201);
  t.deepEqual(await feed.json('/package/contoso.utility/index.json'), { versions: ['1.0.0', '9.0.0'] });
  const nupkg = await feed.fetch('/package/contoso.utility/1.0.0/contoso.utility.1.0.0.nupkg');
  t.deepEqual(Buffer.from(await nupkg.arrayBuffer()), hosted);
  const nine = await feed.fetch('/package/contoso.utility/9.0.0/contoso.utility.9.0.0.nupkg');
  t.is(nine.status, 200);
  await nine.arrayBuffer();
  for (const hive of hives) {
    const [page] = (await feed.json(`/${hive}/contoso.utility/index.json`)).items;
    const entries = page.items.map((item: any) => item.catalogEntry);
    t.deepEqual(
      entries.map(({ version, description }: any) => [version, description]),
      [
        ['1.0.0', 'Ours'],
        ['9.0.0', 'About Contoso.Utility'],
      ],
    );
    t.is((await feed.json(`/${hive}/contoso.utility/1.0.0.json`)).catalogEntry.description, 'Ours');
    t.is((await feed.json(`/${hive}/contoso.utility/9.0.0.json`)).catalogEntry.version, '9.0.0');
  }
  t.deepEqual((await feed.json('/autocomplete?id=Contoso.Utility')).data, ['1.0.0', '9.0.0']);
  // A file that the hosted version lacks is not taken from the upstream's version of the same number.
  up.upstream.on('/flat/contoso.utility/1.0.0/readme', answer(200, { 'content-type': 'text/markdown' }, '# Theirs'));
  t.is((await feed.fetch('/package/contoso.utility/1.0.0/readme')).status, 404);
  t.false(up.asked.some((path) => path.includes('contoso.utility/1.0.0')));
  // What the upstream offers later is shown, too.
  server.clock.now = Date.now();
  await feed.publish({ id: 'Contoso.New', version: '1.0.0' });
  for (let time = 0; time < 2; time += 1)
    t.deepEqual(await feed.json('/package/contoso.new/index.json'), { versions: ['1.0.0'] });
  await up.offer({ id: 'Contoso.New', versions: [{ version: '2.0.0' }] });
  server.clock.now += 3_600_000;
  t.deepEqual(await feed.json('/package/contoso.new/index.json'), { versions: ['1.0.0', '2.0.0'] });
});

test('the hosted versions of a merged id are served while the upstream fails', async (t) => {
  const { up, feed } = await mirrored(t, { merge: { packages: ['contoso.*'] } });
  await feed.publish({ id: 'Contoso.Utility', version: '1.0.0' });
  await up.upstream.stop();
  t.deepEqual(await feed.json('/package/contoso.utility/index.json'), { versions: ['1.0.0'] });
  t.is((await feed.json('/registration/contoso.utility/index.json')).items[0].count, 1);
  t.is((await feed.fetch('/package/contoso.utility/9.0.0/contoso.utility.9.0.0.nupkg')).status, 502);
});

test('a hosted SemVer 2 version hides the equal upstream version, also from clients that do not see the hosted one', async (t) => {
  const { feed } = await mirrored(t, { merge: { packages: ['contoso.*'] } });
  await feed.publish({ id: 'Contoso.Utility', version: '9.0.0', dependencies: [{ id: 'A', version: '1.0.0-a.b' }] });
  const [page] = (await feed.json('/registration/contoso.utility/index.json')).items;
  t.deepEqual(
    page.items.map((item: any) => item.catalogEntry.version),
    ['1.0.0'],
  );
});

test('a package pushed over a mirrored id is served from the next request on; the push and the log warn', async (t) => {
  const { up, server, feed } = await mirrored(t);
  t.deepEqual(await feed.json('/package/contoso.utility/index.json'), { versions: ['1.0.0', '9.0.0'] });
  t.is((await feed.fetch('/package/contoso.utility/9.0.0/contoso.utility.9.0.0.nupkg')).status, 200);
  t.is((await feed.fetch('/registration/contoso.utility/index.json')).status, 200);
  t.is((await feed.json('/search?q=utility')).totalHits, 1);

  const pushed = await feed.push({ id: 'Contoso.Utility', version: '2.0.0' });
  t.regex(pushed.headers.get('x-nuget-warning') ?? '', /Contoso\.Utility.*up\.test/);
  const warned = () => server.lines.filter((line) => line.includes('takes precedence over'));
  t.is(warned().length, 1);
  t.like(JSON.parse(warned()[0]!), { level: 40, id: 'Contoso.Utility', upstream: 'up.test' });
  const asked = up.asked.length;
  t.deepEqual(await feed.json('/package/contoso.utility/index.json'), { versions: ['2.0.0'] });
  t.is((await feed.fetch('/package/contoso.utility/9.0.0/contoso.utility.9.0.0.nupkg')).status, 404);
  t.is((await feed.json('/registration/contoso.utility/index.json')).items[0].lower, '2.0.0');
  t.is((await feed.json('/search?q=utility')).data[0].version, '2.0.0');
  t.is(up.asked.length, asked);

  // Only the first version of an id warns, also if all versions were deleted in between.
  const second = await feed.push({ id: 'Contoso.Utility', version: '3.0.0' });
  t.is(second.headers.get('x-nuget-warning'), null);
  for (const version of ['2.0.0', '3.0.0']) {
    t.is((await server.fetch(`/v1/packages/Contoso.Utility/${version}`, { method: 'DELETE' })).status, 204);
  }
  const again = await feed.push({ id: 'Contoso.Utility', version: '4.0.0' });
  t.is(again.headers.get('x-nuget-warning'), null);
  t.is(warned().length, 1);
  const unknown = await feed.push({ id: 'Never.Seen', version: '1.0.0' });
  t.is(unknown.headers.get('x-nuget-warning'), null);
});

test('a stored nupkg is enough for the warning, and the warning for a merged id differs', async (t) => {
  const { feed } = await mirrored(t, { merge: { packages: ['Public.*'] } });
  for (const id of ['contoso.utility', 'public.thing']) {
    t.is((await feed.fetch(`/package/${id}/1.0.0/${id}.1.0.0.nupkg`)).status, 200);
  }
  const plain = await feed.push({ id: 'Contoso.Utility', version: '2.0.0' });
  t.regex(plain.headers.get('x-nuget-warning') ?? '', /only versions pushed here/);
  const merged = await feed.push({ id: 'Public.Thing', version: '2.0.0' });
  const said = merged.headers.get('x-nuget-warning') ?? '';
  t.regex(said, /up\.test/);
  t.notRegex(said, /only versions pushed here/);
});

test('an id that one account hosts is mirrored for other accounts', async (t) => {
  const { up, server, feed } = await mirrored(t);
  await feed.publish({ id: 'Contoso.Utility', version: '1.0.0' });
  const other = await TestFeed.ofAccount(server, 'other');
  t.deepEqual(await feed.json('/package/contoso.utility/index.json'), { versions: ['1.0.0'] });
  t.deepEqual(up.asked, []);
  t.deepEqual(await other.json('/package/contoso.utility/index.json'), { versions: ['1.0.0', '9.0.0'] });
  const theirs = await other.fetch('/package/contoso.utility/9.0.0/contoso.utility.9.0.0.nupkg');
  t.is(theirs.headers.get('cache-status'), 'entrepot; fwd=miss; stored');
  await theirs.arrayBuffer();
  t.is((await feed.fetch('/package/contoso.utility/9.0.0/contoso.utility.9.0.0.nupkg')).status, 404);
  t.is((await other.json('/search?q=utility')).data[0].version, '9.0.0');
  t.is((await feed.json('/search?q=utility')).data[0].version, '1.0.0');
});

test('an upstream is asked only for ids that its settings include', async (t) => {
  const up = await UpstreamFeed.start(t);
  for (const id of ['In.One', 'In.Two', 'Out.One']) await up.offer({ id, versions: [{ version: '1.0.0' }] });
  const server = await startMirrorOf(t, [up.as('up.test', { include: ['in.*'], exclude: ['IN.TWO'] })]);
  const feed = new TestFeed(server);
  t.deepEqual(
    await statuses(
      feed,
      ['in.one', 'in.two', 'out.one'].map((id) => `/package/${id}/index.json`),
    ),
    [200, 404, 404],
  );
  t.false(up.asked.some((path) => /in\.two|out\.one/.test(path)));
  const found = await feed.json('/search?q=one');
  t.deepEqual(
    found.data.map(({ id }: { id: string }) => id),
    ['In.One'],
  );
  t.is(found.totalHits, 1);
});

interface Two {
  first: UpstreamFeed;
  second: UpstreamFeed;
  server: TestServer;
  feed: TestFeed;
}

async function two(t: ExecutionContext, settings: Record<string, unknown> = {}): Promise<Two> {
  const [first, second] = [await UpstreamFeed.start(t), await UpstreamFeed.start(t)];
  await first.offer({ id: 'Shared', versions: [{ version: '1.0.0' }] });
  await second.offer({ id: 'Shared', versions: [{ version: '9.0.0' }] });
  await second.offer({ id: 'Only.Second', versions: [{ version: '2.0.0' }] });
  const server = await startMirrorOf(t, [
    first.as('first.test', { freshFor: '1m', ...settings }),
    second.as('second.test', { freshFor: '1m' }),
  ]);
  server.clock.now = Date.now();
  return { first, second, server, feed: new TestFeed(server) };
}

test('the first upstream that has an id owns it, and the next is not asked', async (t) => {
  const { second, feed } = await two(t);
  t.deepEqual(await feed.json('/package/shared/index.json'), { versions: ['1.0.0'] });
  t.is((await feed.fetch('/package/shared/9.0.0/shared.9.0.0.nupkg')).status, 404);
  t.is((await feed.fetch('/package/shared/1.0.0/shared.1.0.0.nupkg')).status, 200);
  t.is((await feed.json('/registration-gz-semver2/shared/index.json')).items[0].lower, '1.0.0');
  t.is((await feed.fetch('/registration/shared/9.0.0.json')).status, 404);
  t.deepEqual((await feed.json('/autocomplete?id=shared')).data, ['1.0.0']);
  t.deepEqual(
    second.asked.filter((path) => path.includes('shared')),
    [],
  );
  t.deepEqual(await feed.json('/package/only.second/index.json'), { versions: ['2.0.0'] });
  t.is((await feed.json('/registration/only.second/index.json')).items[0].lower, '2.0.0');
  t.is((await feed.fetch('/package/only.second/2.0.0/only.second.2.0.0.nupkg')).status, 200);
  const found = await feed.json('/search?q=shared');
  t.deepEqual([found.totalHits, found.data[0].version], [1, '1.0.0']);
});

test('a failing upstream is never skipped for the next one', async (t) => {
  const { first, second, feed } = await two(t);
  first.upstream.on('/flat/shared/index.json', answer(503));
  first.upstream.on('/flat/only.second/index.json', answer(503));
  for (const path of [...pathsOf('Shared', '9.0.0'), ...pathsOf('Only.Second', '2.0.0')]) {
    const response = await feed.fetch(path);
    t.is(response.status, 502, path);
    t.regex(response.statusText, /first\.test/, path);
  }
  t.deepEqual(
    second.asked.filter((path) => !path.startsWith('/query')),
    [],
  );
});

test('while the first upstream fails, only stored content of the second is served', async (t) => {
  const { first, second, server, feed } = await two(t);
  t.deepEqual(await feed.json('/package/only.second/index.json'), { versions: ['2.0.0'] });
  const nupkg = await feed.fetch('/package/only.second/2.0.0/only.second.2.0.0.nupkg');
  const bytes = await nupkg.arrayBuffer();
  t.is((await feed.json('/registration/only.second/index.json')).count, 1);
  await first.upstream.stop();
  await second.offer({ id: 'Only.Second', versions: [{ version: '2.0.0' }, { version: '3.0.0' }] });
  const asked = second.asked.length;
  server.clock.now! += 3_600_000;
  const stale = await feed.fetch('/package/only.second/index.json');
  t.is(stale.headers.get('cache-status'), 'entrepot; hit; detail=stale');
  t.deepEqual(await stale.json(), { versions: ['2.0.0'] });
  const again = await feed.fetch('/package/only.second/2.0.0/only.second.2.0.0.nupkg');
  t.is(again.status, 200);
  t.deepEqual(await again.arrayBuffer(), bytes);
  t.is((await feed.fetch('/package/only.second/2.0.0/only.second.nuspec')).status, 200);
  t.is((await feed.json('/registration/only.second/index.json')).count, 1);
  t.is((await feed.fetch('/package/only.second/3.0.0/only.second.3.0.0.nupkg')).status, 502);
  t.is((await feed.fetch('/package/shared/index.json')).status, 502);
  t.is(second.asked.length, asked);
});

test('offline, stored content of the second upstream is served at any age', async (t) => {
  const { first, second, server } = await two(t);
  const paths = ['/package/only.second/index.json', '/registration/only.second/index.json'];
  const before = [];
  for (const path of paths) before.push(await new TestFeed(server).json(path));
  await server.close();
  const upstreams = [first.as('first.test'), second.as('second.test')];
  const offline = await startMirrorOf(t, upstreams, { data: server.data, offline: true });
  offline.clock.now = Date.now() + 400 * 86_400_000;
  for (const [index, path] of paths.entries()) {
    const response = await new TestFeed(offline).fetch(path);
    t.is(response.headers.get('cache-status'), 'entrepot; hit; detail=stale');
    t.like(await response.json(), index === 0 ? before[0] : { count: before[1].count });
  }
});

test('an id that appears at the first upstream belongs to it from then on, despite stored copies of the second', async (t) => {
  const { first, second, server, feed } = await two(t);
  const path = '/package/only.second/2.0.0/only.second.2.0.0.nupkg';
  t.is((await feed.fetch(path)).status, 200);
  const ours = await makeNupkg({ id: 'Only.Second', version: '2.0.0' });
  await first.offer({ id: 'Only.Second', versions: [{ version: '2.0.0', nupkg: ours }] });
  server.clock.now! += 3_600_000;
  t.deepEqual(Buffer.from(await (await feed.fetch(path)).arrayBuffer()), ours);
  const asked = second.asked.length;
  t.is((await feed.fetch('/package/only.second/2.0.0/only.second.nuspec')).status, 200);
  t.is(second.asked.length, asked);
});

test('an upstream that lists no version of an id does not have it', async (t) => {
  const { first, feed } = await two(t);
  first.upstream.on('/flat/only.second/index.json', answer(200, {}, '{"versions":[]}'));
  t.deepEqual(await feed.json('/package/only.second/index.json'), { versions: ['2.0.0'] });
});
