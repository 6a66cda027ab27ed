import test, { type ExecutionContext } from 'ava';
import { auditOf, said } from '../../support/audit.ts';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { TestFeed } from '../../support/feed.ts';
import { folderUntilEnd } from '../../support/folder.ts';
import { createToken, databaseOf, defaultAccountOf, packageFeedOf, rowsOf, tokenOf } from '../../support/inside.ts';
import { OpenDocument } from '../../support/open-document.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { json, startMirrorOf, UpstreamFeed } from '../../support/upstreams/upstream-feed.ts';

// Advisories of accounts on their own hosted packages: `/v1/advisories`, vulnerability data and registrations.

const url = 'https://advisories.test/1';
const advice = { package: 'contoso.LIB', versions: '[1.0,1.2)', severity: 2, url };

function create(server: TestServer, body: unknown = advice, token = server.token): Promise<Response> {
  return server.fetch('/v1/advisories', {
    method: 'POST',
    token,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
}

async function created(t: ExecutionContext, ...asked: Parameters<typeof create>): Promise<any> {
  const response = await create(...asked);
  const body: any = await response.json();
  t.is(response.status, 201, JSON.stringify(body));
  return body;
}

function remove(server: TestServer, id: string, token = server.token): Promise<Response> {
  return server.fetch(`/v1/advisories/${id}`, { method: 'DELETE', token });
}

async function listed(server: TestServer, query = '', token = server.token): Promise<any[]> {
  return ((await (await server.fetch(`/v1/advisories?${query}`, { token })).json()) as any).items;
}

/** The vulnerability data that a client gets: the account's own page and its index entry. */
async function data(feed: TestFeed): Promise<{ name: string; updated: string; page: any }> {
  const [entry] = await feed.json('/vulnerabilities/index.json');
  return { name: entry['@name'], updated: entry['@updated'], page: await feed.json(entry['@id']) };
}

/** The own page of the account, and the number of vulnerabilities in the registration of its one version. */
async function served(server: TestServer): Promise<unknown[]> {
  const feed = new TestFeed(server);
  const leaf = await feed.json('/registration-gz-semver2/contoso.lib/index.json');
  return [(await data(feed)).page, leaf.items[0].items[0].catalogEntry.vulnerabilities?.length];
}

const lib = { 'contoso.lib': [{ severity: 2, url, versions: '[1.0.0, 1.2.0)' }] };
const nothing = { name: 'base', updated: '2024-01-01T00:00:00.0000000Z', page: {} };

for (const dialect of dialects) {
  test(`${dialect}: an advisory is listed, served, shown in registrations, counted and deleted`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    // All changes have one time on the clock.
    server.clock.now = Date.now();
    const feed = new TestFeed(server);
    const document = await OpenDocument.of(server);
    const bytes = async () =>
      Number(
        (await rowsOf(server, `SELECT metadata_bytes FROM packages WHERE package_key = 'contoso.lib'`))[0]![
          'metadata_bytes'
        ],
      );
    for (const version of ['1.0.0', '1.2.0-beta', '1.2.0']) await feed.publish({ id: 'Contoso.Lib', version });
    await feed.publish({ id: 'Contoso.Other', version: '1.0.0' });
    const before = await bytes();
    const shown = async () => {
      const { items } = await feed.json('/registration-gz-semver2/contoso.lib/index.json');
      return items[0].items.map(({ catalogEntry }: any) => catalogEntry.vulnerabilities ?? null);
    };
    t.deepEqual(await data(feed), nothing);
    t.deepEqual(await shown(), [null, null, null]);

    const made: any = await document.read('POST /advisories', await create(server));
    t.like(made, { package: 'Contoso.Lib', versions: '[1.0.0, 1.2.0)', severity: 2, url });
    const listing: any = await document.read('GET /advisories', await server.fetch('/v1/advisories'));
    t.deepEqual(listing, { items: [made], next_cursor: null });
    const first = await data(feed);
    t.deepEqual(first.page, lib);
    t.regex(first.name, /^base-[0-9a-f]{24}$/, 'clients keep a page under its name, of at most 32 characters');
    t.is(Date.parse(first.updated), Date.parse(made.created_at));
    const affected = [{ advisoryUrl: url, severity: '2' }];
    t.deepEqual(await shown(), [affected, affected, null]);
    t.deepEqual((await feed.json('/registration/contoso.lib/1.0.0.json')).catalogEntry.vulnerabilities, affected);
    t.is((await feed.json('/registration/contoso.other/1.0.0.json')).catalogEntry.vulnerabilities, undefined);
    t.is(await bytes(), before + 100 + url.length + made.versions.length);

    t.is((await create(server)).status, 409, 'the same address and range');
    const other = await created(t, server, { ...advice, package: 'Contoso.Other', versions: '[1.0.0]', severity: 0 });
    t.is(other.versions, '[1.0.0, 1.0.0]');
    t.deepEqual(await listed(server, 'package=CONTOSO.OTHER'), [other]);
    t.deepEqual(await listed(server), [made, other]);
    const page: any = await (await server.fetch('/v1/advisories?limit=1')).json();
    t.deepEqual(await listed(server, `limit=1&cursor=${page.next_cursor}`), [other]);
    const second = await data(feed);
    t.true(second.name !== first.name && Date.parse(second.updated) > Date.parse(first.updated));
    t.deepEqual(second.page, { ...lib, 'contoso.other': [{ severity: 0, url, versions: '[1.0.0, 1.0.0]' }] });

    server.clock.now += 60_000;
    t.is((await remove(server, other.id)).status, 204);
    t.is((await remove(server, other.id)).status, 404);
    const third = await data(feed);
    t.deepEqual([third.name, third.page], [first.name, first.page], 'the same page has its first name again');
    t.true(Date.parse(third.updated) > Date.parse(second.updated), 'clients that go by the date read it again');
    t.is(Date.parse(third.updated), server.clock.now);
    t.is((await remove(server, made.id)).status, 204);
    t.deepEqual(await shown(), [null, null, null]);
    t.like(await data(feed), { name: 'base', page: {} });
    t.is(await bytes(), before);
    const events = await auditOf(server, 'type=advisory.*');
    t.deepEqual(events.map(said), [
      'advisory.created Contoso.Lib',
      'advisory.created Contoso.Other',
      'advisory.deleted Contoso.Other',
      'advisory.deleted Contoso.Lib',
    ]);
    t.deepEqual(events[3]!.details, { advisory: made.id, severity: 2, versions: made.versions, url });
  });
}

test('what is wrong in an advisory is refused, with its field', async (t) => {
  const server = await startTestServer(t);
  await new TestFeed(server).publish({ id: 'Contoso.Lib', version: '1.0.0' });
  for (const [field, values] of [
    [
      'versions',
      ['', '1.0.0', '1.*', '[1.*, )', '[2.0.0, 1.0.0]', 'x', `[1.0.0-${'a'.repeat(250)}]`, `[1-${'a'.repeat(124)}]`],
    ],
    ['severity', [-1, 4, 1.5, '2', null]],
    [
      'url',
      [
        '',
        'x',
        'javascript:alert(1)',
        'https://user:secret@x.test/',
        'https://user@x.test/',
        'https://:secret@x.test/',
        'xhttps://x.test/',
        'httpsx://x.test/',
        `https://x.test/${'a'.repeat(486)}`,
        `https://x.test/${'ü'.repeat(100)}`,
      ],
    ],
    ['package', ['', 'x'.repeat(101)]],
    ['body', []],
  ] as const) {
    for (const value of values) {
      const response = await create(server, { ...advice, [field]: value });
      const { errors } = (await response.json()) as { errors: { field: string }[] };
      t.deepEqual([response.status, errors[0]!.field], [400, field], String(value).slice(0, 60));
    }
  }
  t.is((await create(server, { ...advice, extra: 1 })).status, 400);
  for (const id of ['Contoso.None', 'not an id'])
    t.is((await create(server, { ...advice, package: id })).status, 404, id);
  t.deepEqual(await listed(server), []);
  const longest = await created(t, server, {
    ...advice,
    versions: `(, 1.0.0-${'a'.repeat(240)}]`,
    url: `https://x.test/${'a'.repeat(485)}`,
  });
  t.deepEqual([longest.versions.length, longest.url.length], [250, 500]);
  t.is((await created(t, server, { ...advice, url: ' http://x.test/1 ' })).url, 'http://x.test/1');
});

test('a package has at most 25 advisories, an account at most 1000', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  for (const id of ['Contoso.Lib', 'Contoso.Other']) await feed.publish({ id, version: '1.0.0' });
  for (let number = 0; number < 25; number += 1) await created(t, server, { ...advice, url: `${url}/${number}` });
  const refused = async (body: unknown, message: RegExp) => {
    const response = await create(server, body);
    t.is(response.status, 400);
    t.regex(((await response.json()) as { detail: string }).detail, message);
  };
  await refused(advice, /A package has at most 25 advisories/);
  const walked: any[] = [];
  for (let cursor = ''; ;) {
    const page: any = await (await server.fetch(`/v1/advisories?limit=7${cursor}`)).json();
    walked.push(...page.items);
    if (page.next_cursor === null) break;
    cursor = `&cursor=${page.next_cursor}`;
  }
  t.deepEqual(
    walked.map((each) => each.url),
    Array.from({ length: 25 }, (_, number) => `${url}/${number}`),
    'the earliest first, each once',
  );
  t.is((await feed.json('/registration/contoso.lib/1.0.0.json')).catalogEntry.vulnerabilities.length, 25);
  const [row] = await rowsOf(server, 'SELECT * FROM package_advisories LIMIT 1');
  const rows = Array.from({ length: 975 }, (_, index) => ({ ...row!, id: `made-${index}`, package_row: 77 }));
  await databaseOf(server).transaction(async (tx) => {
    for (let start = 0; start < rows.length; start += 100)
      await tx.insertNew('package_advisories', rows.slice(start, start + 100));
  });
  await refused({ ...advice, package: 'Contoso.Other' }, /An account has at most 1000 advisories/);
  await databaseOf(server).transaction((tx) => tx.run(`DELETE FROM package_advisories WHERE id = 'made-1'`));
  await created(t, server, { ...advice, package: 'Contoso.Other' });
});

