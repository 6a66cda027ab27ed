import test, { type ExecutionContext } from 'ava';
import { answer, serve } from '../support/upstreams/faulty-upstream.ts';
import { TestFeed } from '../support/feed.ts';
import { makeNupkg, type MadeDependency, type NupkgOptions } from '../support/builders/nupkg.ts';
import { missingIn, prefetchInto, wishesIn, wishesOf } from '../support/prefetch.ts';
import type { TestServer } from '../support/server.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { until, within } from '../support/until.ts';
import { vulnerabilitiesOf } from '../support/inside.ts';

type Versions = Record<string, Omit<NupkgOptions, 'id' | 'version'>>;

interface Setup {
  feed: UpstreamFeed;
  mirror: TestServer;
  offer: (id: string, versions: Versions) => Promise<void>;
  /** Whether a restore finds a version while the upstream is down. */
  isHere: (id: string, version: string) => Promise<boolean>;
}

async function setUp(t: ExecutionContext, settings: Record<string, unknown> = {}, upstream = {}): Promise<Setup> {
  const feed = await UpstreamFeed.start(t);
  const mirror = await startMirrorOf(t, [feed.as('up.test', { timeout: '30s', ...upstream })], settings);
  return {
    feed,
    mirror,
    offer: async (id, versions) => {
      const made = Object.entries(versions).map(async ([version, options]) => ({
        version,
        nupkg: await makeNupkg({ id, version, ...options }),
      }));
      await feed.offer({ id, versions: await Promise.all(made) });
    },
    isHere: async (id, version) => {
      const key = id.toLowerCase();
      const index = await mirror.fetch(`/v3/package/${key}/index.json`);
      if (index.status !== 200) return false;
      const { versions } = (await index.json()) as { versions: string[] };
      const nupkg = await mirror.fetch(`/v3/package/${key}/${version}/${key}.${version}.nupkg`);
      await nupkg.arrayBuffer();
      return versions.includes(version) && nupkg.status === 200;
    },
  };
}

const on = (...dependencies: MadeDependency[]) => ({ dependencies });

test('the packages of a lock file are stored when the upstream is down, and are fetched once', async (t) => {
  const { feed, mirror, offer, isHere } = await setUp(t);
  await offer('Lib.A', { '1.0.0': {}, '1.1.0': {}, '2.0.0': {} });
  await offer('Lib.B', { '3.0.0-beta': {} });
  const items = wishesOf('Lib.A@1.0.0', 'lib.a@1.1', 'Lib.B@3.0.0-Beta', 'Lib.A@1.0.0');
  const report = await prefetchInto(mirror, items);
  t.deepEqual(report.missing, []);
  t.is(report.fetched.package.count, 3);
  t.true(report.fetched.package.bytes > 500);
  t.true(report.received >= report.fetched.package.bytes);
  t.false(report.approximate);
  t.is(feed.upstream.count('/flat/lib.a/index.json'), 1);

  const asked = feed.asked.filter((path) => path.startsWith('/flat/')).length;
  mirror.clock.now = Date.now() + 86_400_000;
  const again = await prefetchInto(mirror, items);
  t.is(again.present.package.count, 3);
  t.is(again.fetched.package.count, 0);
  t.is(feed.asked.filter((path) => path.startsWith('/flat/')).length, asked, 'stored content is not fetched');

  await feed.upstream.stop();
  for (const [id, version] of [
    ['Lib.A', '1.0.0'],
    ['Lib.A', '1.1.0'],
    ['Lib.B', '3.0.0-beta'],
  ] as const) {
    t.true(await isHere(id, version), id);
  }
  t.false(await isHere('Lib.A', '2.0.0'));
});

test('a package that a full disk does not take is missing, and not here already', async (t) => {
  const { mirror, offer } = await setUp(t, { storage: { reserve: '1000TiB' } });
  await offer('Lib.A', { '1.0.0': {} });
  const report = await prefetchInto(mirror, wishesOf('Lib.A@1.0.0'));
  t.deepEqual(missingIn(report), [
    'Lib.A 1.0.0: It was not stored: the disk of the server is full, or cannot be written.',
  ]);
  t.deepEqual([report.present.package.count, report.fetched.package.count], [0, 0]);
});

