import test, { type ExecutionContext } from 'ava';
import { answer } from '../../support/upstreams/faulty-upstream.ts';
import { TestFeed } from '../../support/feed.ts';
import { makeNupkg, makeNuspec, pngPixel } from '../../support/builders/nupkg.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { json, startMirrorOf, stringsIn, UpstreamFeed, validated } from '../../support/upstreams/upstream-feed.ts';
import { until } from '../../support/until.ts';
import { databaseOf } from '../../support/inside.ts';

// Documents of mirrored packages: complete and exact, with no addresses except those of this server.

const hives = ['registration', 'registration-gz', 'registration-gz-semver2'];

/** Fails for a string that contains an address of the upstream. */
function leadsNowhereElse(t: ExecutionContext, document: unknown, upstreamUrl: string): void {
  const { host } = new URL(upstreamUrl);
  t.deepEqual(
    stringsIn(document).filter((text) => text.includes(host)),
    [],
  );
}

/** A server of this project that mirrors another one. */
async function chained(t: ExecutionContext): Promise<{ up: TestServer; upFeed: TestFeed; feed: TestFeed }> {
  const up = await startTestServer(t);
  const server = await startMirrorOf(t, [
    {
      name: 'upstream.test',
      kind: 'nuget',
      url: `${up.url}/v3/index.json`,
      allowPrivateNetwork: true,
      auth: { username: 'api', password: up.token },
    },
  ]);
  return { up, upFeed: new TestFeed(up), feed: new TestFeed(server) };
}

test('every document of a package has the upstream’s data and this server’s addresses', async (t) => {
  const { up, upFeed, feed } = await chained(t);
  await upFeed.publish(
    {
      id: 'Contoso.Utility',
      version: '1.0.0',
      icon: pngPixel,
      readme: '# Read me',
      tags: 'one two',
      summary: 'Short',
      license: { type: 'expression', value: 'MIT' },
      projectUrl: 'https://project.example/',
      dependencyGroups: [{ targetFramework: 'net8.0', dependencies: [{ id: 'Other', version: '[1.0.0, 2.0.0)' }] }],
    },
    { id: 'Contoso.Utility', version: '1.1.0-Beta.2+build.7', iconUrl: 'https://elsewhere.example/icon.png' },
    { id: 'Contoso.Utility', version: '1.2.0', title: 'Tïtle', minClientVersion: '4.0' },
    { id: 'Contoso.Tool', version: '3.0', packageTypes: [{ name: 'DotnetTool' }] },
  );
  t.is((await upFeed.fetch('/push/Contoso.Utility/1.2.0', { method: 'DELETE' })).status, 204);
  const mine = feed.server.url;
  const paths = [
    '/package/contoso.utility/index.json',
    ...hives.flatMap((hive) => [
      `/${hive}/contoso.utility/index.json`,
      `/${hive}/contoso.utility/page/1.0.0/1.2.0.json`,
      `/${hive}/contoso.utility/1.0.0.json`,
      `/${hive}/contoso.tool/index.json`,
    ]),
    '/registration-gz-semver2/contoso.utility/1.1.0-beta.2.json',
    '/search?q=contoso&prerelease=true&semVerLevel=2.0.0',
    '/search?q=contoso&packageType=DotnetTool',
    '/autocomplete?q=contoso',
    '/autocomplete?id=Contoso.Utility&prerelease=true&semVerLevel=2.0.0',
  ];
  for (const path of paths) {
    const theirs = JSON.stringify(await upFeed.json(path)).replaceAll(up.url, mine);
    t.deepEqual(await feed.json(path), JSON.parse(theirs), path);
  }
  for (const file of ['contoso.utility.1.0.0.nupkg', 'contoso.utility.nuspec', 'readme', 'icon']) {
    const path = `/package/contoso.utility/1.0.0/${file}`;
    const [ours, theirs] = [await feed.fetch(path), await upFeed.fetch(path)];
    t.is(ours.status, 200);
    t.is(ours.headers.get('content-type'), theirs.headers.get('content-type'));
    t.deepEqual(await ours.arrayBuffer(), await theirs.arrayBuffer());
  }
  t.is((await feed.fetch('/package/contoso.utility/1.2.0/icon')).status, 404);
  t.is((await feed.fetch('/registration/contoso.utility/1.1.0-beta.2.json')).status, 404);
  t.is((await feed.fetch('/registration/contoso.nothing/index.json')).status, 404);
});

