import { randomBytes } from 'node:crypto';
import test from 'ava';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { answer } from '../../support/upstreams/faulty-upstream.ts';
import { TestFeed } from '../../support/feed.ts';
import { makePdb, makeSnupkg } from '../../support/builders/nupkg.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { startMirrorOf, UpstreamFeed } from '../../support/upstreams/upstream-feed.ts';
import { createToken, flushUsage, rowsOf } from '../../support/inside.ts';

// Tokens that are limited to package IDs, from the view of an attacker with such a token.

type Limits = Readonly<Record<string, string[]>>;

/** The feed as a token sees it that is narrowed so. */
async function limited(server: TestServer, patterns: Limits, scopes = ['read', 'write', 'delete']) {
  return new TestFeed(server, (await createToken(server, scopes, 'default', patterns)).value);
}

const json = (value: object) => answer(200, { 'content-type': 'application/json' }, JSON.stringify(value));

/** Paths with the name of a package that has a version 1.0.0. */
function addressesOf(id: string): [method: string, path: string][] {
  const key = id.toLowerCase();
  const reading = [
    `/v3/package/${id}/index.json`,
    `/v3/package/${id}/1.0.0/${key}.1.0.0.nupkg`,
    `/v3/package/${id}/1.0.0/${key}.nuspec`,
    `/v3/package/${id}/1.0.0/readme`,
    `/v3/package/${id}/1.0.0/icon`,
    ...['registration', 'registration-gz', 'registration-gz-semver2'].flatMap((hive) => [
      `/v3/${hive}/${id}/index.json`,
      `/v3/${hive}/${id}/page/1.0.0/1.0.0.json`,
      `/v3/${hive}/${id}/1.0.0.json`,
    ]),
    `/v1/packages/${id}`,
  ];
  return [
    ...reading.flatMap((path): [string, string][] => [
      ['GET', path],
      ['HEAD', path],
    ]),
    ['DELETE', `/v3/push/${id}/1.0.0`],
    ['POST', `/v3/push/${id}/1.0.0`],
    ['DELETE', `/v1/packages/${id}/1.0.0`],
  ];
}

test('every path of another package is 403, in every spelling, and no upstream is asked', async (t) => {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'Public.Lib', versions: [{ version: '1.0.0' }] });
  const server = await startMirrorOf(t, [up.as('up.test')]);
  const all = new TestFeed(server);
  await all.publish({ id: 'Contoso.Core' }, { id: 'Fabrikam.Core' });
  const feed = await limited(server, { packages: ['Contoso.*'] });
  for (const id of [
    'Fabrikam.Core',
    'fabrikam.core',
    'FABRIKAM.CORE',
    'Fabrikam%2ECore',
    '%46abrikam.Core',
    'Public.Lib',
    'Contoso',
    'xContoso.Core',
    'Fabrikam.Core%2F..%2FContoso.Core',
    'Contoso%252ECore',
    '..%2fContoso.Core',
    'Contoso',
  ]) {
    for (const [method, path] of addressesOf(id)) {
      const response = await server.fetch(path, { method, token: feed.token });
      t.is(response.status, 403, `${method} ${path}`);
      if (method === 'HEAD') continue;
      const body = (await response.json()) as { code: string; kind: string; detail: string };
      t.like(body, { code: 'NameDenied', kind: 'package' });
      t.regex(body.detail, /name patterns of this token do not match/);
      if (path.startsWith('/v3')) t.is(response.statusText, body.detail, 'the reason phrase has the same text');
    }
  }
  t.deepEqual(up.asked, []);
  t.is(
    (await all.fetch('/package/fabrikam.core/1.0.0/fabrikam.core.1.0.0.nupkg')).status,
    200,
    'the package still exists',
  );
  for (const id of ['Contoso.Core', 'contoso.core', 'CONTOSO.CORE', 'Contoso%2ECore']) {
    for (const [method, path] of addressesOf(id).filter(([how]) => how === 'GET' || how === 'HEAD')) {
      const { status } = await server.fetch(path, { method, token: feed.token });
      t.true(status === 200 || (status === 404 && /readme|icon/.test(path)), `${method} ${path}: ${status}`);
    }
  }
  t.is((await feed.fetch('/push/contoso.core/1.0.0', { method: 'DELETE' })).status, 204);
  t.is((await server.fetch('/v1/packages/CONTOSO.Core/1.0.0', { method: 'DELETE', token: feed.token })).status, 204);
});

test('a letter with a different lower case gives access to the package stored under that key, and to no other', async (t) => {
  const server = await startTestServer(t);
  await new TestFeed(server).publish({ id: 'Kilo.Core' });
  // The lower case of the Kelvin sign is k.
  const id = encodeURIComponent('\u212Ailo.Core');
  t.is(
    (await (await limited(server, { packages: ['\u212Ailo.*'] })).fetch('/package/kilo.core/index.json')).status,
    200,
  );
  t.is((await (await limited(server, { packages: ['kilo.*'] })).fetch(`/package/${id}/index.json`)).status, 200);
  t.is((await (await limited(server, { packages: ['other.*'] })).fetch(`/package/${id}/index.json`)).status, 403);
});