test('a version that is not in the stored version list makes the list refresh', async (t) => {
  const { feed, mirror, offer, isHere } = await setUp(t);
  await offer('Lib', { '1.0.0': {} });
  await prefetchInto(mirror, wishesOf('Lib@1.0.0'));
  await offer('Lib', { '1.0.0': {}, '2.0.0': {} });
  mirror.clock.now = Date.now() + 3_600_000;
  t.deepEqual(missingIn(await prefetchInto(mirror, wishesOf('Lib@2.0.0'))), []);
  await feed.upstream.stop();
  t.true(await isHere('Lib', '2.0.0'));
});

test('a project resolves to the lowest versions that apply for its framework, and is reported as approximate', async (t) => {
  const { feed, mirror, offer, isHere } = await setUp(t);
  await offer('App', {
    '1.0.0': {
      dependencyGroups: [
        { targetFramework: 'net8.0', dependencies: [{ id: 'Modern', version: '1.5' }] },
        { targetFramework: '.NETStandard1.3', dependencies: [{ id: 'Ancient', version: '1.0' }] },
      ],
    },
  });
  await offer('Modern', {
    '1.0.0': {},
    '1.5.0-beta': {},
    '1.6.0': on({ id: 'Deep', version: '[1.0,2.0)' }),
    '2.0.0': {},
  });
  await offer('Deep', { '0.9.0': {}, '1.2.0': on({ id: 'app', version: '1.0.0' }) });
  await offer('Ancient', { '1.0.0': {} });
  const project = `<Project><PropertyGroup><TargetFramework>net9.0</TargetFramework></PropertyGroup>
<ItemGroup><PackageReference Include="App" Version="1.0.0" /></ItemGroup></Project>`;
  const report = await prefetchInto(mirror, wishesIn('App.csproj', project));
  t.deepEqual(missingIn(report), []);
  t.true(report.approximate);
  t.is(report.fetched.package.count, 3);
  t.is(feed.upstream.count('/flat/ancient/index.json'), 0);
  const props = '<Project><ItemGroup><PackageVersion Include="App" Version="[1.0.0]" /></ItemGroup></Project>';
  const all = await prefetchInto(mirror, wishesIn('Directory.Packages.props', props));
  t.is(all.fetched.package.count, 1, 'without a framework all groups count');
  await feed.upstream.stop();
  for (const [id, version] of [
    ['App', '1.0.0'],
    ['Modern', '1.6.0'],
    ['Deep', '1.2.0'],
    ['Ancient', '1.0.0'],
  ] as const) {
    t.true(await isHere(id, version), id);
  }
});

test('a reference without a version uses the central file, or is missing', async (t) => {
  const { mirror, offer } = await setUp(t);
  await offer('Lib', { '1.0.0': {} });
  const project = wishesIn('a.csproj', '<Project><ItemGroup><PackageReference Include="Lib" /></ItemGroup></Project>');
  const props = '<Project><ItemGroup><PackageVersion Include="lib" Version="1.0.0" /></ItemGroup></Project>';
  t.deepEqual(missingIn(await prefetchInto(mirror, project)), [
    'Lib: it has no version in this file; add Directory.Packages.props to the command',
  ]);
  const both = await prefetchInto(mirror, [...project, ...wishesIn('Directory.Packages.props', props)]);
  t.deepEqual(missingIn(both), []);
  t.is(both.fetched.package.count, 1);
});

test('missing content is listed with its reason and location, and the rest is fetched', async (t) => {
  const { feed, mirror, offer } = await setUp(t);
  await offer('Good', { '1.0.0': {} });
  await offer('Old', { '1.0.0': {} });
  await offer('Wrong', { '1.0.0': {} });
  feed.upstream.on('/flat/wrong/1.0.0/wrong.1.0.0.nupkg', serve(await makeNupkg({ id: 'Other', version: '1.0.0' })));
  await offer('Needy', { '1.0.0': on({ id: 'Nowhere', version: '1.0.0' }, { id: 'Old', version: '[5.0]' }) });
  const project = '<Project><ItemGroup>\n\n<PackageReference Include="Needy" Version="1.0.0" /></ItemGroup></Project>';
  const items = [...wishesOf('Good@1.0.0', 'Old@9.0.0', 'None@1.0.0', 'Wrong@1.0.0'), ...wishesIn('a.csproj', project)];
  const report = await prefetchInto(mirror, items);
  t.is(report.fetched.package.count, 2);
  t.deepEqual(missingIn(report), [
    'None 1.0.0: the upstream does not have this version',
    'Nowhere [1.0.0, ): no upstream has this package',
    'Old 9.0.0: the upstream does not have this version',
    'Old [5.0.0, 5.0.0]: no version is in this range',
    'Wrong 1.0.0: The upstream up.test sent the wrong content: it is Other 1.0.0.',
  ]);
  t.deepEqual(report.missing.find(({ what }) => what.startsWith('Old 9'))?.location, { file: 'list.txt', line: 2 });
  t.deepEqual(report.missing.find(({ what }) => what.startsWith('Nowhere'))?.location, { file: 'a.csproj', line: 3 });
});