const oddDate = '2019-02-03T04:05:06.0070000+00:00';

/** 150 versions in a registration with pages. */
async function gallery(t: ExecutionContext): Promise<{ up: UpstreamFeed; feed: TestFeed; server: TestServer }> {
  const up = await UpstreamFeed.start(t);
  const versions = Array.from({ length: 150 }, (_, index) => ({
    version: `1.${index}.0`,
    published: `2020-01-01T00:00:00.${String(index).padStart(7, '0')}+00:00`,
  }));
  versions[3]!.published = '1900-01-01T00:00:00+00:00';
  versions[149]!.published = oddDate;
  await up.offer({
    id: 'Big.Package',
    pageSize: 64,
    versions: versions.map((each, index) =>
      index === 7
        ? {
            ...each,
            entry: {
              deprecation: {
                '@id': `${up.url}/catalog0#deprecation`,
                reasons: ['Legacy', 'CriticalBugs'],
                message: 'Take the other.',
                alternatePackage: { '@id': `${up.url}/catalog0#alternate`, id: 'Other', range: '[2.0.0, )' },
              },
              vulnerabilities: [
                { '@id': `${up.url}/catalog0#1`, advisoryUrl: 'https://advisories.example/1', severity: '2' },
                { '@id': `${up.url}/catalog0#2`, advisoryUrl: `${up.url}/advisories/2`, severity: '1' },
              ],
            },
          }
        : each,
    ),
  });
  const server = await startMirrorOf(t, [up.as('up.test')]);
  return { up, feed: new TestFeed(server), server };
}

test('a registration in pages is served in pages, and each page is fetched on request', async (t) => {
  const { up, feed } = await gallery(t);
  const pages = () => up.asked.filter((path) => path.startsWith('/registration-pages/')).length;
  for (const hive of hives) {
    const index = await feed.json(`/${hive}/big.package/index.json`);
    leadsNowhereElse(t, index, up.url);
    t.deepEqual(
      index.items.map(({ lower, upper, count, items }: any) => [lower, upper, count, items]),
      [
        ['1.0.0', '1.63.0', 64, undefined],
        ['1.64.0', '1.127.0', 64, undefined],
        ['1.128.0', '1.149.0', 22, undefined],
      ],
    );
    const before = pages();
    const last = await feed.json(index.items[2]['@id']);
    t.is(pages(), before + (hive === 'registration-gz' ? 0 : 1));
    leadsNowhereElse(t, last, up.url);
    t.is(last['@id'], index.items[2]['@id']);
    t.is(last.parent, index['@id']);
    t.deepEqual([last.count, last.lower, last.upper], [22, '1.128.0', '1.149.0']);
    const entry = last.items[21].catalogEntry;
    t.like(entry, { id: 'Big.Package', version: '1.149.0', published: oddDate, listed: true });
    t.is(entry.iconUrl, `${feed.server.url}/v3/package/big.package/1.149.0/icon`);
    t.is(entry.readmeUrl, `${feed.server.url}/v3/package/big.package/1.149.0/readme`);
    t.is(entry.projectUrl, 'https://project.example/');
    t.is(entry.licenseUrl, undefined);
    const leaf = await feed.json(last.items[21]['@id']);
    leadsNowhereElse(t, leaf, up.url);
    t.like(leaf, { published: oddDate, listed: true, packageContent: last.items[21].packageContent });
    const first = await feed.json(index.items[0]['@id']);
    leadsNowhereElse(t, first, up.url);
    t.deepEqual(
      first.items.map(({ catalogEntry }: any) => catalogEntry.published),
      up.packages
        .get('big.package')!
        .versions.slice(0, 64)
        .map(({ published }) => published),
    );
    t.false(first.items[3].catalogEntry.listed);
    t.deepEqual(first.items[7].catalogEntry.deprecation, {
      reasons: ['Legacy', 'CriticalBugs'],
      message: 'Take the other.',
      alternatePackage: { id: 'Other', range: '[2.0.0, )' },
    });
    t.deepEqual(first.items[7].catalogEntry.vulnerabilities, [
      { advisoryUrl: 'https://advisories.example/1', severity: '2' },
    ]);
  }
  t.is((await feed.fetch('/registration/big.package/9.9.9.json')).status, 404);
  t.is((await feed.fetch('/registration/big.package/page/7.0.0/8.0.0.json')).status, 404);
});