test('the ID inside the package decides about a push, and a refused push stores nothing', async (t) => {
  const server = await startTestServer(t);
  const all = new TestFeed(server);
  const feed = await limited(server, { packages: ['Contoso.*'] });
  const refused = await feed.push({ id: 'Fabrikam.Core' });
  t.is(refused.status, 403);
  t.regex(refused.statusText, /name patterns of this token do not match.*fabrikam\.core/);
  t.is((await all.fetch('/package/fabrikam.core/index.json')).status, 404);
  t.deepEqual(await rowsOf(server, 'SELECT * FROM packages'), [], 'no claim either');
  t.is((await feed.push({ id: 'CONTOSO.Core' })).status, 201);
  await all.publish({ id: 'Fabrikam.Core' });
  const symbols = async (id: string) =>
    feed.push(await makeSnupkg({ id, files: { [`lib/net8.0/${id}.pdb`]: makePdb() } }), '/symbols');
  t.is((await symbols('Fabrikam.Core')).status, 403);
  t.is((await symbols('Contoso.Core')).status, 201);

  const images = await limited(server, { containers: ['team/*'] });
  const early = await images.fetch('/push', { method: 'PUT', body: 'no package at all' });
  t.is(early.status, 403, 'no package is allowed');
});

/** The results of a search and an autocompletion, by ID. */
async function seen(feed: TestFeed, query: string) {
  const [search, ids] = [await feed.json(`/search?${query}`), await feed.json(`/autocomplete?${query}`)];
  return {
    search: (search.data as { id: string }[]).map(({ id }) => id).sort(),
    total: search.totalHits as number,
    ids: (ids.data as string[]).toSorted(),
    idTotal: ids.totalHits as number,
  };
}

for (const dialect of dialects) {
  test(`${dialect}: lists, searches and autocompletions show only names that the token may use`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const all = new TestFeed(server);
    const names = ['Contoso.Core', 'Contoso.Data', 'Fabrikam.Core', 'Fabrikam.Contoso', 'Exact', 'Exactly', 'Con_toso'];
    await all.publish(...names.map((id) => ({ id, description: 'shared words' })));
    const feed = await limited(server, { packages: ['contoso.*', 'EXACT'] });
    const mine = ['Contoso.Core', 'Contoso.Data', 'Exact'];
    for (const [query, expected] of [
      ['', mine],
      ['q=shared', mine],
      ['q=words+shared', mine],
      ['q=core', ['Contoso.Core']],
      ['q=contoso', ['Contoso.Core', 'Contoso.Data']],
      ['q=contoso+shared', ['Contoso.Core', 'Contoso.Data']],
      ['q=packageid:Fabrikam.Core', []],
      ['q=packageid:contoso.core', ['Contoso.Core']],
      ['q=id:core', ['Contoso.Core']],
      ['q=Fabrikam', []],
      ['q=exact', ['Exact']],
      ['q=version:1.0.0', mine],
      ['packageType=Dependency', mine],
    ] as const) {
      const { search, total, ids } = await seen(feed, query);
      t.deepEqual(search, [...expected], query);
      t.is(total, expected.length, `${query}: nothing is counted that is not shown`);
      t.true(
        ids.every((id) => mine.includes(id)),
        query,
      );
    }
    const pages: { id: string }[] = [];
    for (let skip = 0; skip < 4; skip += 1) pages.push(...(await feed.json(`/search?skip=${skip}&take=1`)).data);
    t.deepEqual(pages.map(({ id }) => id).sort(), mine, 'pages are complete');
    t.deepEqual((await feed.json('/autocomplete?id=Fabrikam.Core')).data, []);
    t.deepEqual((await feed.json('/autocomplete?id=contoso.core')).data, ['1.0.0']);

    const listed = async (token: string) => {
      const ids: string[] = [];
      let path = '/v1/packages?limit=1';
      for (;;) {
        const page = (await (await server.fetch(path, { token })).json()) as {
          items: { id: string }[];
          next_cursor: string | null;
        };
        ids.push(...page.items.map(({ id }) => id));
        if (page.next_cursor === null) return ids;
        path = `/v1/packages?limit=1&cursor=${page.next_cursor}`;
      }
    };
    t.deepEqual(await listed(feed.token), mine);
    const underscore = await limited(server, { packages: ['Con_*'] });
    t.deepEqual(await listed(underscore.token), ['Con_toso'], 'an underscore matches only itself');
    const images = await limited(server, { containers: ['*'] });
    t.deepEqual(await listed(images.token), []);
    t.deepEqual(await seen(images, 'q=shared'), { search: [], total: 0, ids: [], idTotal: 0 });

    for (const id of names) await all.fetch(`/package/${id}/1.0.0/${id}.1.0.0.nupkg`);
    await flushUsage(server);
    const used = async (token: string, group: string) => {
      const response = await server.fetch(`/v1/account/usage?group_by=${group}`, { token });
      const { items } = (await response.json()) as { items: { key: string | null }[] };
      return items.map(({ key }) => key).filter((key) => key !== null);
    };
    t.is((await used(server.token, 'package')).length, names.length);
    t.deepEqual(await used(feed.token, 'package'), ['contoso.core', 'contoso.data', 'exact']);
    t.deepEqual(await used(images.token, 'package'), []);
  });
}