test('advisories need the scope write and a matching name; other accounts and upstreams never see them', async (t) => {
  const up = await UpstreamFeed.start(t);
  const elsewhere = { severity: 1, url: 'https://upstream.test/9', versions: '(, 9.0.0)' };
  up.upstream.on(
    '/vulnerabilities/index.json',
    json([{ '@name': 'x', '@id': `${up.url}/page.json`, '@updated': '2024-06-06T07:08:09Z' }]),
  );
  up.upstream.on('/page.json', json({ 'contoso.lib': [elsewhere], 'public.lib': [elsewhere] }));
  const server = await startMirrorOf(t, [up.as('up.test')], { anonymousRead: 'mirrored' });
  const feed = new TestFeed(server);
  for (const id of ['Contoso.Lib', 'Fabrikam.Lib']) await feed.publish({ id, version: '1.0.0' });
  const { id } = await created(t, server);
  await created(t, server, { ...advice, package: 'Fabrikam.Lib' });
  const limited = async (packages: string[]) =>
    (await createToken(server, ['read', 'write'], 'default', { packages })).value;

  const reader = await tokenOf(server, ['read', 'delete', 'admin', 'operate']);
  t.deepEqual([(await create(server, advice, reader)).status, (await remove(server, id, reader)).status], [403, 403]);
  t.is((await listed(server, '', reader)).length, 2);
  const fabrikam = await limited(['Fabrikam.*']);
  t.deepEqual(
    [(await create(server, advice, fabrikam)).status, (await remove(server, id, fabrikam)).status],
    [403, 404],
  );
  t.deepEqual(
    (await listed(server, '', fabrikam)).map((each) => each.package),
    ['Fabrikam.Lib'],
  );
  t.deepEqual(await listed(server, 'package=Contoso.Lib', fabrikam), []);
  const extra = await created(t, server, { ...advice, package: 'Fabrikam.Lib', severity: 0, url: `${url}/extra` });
  t.is((await remove(server, extra.id, fabrikam)).status, 204, 'of a package that its patterns name');
  const narrow = await data(new TestFeed(server, fabrikam));
  const wide = await data(feed);
  t.deepEqual([Object.keys(narrow.page), Object.keys(wide.page)], [['fabrikam.lib'], ['contoso.lib', 'fabrikam.lib']]);
  t.not(narrow.name, wide.name, 'a client with both tokens keeps two pages');
  t.deepEqual(
    (await data(new TestFeed(server, (await createToken(server, ['read'], 'default', { containers: ['*'] })).value)))
      .page,
    {},
  );

  const other = await TestFeed.ofAccount(server, 'other');
  t.deepEqual(await data(other), nothing);
  t.deepEqual(
    [(await create(server, advice, other.token)).status, (await remove(server, id, other.token)).status],
    [404, 404],
  );
  t.deepEqual(await listed(server, '', other.token), []);
  const index = await other.json('/vulnerabilities/index.json');
  t.deepEqual(await other.json(index[1]['@id']), { 'contoso.lib': [elsewhere], 'public.lib': [elsewhere] });
  const mine = await feed.json('/vulnerabilities/index.json');
  t.is(mine.length, 2, 'together with the data of the upstream');
  t.deepEqual(
    await feed.json(mine[1]['@id']),
    { 'public.lib': [elsewhere] },
    'a hosted package is not that of the upstream',
  );

  const anonymous = async (path: string) => server.fetch(path, { token: null });
  t.is((await anonymous('/v1/advisories')).status, 401);
  t.deepEqual(await (await anonymous('/v3/vulnerabilities/base.json')).json(), {}, 'mirrored content only');
  t.false((await (await anonymous('/v3/vulnerabilities/index.json')).text()).includes(wide.name));
  t.false(
    up.asked.some((path) => /contoso|fabrikam/i.test(path)),
    up.asked.join(),
  );
});