test('a version of which the upstream states no date has none here, unless it is unlisted', async (t) => {
  const up = await UpstreamFeed.start(t);
  const feed = new TestFeed(await startMirrorOf(t, [up.as('up.test')]));
  const entry = { published: undefined, commitTimeStamp: undefined };
  const versions = [
    { version: '1.0.0', entry },
    { version: '1.1.0', entry: { ...entry, published: 'yesterday' } },
    { version: '1.2.0', entry: { ...entry, listed: false } },
  ];
  await up.offer({ id: 'Undated', versions });
  const expected = [undefined, undefined, '1900-01-01T00:00:00+00:00'];
  for (const hive of hives) {
    const index = await feed.json(`/${hive}/undated/index.json`);
    const entries = index.items[0].items.map(({ catalogEntry }: any) => catalogEntry);
    t.deepEqual(
      entries.map(({ published }: any) => published),
      expected,
    );
    for (const [at, { version }] of versions.entries())
      t.is((await feed.json(`/${hive}/undated/${version}.json`)).published, expected[at], version);
  }
});

test('plain registrations have no version that depends on a SemVer 2 version, also if those of the upstream have', async (t) => {
  const up = await UpstreamFeed.start(t);
  const feed = new TestFeed(await startMirrorOf(t, [up.as('up.test')]));
  const ranges: [version: string, range: string | undefined][] = [
    ['1.0.0', '[1.0.0, )'],
    ['1.1.0', '[1.0.0-beta.1, )'],
    ['1.2.0', '(, 2.0.0+build]'],
    ['1.3.0', '[1.0.0-beta, 2.0.0-rc1)'],
    ['1.4.0', 'no-range.at-all'],
    ['1.5.0', '1.0.0-alpha.*'],
    ['1.6.0', undefined],
  ];
  const versions = ranges.map(([version, range]) => ({
    version,
    entry: {
      dependencyGroups: [
        { targetFramework: 'net8.0', dependencies: [{ id: 'Other', range: '[1.0.0, )' }] },
        { targetFramework: 'net9.0', dependencies: [{ id: 'Other' }, { id: 'Another', range }] },
      ],
    },
  }));
  versions.push({ version: '1.7.0', entry: { dependencyGroups: [] } });
  await up.offer({ id: 'Whole', versions });
  await up.offer({ id: 'Paged', versions, pageSize: 8 });
  const versionsIn = async (hive: string, id: string) => {
    const { items } = await feed.json(`/${hive}/${id}/index.json`);
    const found: string[] = [];
    for (const page of items) {
      const { items: inside } = page.items ? page : await feed.json(page['@id']);
      found.push(...inside.map(({ catalogEntry }: any) => catalogEntry.version));
    }
    return found;
  };
  for (const id of ['whole', 'paged']) {
    for (const hive of ['registration', 'registration-gz']) {
      t.deepEqual(await versionsIn(hive, id), ['1.0.0', '1.3.0', '1.4.0', '1.6.0', '1.7.0'], `${hive} ${id}`);
    }
    t.is((await versionsIn('registration-gz-semver2', id)).length, 8, id);
  }
});

for (const [what, behaviour] of [
  ['missing', answer(404)],
  ['failing', answer(500)],
  ['a web page', answer(200, { 'content-type': 'text/html' }, '<!doctype html><p>Sign in</p>')],
] as const) {
  test(`a registration page that is ${what} upstream is an upstream failure, and the index is served`, async (t) => {
    const { up, feed } = await gallery(t);
    up.upstream.on('/registration-pages/big.package/page/1.64.0/1.127.0.json', behaviour);
    const index = await feed.json('/registration/big.package/index.json');
    t.is((await feed.fetch(index.items[0]['@id'])).status, 200);
    for (const path of [index.items[1]['@id'], '/registration/big.package/1.100.0.json']) {
      const response = await feed.fetch(path);
      t.is(response.status, 502);
      t.regex(response.statusText, /up\.test/);
      t.is(response.headers.get('content-type'), 'application/problem+json');
      t.like(await response.json(), { status: 502, code: 'UpstreamUnavailable', upstream: 'up.test' });
    }
  });
}