test('hosted and reserved IDs are reported as skipped; the dependencies of hosted ones are fetched', async (t) => {
  const { feed, mirror, offer } = await setUp(t, { reserved: { packages: ['Contoso.*'] } });
  await offer('Mine', { '9.0.0': {} });
  await offer('Contoso.Lib', { '1.0.0': {} });
  await offer('Theirs', { '1.0.0': {} });
  await new TestFeed(mirror).publish({ id: 'Mine', version: '1.0.0', ...on({ id: 'Theirs', version: '1.0.0' }) });
  const project = `<Project><ItemGroup><PackageReference Include="Mine" Version="1.0.0" />
<PackageReference Include="Contoso.Lib" Version="1.0.0" /></ItemGroup></Project>`;
  const report = await prefetchInto(mirror, [...wishesIn('a.csproj', project), ...wishesOf('Mine@9.0.0')]);
  t.deepEqual(missingIn(report), []);
  t.deepEqual(Object.fromEntries(report.skipped), { 'Contoso.Lib': 'reserved', Mine: 'hosted here' });
  t.is(report.fetched.package.count, 1);
  t.deepEqual(
    feed.asked.filter((path) => /mine|contoso/.test(path)),
    [],
  );
});

test('a merged ID is fetched from upstream although it is hosted too', async (t) => {
  const { mirror, offer, isHere } = await setUp(t, { merge: { packages: ['Mine'] } });
  await offer('Mine', { '9.0.0': {} });
  await new TestFeed(mirror).publish({ id: 'Mine', version: '1.0.0' });
  const report = await prefetchInto(mirror, wishesOf('Mine@9.0.0'));
  t.deepEqual([...report.skipped], []);
  t.is(report.fetched.package.count, 1);
  t.true(await isHere('Mine', '9.0.0'));
});

test('a dry run counts a package as unmeasured if its upstream refuses HEAD', async (t) => {
  const { feed, mirror, offer } = await setUp(t);
  await offer('Lib', { '1.0.0': {} });
  feed.upstream.on('/flat/lib/1.0.0/lib.1.0.0.nupkg', answer(405));
  const dry = await prefetchInto(mirror, wishesOf('Lib@1.0.0'), { dryRun: true });
  t.deepEqual([missingIn(dry), dry.unmeasured, dry.fetched.package.count], [[], 1, 1]);
});

test('a dry run counts packages and bytes and fetches none', async (t) => {
  const { feed, mirror, offer } = await setUp(t);
  await offer('Lib', { '1.0.0': { payloadBytes: 50_000, ...on({ id: 'Dep', version: '1.0.0' }) } });
  await offer('Dep', { '1.0.0': { payloadBytes: 30_000 } });
  // One without a length, and one that is only listed.
  await offer('Unsized', { '1.0.0': {} });
  const unsized = serve(await makeNupkg({ id: 'Unsized', version: '1.0.0' }), { length: false });
  feed.upstream.on('/flat/unsized/1.0.0/unsized.1.0.0.nupkg', unsized);
  await offer('Gone', { '1.0.0': {} });
  feed.upstream.on('/flat/gone/1.0.0/gone.1.0.0.nupkg', answer(404));
  const others = await prefetchInto(mirror, wishesOf('Unsized@1.0.0', 'Gone@1.0.0'), { dryRun: true });
  t.deepEqual([others.unmeasured, others.fetched.package], [2, { count: 2, bytes: 0 }]);
  const dry = await prefetchInto(mirror, wishesOf('Lib@1.0.0', 'Dep@1.0.0', 'None@1.0.0'), { dryRun: true });
  t.deepEqual([dry.unmeasured, dry.fetched.package.count], [0, 2]);
  t.true(dry.fetched.package.bytes > 80_000 && dry.fetched.package.bytes < 85_000);
  t.true(dry.received < 5000);
  t.deepEqual(missingIn(dry), ['None 1.0.0: the upstream does not have this version']);
  t.is(feed.upstream.count('/flat/lib/1.0.0/lib.1.0.0.nupkg', 'GET'), 0);
  const real = await prefetchInto(mirror, wishesOf('Lib@1.0.0', 'Dep@1.0.0'));
  t.deepEqual(real.fetched.package, dry.fetched.package);
});