test('with anonymousRead all, readers without a token get the advisories too', async (t) => {
  const server = await startTestServer(t, { anonymousRead: 'all' });
  await new TestFeed(server).publish({ id: 'Contoso.Lib', version: '1.0.0' });
  await created(t, server);
  t.deepEqual(await (await server.fetch('/v3/vulnerabilities/base.json', { token: null })).json(), lib);
  t.is(((await (await server.fetch('/v1/advisories', { token: null })).json()) as any).items.length, 1);
});

test('clients revalidate the vulnerability data by its digest', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Contoso.Lib', version: '1.0.0' });
  const paths = ['/vulnerabilities/index.json', '/vulnerabilities/base.json'];
  const tags = async () => Promise.all(paths.map(async (path) => (await feed.fetch(path)).headers.get('etag')!));
  const before = await tags();
  for (const [index, path] of paths.entries()) {
    const same = await feed.fetch(path, { headers: { 'if-none-match': before[index]! } });
    t.deepEqual([same.status, same.headers.get('cache-control')], [304, 'private, no-cache']);
    const { headers } = await feed.fetch(path);
    t.is(headers.get('content-type'), 'application/json');
    t.is(headers.get('cache-status'), 'entrepot; hit; detail=hosted');
  }
  await created(t, server);
  const after = await tags();
  for (const [index, path] of paths.entries()) {
    t.not(after[index], before[index]);
    t.is((await feed.fetch(path, { headers: { 'if-none-match': before[index]! } })).status, 200, path);
  }
});

