import test from 'ava';
import { TestFeed } from '../support/feed.ts';
import { makeNupkg, makeSnupkg } from '../support/builders/nupkg.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { createToken, databaseOf, failuresOf, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { Visitor } from '../support/visitor.ts';

type Json = Record<string, any>;

async function json(server: TestServer, path: string, token?: string): Promise<Json> {
  const response = await server.fetch(path, token === undefined ? {} : { token });
  if (!response.ok) throw new Error(`${path} answered ${response.status}: ${await response.text()}`);
  return (await response.json()) as Json;
}

for (const dialect of dialects) {
  test(`${dialect}: what clients did not get is listed with the cause, equal requests once`, async (t) => {
    const up = await UpstreamFeed.start(t);
    up.upstream.on('/index.json', answer(401));
    const server = await startTestServer(t, {
      upstreams: [up.as('feeds.corp', { exclude: ['Gone.*'] })],
      database: { url: await temporaryDatabase(t, dialect) },
    });
    server.clock.now = Date.now();
    const first = new Date(server.clock.now).toISOString();
    const ask = (path: string, init = {}) => server.fetch(path, init).then(({ status }) => status);
    t.is(await ask('/v3/package/Some.Thing/index.json'), 502);
    server.clock.now += 60_000;
    t.is(await ask('/v3/package/some.thing/index.json'), 502);
    server.clock.now += 60_000;
    t.is(await ask('/v3/package/gone.thing/1.0.0/gone.thing.1.0.0.nupkg'), 404);
    server.clock.now += 60_000;
    t.is(await ask('/v2/team/api/manifests/v9'), 404);
    // What clients ask for without a loss, and what has its own list.
    t.is(await ask('/v3/package/gone.thing/1.0.0/readme'), 404);
    t.is(await ask('/v2/team/api/manifests/v10', { method: 'HEAD' }), 404);
    t.is(await ask('/v3/package/gone.thing/index.json', { token: 'ent_wrong' }), 401);
    t.is(await ask('/v1/packages/nothing'), 404);

    const document = await OpenDocument.of(server);
    const list: Json = await document.read('GET /failed-requests', await server.fetch('/v1/failed-requests'));
    t.deepEqual(
      list['items'].map(({ kind, name, reference, status, code, upstream, count }: Json) =>
        [kind, name, reference, status, code, upstream, count].join(' '),
      ),
      [
        'container team/api v9 404 NameUnknown  1',
        'package gone.thing 1.0.0 404 NotFound  1',
        'package some.thing  502 UpstreamUnavailable feeds.corp 2',
      ],
    );
    const [, , failed] = list['items'];
    t.regex(failed.reason, /feeds\.corp refused access; check its credentials/);
    t.like(failed, { account: 'default', first_at: first });
    t.is(failed.last_at, new Date(Date.parse(first) + 60_000).toISOString());
    const [token] = (await json(server, '/v1/tokens'))['items'];
    t.like(failed, { token_id: token.id, token_name: token.name });

    const names = async (query: string) =>
      (await json(server, `/v1/failed-requests?${query}`))['items'].map(({ name }: Json) => name);
    t.deepEqual(await names('kind=container'), ['team/api']);
    t.deepEqual(await names('name=SOME.Thing'), ['some.thing']);
    t.deepEqual(await names('upstream=feeds.corp'), ['some.thing']);
    t.deepEqual(await names('code=NotFound'), ['gone.thing']);
    t.deepEqual(await names('token_id=none'), []);
    const page = await json(server, '/v1/failed-requests?limit=2');
    t.deepEqual(await names(`limit=2&cursor=${page['next_cursor']}`), ['some.thing']);
    for (let time = 0; time < 2; time += 1) t.is(await ask('/v2/team/api/manifests/v9'), 404);
    const most = await json(server, '/v1/failed-requests?sort=count&limit=1');
    t.is(most['items'][0].name, 'team/api', 'the most frequent first');
    const others = await names(`sort=count&cursor=${most['next_cursor']}`);
    t.deepEqual(others, ['some.thing', 'gone.thing']);

    // Counted on by the next flush, in the same row.
    t.is(await ask('/v3/package/some.thing/index.json'), 502);
    t.is((await json(server, '/v1/failed-requests?name=some.thing'))['items'][0].count, 3);

    server.clock.now += 2 * 86_400_000;
    t.deepEqual(await names(''), []);
  });
}