test('searches, completions and advisories have only addresses of this server', async (t) => {
  const { up, feed } = await gallery(t);
  up.upstream.on(
    '/vulnerabilities/index.json',
    json([
      { '@name': 'base', '@id': `${up.url}/vulnerabilities/x/base.json`, '@updated': '2024-05-06T07:08:09.1234567Z' },
      { '@name': 'update', '@id': `${up.url}/vulnerabilities/x/update.json`, '@updated': '2024-06-06T07:08:09Z' },
    ]),
  );
  const found = await feed.json('/search?q=big');
  leadsNowhereElse(t, found, up.url);
  t.is(found.data[0].iconUrl, `${feed.server.url}/v3/package/big.package/1.149.0/icon`);
  t.is(found.data[0].versions.length, 150);
  t.is((await feed.fetch(found.data[0].versions[5]['@id'])).status, 200);
  t.is((await feed.fetch(found.data[0].registration)).status, 200);
  leadsNowhereElse(t, await feed.json('/autocomplete?q=big'), up.url);
  leadsNowhereElse(t, await feed.json('/autocomplete?id=big.package'), up.url);
  leadsNowhereElse(t, await feed.json('/vulnerabilities/index.json'), up.url);
  leadsNowhereElse(t, await feed.json('/index.json'), up.url);
});

test('a service index is read with the rules of clients', async (t) => {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'A', versions: [{ version: '1.0.0' }] });
  const resources = [
    { '@id': 'flat/relative', '@type': 'PackageBaseAddress/3.0.0' },
    { '@id': 'ftp://elsewhere.example/', '@type': 'PackageBaseAddress/3.0.0' },
    { '@id': 'https://[', '@type': 'PackageBaseAddress/3.0.0' },
    null,
    'text',
    { '@type': 'PackageBaseAddress/3.0.0' },
    { '@id': `${up.url}/flat`, '@type': ['Something/1.0.0', 'PackageBaseAddress/3.0.0'], comment: 'the one' },
    { '@id': `${up.url}/other`, '@type': 'PackageBaseAddress/3.0.0' },
    { '@id': `${up.url}/wrong`, '@type': 'registrationsbaseurl/3.6.0' },
    { '@id': `${up.url}/registration`, '@type': 'RegistrationsBaseUrl' },
  ];
  // Some servers send a byte order mark.
  up.upstream.on('/index.json', answer(200, {}, `\uFEFF${JSON.stringify({ version: '3.0.0', resources })}`));
  const feed = new TestFeed(await startMirrorOf(t, [up.as('up.test')]));
  t.deepEqual(await feed.json('/package/a/index.json'), { versions: ['1.0.0'] });
  t.is((await feed.json('/registration-gz-semver2/a/index.json')).count, 1);
  t.deepEqual(await feed.json('/search?q=a'), { totalHits: 0, data: [] });
  t.deepEqual(up.asked, ['/flat/a/index.json', '/registration/a/index.json']);
});

for (const [type, path] of [
  ['PackageBaseAddress/3.0.0', '/package/a/index.json'],
  ['RegistrationsBaseUrl/3.6.0', '/registration-gz-semver2/a/index.json'],
] as const) {
  test(`an upstream without ${type} is reported to lack it`, async (t) => {
    const up = await UpstreamFeed.start(t);
    await up.offer({ id: 'A', versions: [{ version: '1.0.0' }] });
    for (const each of Object.keys(up.resources)) {
      if (each.startsWith(type.split('/')[0]!)) delete up.resources[each];
    }
    up.announce();
    const feed = new TestFeed(await startMirrorOf(t, [up.as('up.test')]));
    const response = await feed.fetch(path);
    t.is(response.status, 502);
    t.true(response.statusText.includes('up.test') && response.statusText.includes(type), response.statusText);
  });
}