test('advisories stay while the name is claimed, and end with the claim', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  const { claims } = packageFeedOf(server);
  const other = await TestFeed.ofAccount(server, 'other');
  for (const id of ['Contoso.Kept', 'Contoso.Empty', 'Contoso.Other', 'Contoso.Theirs'])
    await (id === 'Contoso.Theirs' ? other : feed).publish({ id, version: '1.0.0' });
  for (const id of ['Contoso.Empty', 'Contoso.Other'])
    t.is((await server.fetch(`/v1/packages/${id}/1.0.0`, { method: 'DELETE' })).status, 204);
  t.is(await claims.release(defaultAccountOf(server), 'Contoso.Kept'), 'in use');
  t.is(await claims.release(defaultAccountOf(server), 'Contoso.Theirs'), 'unclaimed');
  const empty = async (after = '') =>
    (await claims.list(defaultAccountOf(server), after, 10)).map(({ name, position }) => [name, position]);
  t.deepEqual(await empty(), [
    ['Contoso.Empty', 'contoso.empty'],
    ['Contoso.Other', 'contoso.other'],
  ]);
  t.deepEqual(await empty('contoso.empty'), [['Contoso.Other', 'contoso.other']]);
  t.is(await claims.release(defaultAccountOf(server), 'contoso.other'), undefined);
  t.deepEqual(await data(feed), nothing, 'it had no advisory, so clients need not read the data again');
  t.deepEqual(await empty(), [['Contoso.Empty', 'contoso.empty']]);
  await feed.publish({ id: 'Contoso.Lib', version: '1.0.0' });
  await created(t, server);
  t.is((await server.fetch('/v1/packages/Contoso.Lib/1.0.0', { method: 'DELETE' })).status, 204);
  const kept = await data(feed);
  t.deepEqual(kept.page, lib);
  t.is(await claims.release(defaultAccountOf(server), 'contoso.lib'), undefined);
  t.deepEqual(await rowsOf(server, 'SELECT * FROM package_advisories'), []);
  const gone = await data(feed);
  t.deepEqual(gone.page, {});
  t.true(Date.parse(gone.updated) > Date.parse(kept.updated));
});