test('each account sees its own failed requests, a limited token those of its names, and operate all', async (t) => {
  const server = await startTestServer(t, { anonymousRead: 'mirrored' });
  const other = await tokenOf(server, ['read', 'write', 'admin'], 'other');
  const limited = (await createToken(server, ['read', 'admin'], 'default', { packages: ['Ours.*'] })).value;
  for (const [id, token] of [
    ['ours.one', server.token],
    ['private.one', server.token],
    ['theirs.one', other],
  ] as const) {
    t.is((await server.fetch(`/v3/package/${id}/index.json`, { token })).status, 404);
  }
  const names = async (token: string) =>
    (await json(server, '/v1/failed-requests', token))['items'].map(({ name }: Json) => name).toSorted();
  t.deepEqual(await names(server.token), ['ours.one', 'private.one', 'theirs.one']);
  t.deepEqual(await names(other), ['theirs.one']);
  t.deepEqual(await names(limited), ['ours.one']);
  const [seen] = (await json(server, '/v1/failed-requests', limited))['items'];
  t.is(seen.token_name, null, 'names of tokens are for administrators of all names');
  const reader = await tokenOf(server, ['read']);
  t.is((await server.fetch('/v1/failed-requests', { token: reader })).status, 403);
  // A reader that asks with HEAD pulls, and does not push. Who has no credential is asked for one, and asks again.
  const head = { method: 'HEAD', token: reader };
  t.is((await server.fetch('/v2/ours/app/manifests/v1', head)).status, 404);
  t.is((await server.fetch('/v3/package/ours.two/index.json', { token: null })).status, 401);
  t.deepEqual(await names(server.token), ['ours.one', 'ours/app', 'private.one', 'theirs.one']);
  // A push expects that nothing is there. That it may not ask is what its user has to know.
  const patterns = { containers: ['ours/*'] };
  const writer = (await createToken(server, ['read', 'write'], 'default', patterns)).value;
  const asPush = { method: 'HEAD', token: writer };
  t.is((await server.fetch('/v2/ours/new/manifests/v1', asPush)).status, 404);
  t.is((await server.fetch('/v2/secret/app/manifests/v1', asPush)).status, 403);
  const asked = (await json(server, '/v1/failed-requests?kind=container'))['items'];
  t.deepEqual(
    asked.map(({ name, status }: Json) => [name, status]),
    [
      ['secret/app', 403],
      ['ours/app', 404],
    ],
  );
  // A push that is refused concerns the name to which it was.
  t.is((await server.fetch('/v2/ours/pushed/manifests/v1', { method: 'PUT', body: 'x' })).status, 400);
  const pushed = (await json(server, '/v1/failed-requests?name=ours/pushed'))['items'];
  t.like(pushed, [{ kind: 'container', name: 'ours/pushed', status: 400, code: 'ManifestInvalid' }] as never);
});

test('one client cannot fill the table of failed requests', async (t) => {
  const server = await startTestServer(t);
  const database = databaseOf(server);
  await server.fetch('/v3/package/no.0/index.json');
  await json(server, '/v1/failed-requests');
  // All at once, because the server writes them every few seconds.
  const failure = { accountId: 1, kind: 'package', reference: '', tokenId: null, upstream: null, status: 404 } as const;
  for (let id = 1; id <= 600; id += 1) {
    failuresOf(server).note({ ...failure, name: `no.${id}`, code: 'NotFound', reason: 'none', requestId: 'x' });
  }
  await json(server, '/v1/failed-requests');
  const rows = async () => (await database.get<{ rows: number }>('SELECT COUNT(*) AS rows FROM failed_requests'))!.rows;
  t.is(await rows(), 501);
});

const wordsOf = (page: string) => page.replace(/<[^>]+>/g, ' ').replace(/\s+/g, ' ');