test('content in use: the newest releases of all mirrored packages are fetched', async (t) => {
  const { mirror, offer, isHere, feed } = await setUp(t);
  await offer('Lib', { '1.0.0': {} });
  await offer('Pre', { '1.0.0-a': {} });
  await prefetchInto(mirror, wishesOf('Lib@1.0.0', 'Pre@1.0.0-a'));
  await offer('Lib', { '1.0.0': {}, '1.1.0': {}, '1.2.0': {}, '2.0.0-rc': {} });
  await offer('Pre', { '1.0.0-a': {}, '1.0.0-b': {}, '1.0.0-c': {} });
  await offer('Unused', { '1.0.0': {} });
  mirror.clock.now = Date.now() + 3_600_000;
  const report = await prefetchInto(mirror, [], { inUse: { newest: 2, since: 0 } });
  t.deepEqual(missingIn(report), []);
  t.deepEqual([report.fetched.package.count, report.present.package.count], [4, 0]);
  await feed.upstream.stop();
  for (const version of ['1.1.0', '1.2.0']) t.true(await isHere('Lib', version));
  for (const version of ['1.0.0-b', '1.0.0-c']) t.true(await isHere('Pre', version));
  t.false(await isHere('Lib', '2.0.0-rc'));
});

test('it waits for an upstream that fails briefly, gives up one that is down, and reports the rest', async (t) => {
  const { feed, mirror, offer, isHere } = await setUp(t);
  for (const id of ['a', 'b', 'c', 'd', 'e', 'f']) await offer(id, { '1.0.0': {} });
  const flaky = [answer(503), answer(503), answer(503), serve(await makeNupkg({ id: 'a', version: '1.0.0' }))];
  feed.upstream.on('/flat/a/1.0.0/a.1.0.0.nupkg', ...flaky);
  const report = await prefetchInto(mirror, wishesOf('a@1.0.0', 'b@1.0.0', 'c@1.0.0'), { patience: 10_000 });
  t.deepEqual(missingIn(report), []);
  t.true(await isHere('a', '1.0.0'));

  await feed.upstream.stop();
  const items = wishesOf('a@1.0.0', 'd@1.0.0', 'e@1.0.0', 'f@1.0.0');
  const gone = await within(prefetchInto(mirror, items, { patience: 500 }), 60_000);
  t.is(gone.present.package.count, 1);
  t.is(gone.missing.length, 3);
  for (const { reason } of gone.missing) t.regex(reason, /up\.test.*cannot be reached/);
});

test('it does not wait for an upstream that is set to offline', async (t) => {
  const { feed, mirror } = await setUp(t, { offline: true });
  const report = await prefetchInto(mirror, wishesOf('a@1.0.0'), { patience: 60_000 });
  t.regex(missingIn(report)[0]!, /set to offline/);
  t.is(feed.upstream.connections(), 0);
});

test('advisories are fetched too, so that a restore can read them', async (t) => {
  const { feed, mirror, offer } = await setUp(t);
  await offer('Lib', { '1.0.0': {} });
  const page = `${feed.url}/vulnerabilities/base.json`;
  const entry = { '@name': 'base', '@id': page, '@updated': '2026-01-01T00:00:00Z', comment: '' };
  const json = { 'content-type': 'application/json' };
  feed.upstream.on('/vulnerabilities/index.json', answer(200, json, JSON.stringify([entry])));
  const known = { lib: [{ severity: 2, url: 'https://advisory.example/1', versions: '(, 2.0.0)' }] };
  feed.upstream.on('/vulnerabilities/base.json', answer(200, json, JSON.stringify(known)));
  await prefetchInto(mirror, wishesOf('Lib@1.0.0'));
  await feed.upstream.stop();
  mirror.clock.now = Date.now() + 3_600_000;
  const vulnerabilities = await vulnerabilitiesOf(mirror);
  const [found] = await vulnerabilities.pages();
  const read = await vulnerabilities.page(found!.upstream, found!.name);
  t.deepEqual([...read!.value], [['lib', JSON.stringify(known.lib)]]);
});