test('mysql: an advisory through one instance is served by the other with the next request', async (t) => {
  const settings = { data: await folderUntilEnd(t), database: { url: await temporaryDatabase(t, 'mysql') } };
  const [one, two] = [await startTestServer(t, settings), await startTestServer(t, settings)];
  await new TestFeed(one).publish({ id: 'Contoso.Lib', version: '1.0.0' });
  for (const [writer, reader] of [
    [one, two],
    [two, one],
  ] as const) {
    t.deepEqual(await served(reader), [{}, undefined]);
    const { id } = await created(t, writer);
    t.deepEqual(await served(reader), [lib, 1]);
    t.is((await remove(writer, id)).status, 204);
    t.deepEqual(await served(reader), [{}, undefined]);
  }
});

test('mysql: concurrent advisories never pass the limit of a package, and their dates differ', async (t) => {
  const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, 'mysql') } });
  const feed = new TestFeed(server);
  for (const id of ['Contoso.Lib', 'Contoso.Other']) await feed.publish({ id, version: '1.0.0' });
  const answers = await Promise.all(
    Array.from({ length: 40 }, (_, number) =>
      create(server, {
        ...advice,
        package: number % 10 === 0 ? 'Contoso.Other' : 'Contoso.Lib',
        url: `${url}/${number}`,
      }),
    ),
  );
  t.deepEqual(
    answers.map(({ status }) => status).filter((status) => status !== 201),
    Array(11).fill(400),
  );
  const all = await listed(server);
  t.is(new Set(all.map((each) => each.created_at)).size, 29);
});