test('a name is explained: hosted, reserved, excluded, for others, not found, failed, or stored', async (t) => {
  const up = await UpstreamFeed.start(t);
  const down = await UpstreamFeed.start(t);
  down.upstream.on('/index.json', answer(503));
  await up.offer({ id: 'Known.Thing', versions: [{ version: '1.0.0' }] });
  const server = await startTestServer(t, {
    upstreams: [
      up.as('nuget.org', { exclude: ['Evil.*'] }),
      down.as('feeds.corp', { include: ['Corp.*'] }),
      down.as('feeds.team', { id: 'team', accounts: ['other'] }),
    ],
    reserved: { packages: ['Contoso.*'] },
  });
  await new TestFeed(server).push({ id: 'Own.Thing', version: '1.0.0' });
  for (const id of ['known.thing', 'typing.error', 'corp.thing']) {
    await (await server.fetch(`/v3/package/${id}/index.json`)).arrayBuffer();
  }
  const document = await OpenDocument.of(server);
  const explain = async (name: string): Promise<Json> =>
    document.read('GET /explain', await server.fetch(`/v1/explain?kind=package&name=${name}`));
  const originOf = async (name: string): Promise<Json> => (await explain(name))['origin'];
  const rules = async (name: string) =>
    (await originOf(name))['upstreams'].map(({ id, rule }: Json) => `${id}: ${rule}`);
  t.deepEqual(await rules('Known.Thing'), ['nuget.org: asked', 'feeds.corp: not included', 'team: other account']);
  t.like(await explain('Known.Thing'), { origin: { hosted: false, reserved_by: null }, refused: null });
  t.like((await originOf('Known.Thing'))['upstreams'][0], {
    included: true,
    last_outcome: 'stored',
    said_not_found: false,
    state: 'working',
    entries: 1,
  });
  t.like((await originOf('Typing.Error'))['upstreams'][0], {
    included: true,
    last_outcome: 'not found',
    said_not_found: true,
    entries: 0,
    confirmed_at: null,
  });
  t.like(await originOf('Contoso.Typo'), { reserved_by: 'Contoso.*', hosted: false });
  t.like((await originOf('evil.thing'))['upstreams'][0], { included: false, rule: 'excluded', pattern: 'Evil.*' });
  t.like(await originOf('Own.Thing'), { hosted: true });
  t.deepEqual(await rules('Own.Thing'), ['nuget.org: hosted', 'feeds.corp: not included', 'team: other account']);
  const corp = await explain('Corp.Thing');
  t.like(corp['refused'], { status: 502, code: 'UpstreamUnavailable' });
  t.regex(corp['origin'].upstreams[1].last_failure.reason, /feeds\.corp answered 503/);
  t.regex(corp['origin'].upstreams[1].last_outcome, /^failed: .*feeds\.corp answered 503/);

  t.is((await server.fetch('/v1/explain?kind=package&name=../x')).status, 400);
  const admin = await tokenOf(server, ['read', 'write', 'delete', 'admin']);
  t.is((await server.fetch('/v1/explain?kind=package&name=x', { token: admin })).status, 403);

  const visitor = await Visitor.signedIn(server);
  const page = async (name: string) => wordsOf(await visitor.page(`/console/explain?kind=package&name=${name}`));
  t.regex(await page('Contoso.Typo'), /Contoso\.Typo is reserved by Contoso\.\*: no upstream is ever asked for it\./);
  t.regex(await page('Own.Thing'), /This account hosts Own\.Thing, so no upstream is asked for it\./);
  t.regex(
    await page('Typing.Error'),
    /Each upstream that is asked says that it has no Typing\.Error\. Check the spelling\./,
  );
  t.regex(await page('Evil.Thing'), /No upstream may be asked for Evil\.Thing[^]*no: excluded by Evil\.\*/);
  t.regex(
    await page('Known.Thing'),
    /comes from an upstream[^]*yes, for known\.thing working 1 entry content, just now/,
  );
  t.regex(await page('Corp.Thing'), /Last failed request just now , 502 UpstreamUnavailable/);
  t.is((await visitor.fetch('/console/explain?kind=package&name=a%20b')).status, 422);
  const missing = await visitor.fetch('/console/packages/Contoso.Typo');
  t.is(missing.status, 404);
  t.regex(await missing.text(), /href="\/console\/explain\?kind=package&amp;name=Contoso\.Typo">Explain why/);
  const reader = await Visitor.signedIn(server, admin);
  t.notRegex(await (await reader.fetch('/console/packages/Contoso.Typo')).text(), /Explain why/);

  const failures = wordsOf(await visitor.page('/console/failures'));
  t.regex(failures, /corp\.thing 502 The upstream feeds\.corp answered 503[^]*typing\.error 404/);
  t.regex(await visitor.page('/console/failures?name=none'), /Nothing matches/);
});