test('the nuspec, the readme and the icon are read from the stored nupkg, or fetched if there is none', async (t) => {
  const up = await UpstreamFeed.start(t);
  const nupkg = await makeNupkg({ id: 'Full', version: '1.0.0', icon: pngPixel, readme: '# Inside' });
  await up.offer({ id: 'Full', versions: [{ version: '1.0.0', nupkg }] });
  await up.offer({ id: 'Bare', versions: [{ version: '1.0.0' }] });
  const nuspec = makeNuspec({ id: 'Full', version: '1.0.0' });
  up.upstream.on('/flat/full/1.0.0/full.nuspec', answer(200, { 'content-type': 'text/xml' }, nuspec));
  up.upstream.on('/flat/full/1.0.0/readme', answer(200, { 'content-type': 'text/plain' }, '# Outside'));
  up.upstream.on('/flat/full/1.0.0/icon', answer(200, { 'content-type': 'text/html' }, pngPixel));
  const feed = new TestFeed(await startMirrorOf(t, [up.as('up.test')]));
  const read = async (path: string) => {
    const response = await feed.fetch(path);
    return [response.status, response.headers.get('content-type'), response.headers.get('cache-status')].concat(
      await response.text(),
    );
  };
  const miss = 'entrepot; fwd=miss; stored';
  const base = '/package/full/1.0.0';
  t.deepEqual(await read(`${base}/full.nuspec`), [200, 'text/plain', miss, nuspec]);
  t.deepEqual(await read(`${base}/full.nuspec`), [200, 'text/plain', 'entrepot; hit', nuspec]);
  t.deepEqual(await read(`${base}/readme`), [200, 'text/markdown; charset=utf-8', miss, '# Outside']);
  t.deepEqual((await read(`${base}/icon`)).slice(0, 3), [200, 'image/png', miss]);
  t.false(up.asked.some((path) => path.endsWith('.nupkg')));

  t.is((await read(`${base}/full.1.0.0.nupkg`))[2], miss);
  const asked = up.asked.length;
  t.deepEqual(await read(`${base}/readme`), [200, 'text/markdown; charset=utf-8', 'entrepot; hit', '# Inside']);
  t.deepEqual((await read(`${base}/icon`)).slice(0, 3), [200, 'image/png', 'entrepot; hit']);
  t.regex(String((await read(`${base}/full.nuspec`))[3]), /<readme>README\.md<\/readme>/);
  t.is(up.asked.length, asked);

  // A gallery can serve its own icon for a package without an icon.
  t.is((await feed.fetch('/package/bare/1.0.0/bare.1.0.0.nupkg')).status, 200);
  up.upstream.on('/flat/bare/1.0.0/icon', answer(200, {}, pngPixel));
  t.is((await feed.fetch('/package/bare/1.0.0/icon')).headers.get('content-type'), 'image/png');
  t.is((await feed.fetch('/package/bare/1.0.0/readme')).status, 404);
});

test('a sidecar file of the wrong kind is refused', async (t) => {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'A', versions: [{ version: '1.0.0' }] });
  const page = answer(200, { 'content-type': 'text/markdown' }, '\n<!DOCTYPE html><html>Sign in</html>');
  const feed = new TestFeed(await startMirrorOf(t, [up.as('up.test')]));
  for (const [file, ...bad] of [
    [
      'a.nuspec',
      page,
      answer(200, {}, makeNuspec({ id: 'B', version: '1.0.0' })),
      answer(200, {}, makeNuspec({ id: 'A', version: '1.0.1' })),
    ],
    ['readme', page],
    ['icon', page, answer(200, { 'content-type': 'image/svg+xml' }, '<svg onload="x"/>')],
  ] as const) {
    for (const behaviour of bad) {
      up.upstream.on(`/flat/a/1.0.0/${file}`, behaviour);
      const response = await feed.fetch(`/package/a/1.0.0/${file}`);
      t.is(response.status, 502, file);
      t.regex(response.statusText, /up\.test/);
    }
  }
  up.upstream.on('/flat/a/1.0.0/a.nuspec', answer(200, {}, makeNuspec({ id: 'A', version: '1.0.0' })));
  t.is((await feed.fetch('/package/a/1.0.0/a.nuspec')).status, 200);
});