test('search results of upstreams and lists of mirrored packages are filtered', async (t) => {
  const up = await UpstreamFeed.start(t);
  for (const id of ['Contoso.Public', 'Fabrikam.Public']) await up.offer({ id, versions: [{ version: '1.0.0' }] });
  const entry = { url: 'https://advisory.test/1', severity: 1, versions: '(, 2.0.0)' };
  up.upstream.on(
    '/vulnerabilities/index.json',
    json([{ '@name': 'base', '@id': `${up.url}/vulnerabilities/base.json`, '@updated': '2024-06-06T07:08:09Z' }]),
  );
  up.upstream.on('/vulnerabilities/base.json', json({ 'contoso.public': [entry], 'fabrikam.public': [entry] }));
  const server = await startMirrorOf(t, [up.as('up.test')]);
  const all = new TestFeed(server);
  for (const id of ['contoso.public', 'fabrikam.public']) {
    await (await all.fetch(`/package/${id}/1.0.0/${id}.1.0.0.nupkg`)).arrayBuffer();
  }
  const feed = await limited(server, { packages: ['Contoso.*'] });
  const found = await feed.json('/search?q=public');
  t.deepEqual([found.totalHits, found.data.map(({ id }: { id: string }) => id)], [1, ['Contoso.Public']]);
  const ids = await feed.json('/autocomplete?q=public');
  t.deepEqual([ids.totalHits, ids.data], [1, ['Contoso.Public']]);
  const listed = (await (await server.fetch('/v1/packages', { token: feed.token })).json()) as {
    items: { id: string }[];
  };
  t.deepEqual(
    listed.items.map(({ id }) => id),
    ['Contoso.Public'],
  );
  t.deepEqual(Object.keys(await feed.json('/vulnerabilities/up.test/base.json')), ['contoso.public']);
  t.deepEqual(Object.keys(await all.json('/vulnerabilities/up.test/base.json')), ['contoso.public', 'fabrikam.public']);
  const images = await limited(server, { containers: ['*'] });
  up.upstream.asked.length = 0;
  t.deepEqual(await images.json('/search?q=contoso'), { totalHits: 0, data: [] });
  t.deepEqual(await images.json('/vulnerabilities/up.test/base.json'), {});
  t.deepEqual(await feed.json('/autocomplete?id=Fabrikam.Public'), { data: [] });
  t.false(
    up.asked.some((path) => path.includes('query') || path.includes('autocomplete')),
    up.asked.join(),
  );
});

test('symbols are found only for packages of the token, and upstreams are asked only for those', async (t) => {
  const up = await UpstreamFeed.start(t);
  const server = await startMirrorOf(t, [up.as('up.test', { symbolsUrl: `${up.url}/symbols` })]);
  const all = new TestFeed(server);
  await all.publish({ id: 'Contoso.Core' }, { id: 'Fabrikam.Core' });
  const guid = randomBytes(16);
  const groups = [guid.subarray(0, 4), guid.subarray(4, 6), guid.subarray(6, 8)].map((group) => group.toReversed());
  const key = `${Buffer.concat([...groups, guid.subarray(8)]).toString('hex')}ffffffff`;
  // Both packages have a file of the same name.
  const files = { 'lib/net8.0/Contoso.Core.pdb': makePdb(guid), 'lib/net8.0/Shared.pdb': makePdb(guid) };
  t.is((await all.push(await makeSnupkg({ id: 'Fabrikam.Core', files }), '/symbols')).status, 201);
  const contoso = await limited(server, { packages: ['Contoso.*'] });
  const fabrikam = await limited(server, { packages: ['Fabrikam.*'] });
  const statusOf = async (feed: TestFeed, file: string, signature = key) =>
    (await feed.fetch(`/symbols/${file}/${signature}/${file}`)).status;
  for (const file of ['Contoso.Core.pdb', 'CONTOSO.CORE.PDB', 'Shared.pdb', 'shared%2Epdb']) {
    t.is(await statusOf(fabrikam, file), 200, file);
    t.is(await statusOf(contoso, file), 404, file);
  }
  up.upstream.asked.length = 0;
  const other = key.replace(/^../, '00');
  t.is(await statusOf(contoso, 'Fabrikam.Core.pdb', other), 404);
  t.deepEqual(up.asked, []);
  t.is(await statusOf(contoso, 'Contoso.Else.pdb', other), 404);
  t.is(up.asked.length, 1, 'only a file with the name of an allowed package is requested');
});