test('the name of an image is explained with the upstream that it means', async (t) => {
  const hub = await startUpstreamRegistry(t);
  const server = await startTestServer(t, {
    upstreams: [
      hub.settings('docker.io', { default: true, exclude: ['docker.io/evil/*'] }),
      hub.settings('quay.io', { id: 'quay', accounts: ['other'] }),
    ],
    reserved: { containers: ['team/*'] },
  });
  const explain = async (name: string) => json(server, `/v1/explain?kind=image&name=${name}`);
  const originOf = async (name: string): Promise<Json> => (await explain(name))['origin'];
  t.is((await server.fetch('/v2/nothing/manifests/v1')).status, 404);
  const known = await explain('nothing');
  t.like(known['origin'].upstreams[0], { id: 'docker.io', rule: 'asked', name_there: 'library/nothing' });
  t.like(known['refused'], { status: 404 });
  t.like(await originOf('team/api'), { reserved_by: 'team/*' });
  t.like((await originOf('evil/image'))['upstreams'][0], { rule: 'excluded', pattern: 'docker.io/evil/*' });
  t.like((await originOf('quay.io/app/one'))['upstreams'][0], { id: 'quay', rule: 'other account' });
  t.like(await originOf('gcr.io/app/one'), { missing_registry: 'gcr.io', upstreams: [] });
  const visitor = await Visitor.signedIn(server);
  const page = wordsOf(await visitor.page('/console/explain?kind=container&name=gcr.io/app/one'));
  t.regex(page, /The name begins with gcr\.io, which is no upstream/);
});

for (const dialect of dialects) {
  test(`${dialect}: old failed requests are deleted, and the oldest of an account with very many`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const failures = failuresOf(server);
    const database = databaseOf(server);
    server.clock.now = Date.now();
    const failure = { kind: 'package', reference: '', tokenId: null, upstream: null, status: 404, code: 'NotFound' };
    const note = (accountId: number, name: string) =>
      failures.note({ ...failure, accountId, name, reason: 'x'.repeat(501), requestId: 'r' });
    for (let number = 0; number < 5100; number += 1) {
      if (number % 500 === 0) await failures.flush();
      server.clock.now += 1;
      note(1, `name.${number}`);
    }
    note(2, 'other');
    await failures.flush();
    const names = async () =>
      (await database.select<{ name: string }>('SELECT name FROM failed_requests ORDER BY last_at')).map(
        ({ name }) => name,
      );
    t.is((await names()).length, 5101);
    await failures.deleteOld();
    const kept = await names();
    t.deepEqual([kept.length, kept[0], kept.includes('other')], [5001, 'name.100', true]);
    server.clock.now += 2 * 86_400_000 - 1;
    note(2, 'new');
    await failures.flush();
    server.clock.now += 1;
    await failures.deleteOld();
    t.deepEqual(await names(), ['new']);
  });
}

test('a refused push of a package or of its symbols is listed under its id', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Contoso.Lib', version: '1.0.0' });
  const other = { id: 'Contoso.Lib', version: '1.0.0', description: 'other bytes' };
  t.is((await feed.push(await makeNupkg(other))).status, 409);
  t.is((await feed.push(await makeSnupkg({ id: 'Orphan' }), '/symbols')).status, 404);
  t.is((await feed.push(Buffer.from('no package'))).status, 400);
  const { items } = await json(server, '/v1/failed-requests');
  t.deepEqual(items.map(({ kind, name, status, code }: Json) => [kind, name, status, code].join(' ')).toSorted(), [
    'package contoso.lib 409 AlreadyExists',
    'package orphan 404 NotFound',
  ]);
});