test('each answer has a Cache-Status, for HEAD as for GET', async (t) => {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'A', versions: [{ version: '1.0.0' }] });
  up.upstream.on('/flat/a/index.json', validated({ versions: ['1.0.0'] }, '"one"'));
  const server = await startMirrorOf(t, [up.as('up.test', { freshFor: '1m', staleFor: '1h' })]);
  server.clock.now = Date.now();
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Hosted', version: '1.0.0' });
  const how = async (path: string, method = 'GET') => {
    const response = await feed.fetch(path, { method });
    await response.arrayBuffer();
    return response.headers.get('cache-status');
  };
  const [flat, nupkg] = ['/package/a/index.json', '/package/a/1.0.0/a.1.0.0.nupkg'];
  const registration = '/registration-gz-semver2/a/index.json';
  for (const method of ['GET', 'HEAD']) t.is(await how('/index.json', method), 'entrepot; hit; detail=hosted', method);
  t.is(await how('/package/hosted/index.json'), 'entrepot; hit; detail=hosted');
  t.is(await how('/package/hosted/1.0.0/hosted.1.0.0.nupkg', 'HEAD'), 'entrepot; hit; detail=hosted');
  for (const path of [flat, nupkg, registration]) {
    t.is(await how(path), 'entrepot; fwd=miss; stored', path);
    t.is(await how(path), 'entrepot; hit', path);
    t.is(await how(path, 'HEAD'), 'entrepot; hit', path);
  }
  for (const path of ['/search?q=a', '/autocomplete?q=a', '/autocomplete?id=a']) {
    t.is(await how(path), 'entrepot; fwd=miss; stored', path);
    t.is(await how(path), 'entrepot; hit', path);
  }
  t.is(await how('/autocomplete?id=hosted'), 'entrepot; hit; detail=hosted');
  server.clock.now += 61_000;
  t.is(await how(flat), 'entrepot; fwd=stale');
  t.is(up.upstream.asked.at(-1)!.headers['if-none-match'], '"one"');
  t.is(await how(flat), 'entrepot; hit');
  t.is(await how(nupkg), 'entrepot; hit');
  await up.upstream.stop();
  server.clock.now += 61_000;
  for (const path of [flat, registration]) t.is(await how(path), 'entrepot; hit; detail=stale', path);
  t.is(await how(nupkg), 'entrepot; hit');
  server.clock.now += 3_600_000;
  t.is((await feed.fetch(flat)).status, 502);
  t.is(await how(nupkg), 'entrepot; hit');
});

test('HEAD of files that are not stored yet', async (t) => {
  const up = await UpstreamFeed.start(t);
  const nupkg = await makeNupkg({ id: 'A', version: '1.0.0' });
  await up.offer({ id: 'A', versions: [{ version: '1.0.0', nupkg }] });
  const feed = new TestFeed(await startMirrorOf(t, [up.as('up.test')]));
  const head = await feed.fetch('/package/A/1.0/a.1.0.0.nupkg', { method: 'HEAD' });
  t.is(head.status, 200);
  t.is(head.headers.get('content-length'), String(nupkg.length));
  t.is(head.headers.get('content-type'), 'application/octet-stream');
  t.is((await feed.fetch('/package/a/2.0.0/a.2.0.0.nupkg', { method: 'HEAD' })).status, 404);
  await until(async () => (await feed.fetch('/package/a/1.0.0/a.1.0.0.nupkg')).headers.get('etag') !== null);
  t.is(up.asked.filter((path) => path.endsWith('a.1.0.0.nupkg')).length, 1);
});

test('a fresh hit sends no upstream request and writes nothing', async (t) => {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'A', versions: [{ version: '1.0.0' }] });
  const server = await startMirrorOf(t, [up.as('up.test')]);
  const feed = new TestFeed(server);
  const paths = [
    '/package/a/index.json',
    '/package/a/1.0.0/a.1.0.0.nupkg',
    '/package/a/1.0.0/a.nuspec',
    '/registration-gz-semver2/a/index.json',
    '/registration/a/1.0.0.json',
    '/search?q=a',
    '/autocomplete?q=a',
    '/vulnerabilities/index.json',
  ];
  for (const path of paths) await (await feed.fetch(path)).arrayBuffer();
  const asked = up.upstream.asked.length;
  let writes = 0;
  const database = databaseOf(server);
  const transaction = database.transaction.bind(database);
  database.transaction = (work) => {
    // Counts in memory are written to the database every few seconds, without a request.
    if (!new Error().stack!.includes('flush')) writes += 1;
    return transaction(work);
  };
  // Instances and jobs write from time to time; what a hit writes is written in each round.
  await until(async () => {
    writes = 0;
    for (const path of paths) {
      const response = await feed.fetch(path);
      t.is(response.status, 200);
      await response.arrayBuffer();
    }
    t.is(up.upstream.asked.length, asked);
    return writes === 0;
  });
});

test('mirrored versions of 255 characters are listed and served', async (t) => {
  const up = await UpstreamFeed.start(t);
  const version = `1.0.0-${'a'.repeat(249)}`;
  await up.offer({ id: 'Long', versions: [{ version: '0.9.0' }, { version }] });
  const feed = new TestFeed(await startMirrorOf(t, [up.as('up.test')]));
  t.deepEqual(await feed.json('/package/long/index.json'), { versions: ['0.9.0', version] });
  t.is((await feed.fetch(`/package/long/${version}/long.${version}.nupkg`)).status, 200);
});