test('a broken package is retried separately and blocks no other', async (t) => {
  const { feed, mirror, offer } = await setUp(t);
  for (const id of ['bad', 'slow', 'a', 'b', 'c']) await offer(id, { '1.0.0': {} });
  const bad = '/flat/bad/1.0.0/bad.1.0.0.nupkg';
  feed.upstream.on(bad, answer(500));
  const nupkg = serve(await makeNupkg({ id: 'slow', version: '1.0.0' }));
  const slow = '/flat/slow/1.0.0/slow.1.0.0.nupkg';
  feed.upstream.on(slow, answer(503), answer(503), answer(503), answer(503), answer(503), answer(503), nupkg);
  const others = ['a', 'b', 'c'].map((id) => `/flat/${id}/1.0.0/${id}.1.0.0.nupkg`);
  let before: number | undefined;
  const items = wishesOf('bad@1.0.0', 'slow@1.0.0', 'a@1.0.0', 'b@1.0.0', 'c@1.0.0');
  // One at a time, the broken ones first: the last added work starts first.
  const report = await prefetchInto(mirror, items.toReversed(), {
    concurrency: 1,
    watch: ({ ended }) => {
      if (ended >= 3) before ??= feed.upstream.count(bad);
    },
  });
  t.deepEqual(missingIn(report), ['bad 1.0.0: The upstream up.test answered 500.']);
  t.is(report.fetched.package.count, 4);
  t.deepEqual(
    others.map((path) => feed.upstream.count(path)),
    [1, 1, 1],
  );
  t.is(feed.upstream.count(bad), 12, 'four times three attempts');
  t.true(before! < 12, 'the others were fetched before the last attempt');
});

test('many broken packages, which pause the upstream sometimes, do not prevent the fetch of the others', async (t) => {
  const { feed, mirror, offer } = await setUp(t);
  const bad = Array.from({ length: 8 }, (_, index) => `bad${index}`);
  for (const id of bad) feed.upstream.on(`/flat/${id}/index.json`, answer(500));
  for (const id of ['a', 'b', 'c']) await offer(id, { '1.0.0': {} });
  const items = wishesOf(...['a', 'b', 'c', ...bad].map((id) => `${id}@1.0.0`));
  const report = await prefetchInto(mirror, items.toReversed(), { patience: 60_000 });
  t.is(report.fetched.package.count, 3);
  t.is(report.missing.length, 8);
  for (const id of bad) t.is(feed.upstream.count(`/flat/${id}/index.json`), 12);
});

test('a package whose body is cut is requested again', async (t) => {
  const { feed, mirror, offer, isHere } = await setUp(t);
  await offer('Cut', { '1.0.0': { payloadBytes: 200_000 } });
  const nupkg = await makeNupkg({ id: 'Cut', version: '1.0.0', payloadBytes: 200_000 });
  const cut = serve(nupkg, { until: 1000, ranges: false });
  feed.upstream.on('/flat/cut/1.0.0/cut.1.0.0.nupkg', cut, cut, cut, cut, serve(nupkg));
  const report = await prefetchInto(mirror, wishesOf('Cut@1.0.0'));
  t.deepEqual(missingIn(report), []);
  t.true(await isHere('Cut', '1.0.0'));
});

test('a package with a long Retry-After is reported without waiting, and the rest is fetched', async (t) => {
  const { feed, mirror, offer } = await setUp(t);
  await offer('bad', { '1.0.0': {} });
  await offer('good', { '1.0.0': {} });
  feed.upstream.on('/flat/bad/1.0.0/bad.1.0.0.nupkg', answer(503, { 'retry-after': '3600' }));
  const report = await within(prefetchInto(mirror, wishesOf('bad@1.0.0', 'good@1.0.0')), 60_000);
  t.deepEqual(missingIn(report), ['bad 1.0.0: The upstream up.test answered 503.']);
  t.is(report.fetched.package.count, 1);
  t.is(feed.upstream.count('/flat/bad/1.0.0/bad.1.0.0.nupkg'), 1);
});

test('a cancelled prefetch does not wait for the next attempt', async (t) => {
  const { feed, mirror, offer } = await setUp(t);
  await offer('bad', { '1.0.0': {} });
  const bad = '/flat/bad/1.0.0/bad.1.0.0.nupkg';
  feed.upstream.on(bad, answer(503, { 'retry-after': '60' }));
  const calling = new AbortController();
  const running = prefetchInto(mirror, wishesOf('bad@1.0.0'), { signal: calling.signal });
  await until(() => feed.upstream.count(bad) > 0);
  await until(() => mirror.lines.some((line) => line.includes('answered 503')));
  calling.abort();
  // The next attempt would start a minute later.
  const report = await within(running);
  t.true(report.interrupted);
});
