import test, { type ExecutionContext } from 'ava';
import { auditOf } from '../support/audit.ts';
import { TestFeed } from '../support/feed.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import {
  createToken,
  databaseOf,
  eventsOf,
  firstUpstream,
  flushEvents,
  flushUsage,
  tokenOf,
} from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { entrepot } from '../support/in-process.ts';
import { eventually, until } from '../support/until.ts';
import { answer } from '../support/upstreams/faulty-upstream.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';

type Json = Record<string, any>;

const minute = 60_000;

async function json(server: TestServer, path: string, init: RequestInit & { token?: string } = {}): Promise<Json> {
  const response = await server.fetch(`/v1${path}`, init);
  if (!response.ok) throw new Error(`${path} answered ${response.status}: ${await response.text()}`);
  return (await response.json()) as Json;
}

async function withImage(t: ExecutionContext, settings: Record<string, unknown> = {}, server: object = {}) {
  const upstream = await startUpstreamRegistry(t);
  const own = upstream.settings('up.test', { id: 'up-team', ...settings });
  const test = await startTestServer(t, { upstreams: [own], ...server });
  test.clock.now = Date.now();
  const get = async (path: string, init: RequestInit = {}) => {
    const response = await test.fetch(`/v2/up.test/${path}`, init);
    return { status: response.status, bytes: (await response.arrayBuffer()).byteLength };
  };
  return { upstream, server: test, get };
}

for (const dialect of dialects) {
  test(`${dialect}: an upstream shows what the mirror saved and what is stored, each content once`, async (t) => {
    const url = await temporaryDatabase(t, dialect);
    const { upstream, server, get } = await withImage(t, {}, { database: { url } });
    const { manifest, layer } = upstream.image('app', 'v1');
    const path = `app/blobs/${layer.digest}`;
    await get('app/manifests/v1');
    await get(path);
    await get(path);
    t.is((await get(path, { headers: { range: 'bytes=0-9' } })).bytes, 10);
    await get(path, { method: 'HEAD' });
    await flushUsage(server);
    const document = await OpenDocument.of(server);
    const read = async (): Promise<Json> => document.read('GET /upstreams', await server.fetch('/v1/upstreams'));
    // What is stored is counted in the background.
    const list = await eventually(read, (answer) => answer['items'][0].cached !== null);
    const [item] = list['items'];
    t.like(item, {
      id: 'up-team',
      name: 'up.test',
      kind: 'registry',
      mode: 'online',
      accounts: null,
      breaker: { state: 'closed', reason: null, workers: 1, open_workers: 0 },
      works_offline: 'all',
      rate_limit: null,
    });
    t.like(item.requests, { sent: 2, needed: 5, hits: 3, received_bytes: manifest.size + layer.size });
    t.like(item.requests.by_outcome, { miss: 2, hit: 3, stale: 0 });
    t.like(item.saved, { requests: 3, bytes: layer.size + 10 });
    t.is(item.latency.requests, 2);
    t.true(item.latency.median_ms > 0 && item.latency.p95_ms >= item.latency.median_ms);
    t.is(item.last_success_at, new Date(server.clock.now!).toISOString());
    // The tag and the digest of a manifest are two entries with one content.
    t.like(item.cached, { entries: 3, size_bytes: manifest.size + layer.size, expired_documents: 0 });
    t.like(list['month'], { requests: 5, hits: 3, upstream_bytes: manifest.size + layer.size });
    t.like(await document.read('GET /upstreams/{id}', await server.fetch('/v1/upstreams/up-team')), { id: 'up-team' });
  });

  test(`${dialect}: entries are paged by kind and name, filtered by the beginning of a name, and dropped`, async (t) => {
    const url = await temporaryDatabase(t, dialect);
    const { upstream, server, get } = await withImage(t, {}, { database: { url } });
    for (const name of ['app', 'apple', 'b%']) upstream.image(name, 'v1');
    for (const name of ['app', 'apple']) await get(`${name}/manifests/v1`);
    const { layer } = upstream.image('b', 'v1');
    await get(`b/blobs/${layer.digest}`);
    const document = await OpenDocument.of(server);
    const entries = async (query: string): Promise<Json> =>
      document.read('GET /upstreams/{id}/entries', await server.fetch(`/v1/upstreams/up-team/entries?${query}`));
    const textOf = ({ kind, name }: Json) => `${kind} ${name}`;
    const all: Json[] = [];
    for (let cursor = ''; ;) {
      const page = await entries(`limit=2${cursor}`);
      t.true(page['items'].length <= 2);
      all.push(...page['items']);
      if (page['next_cursor'] === null) break;
      cursor = `&cursor=${page['next_cursor']}`;
    }
    t.deepEqual(all.map(textOf), ['manifest app', 'manifest app', 'manifest apple', 'manifest apple', 'blob b']);
    t.is(new Set(all.map(({ id }) => id)).size, 5);
    t.deepEqual((await entries('name=APPL')).items.map(textOf), ['manifest apple', 'manifest apple']);
    t.deepEqual((await entries('name=%25')).items, []);
    t.deepEqual((await entries('name=app&entry_kind=blob')).items, []);
    t.is((await server.fetch('/v1/upstreams/up-team/entries?cursor=x')).status, 400);

    const tag = all.find(({ reference }) => reference === 'v1')!;
    const path = `/v1/upstreams/up-team/entries/${tag['id']}`;
    const requests = upstream.requests().length;
    t.is((await document.read('GET /upstreams/{id}/entries/{entry}', await server.fetch(path)))['name'], tag['name']);
    t.is((await server.fetch(path, { method: 'DELETE' })).status, 204);
    t.is((await server.fetch(path, { method: 'DELETE' })).status, 404);
    const [event] = await auditOf(server, 'type=tag.deleted');
    t.like(event, { subject: { kind: 'container', name: `up.test/${tag['name']}`, reference: 'v1' } });
    t.is((await get(`${tag['name']}/manifests/v1`)).status, 200);
    t.true(upstream.requests().length > requests, 'it is fetched again');
  });
}

test('a paused upstream says why and since when, and a document that is too old makes it work offline only partly', async (t) => {
  const { upstream, server, get } = await withImage(t, { freshFor: '1m', staleFor: '1h' });
  upstream.image('app', 'v1');
  await get('app/manifests/v1');
  server.clock.now! += 2 * minute;
  upstream.unplug();
  t.is((await get('app/manifests/v1')).status, 200);
  const paused = await json(server, '/upstreams/up-team');
  t.like(paused['breaker'], { state: 'open', open_workers: 1, since: new Date(server.clock.now!).toISOString() });
  t.is(typeof paused['breaker'].reason, 'string');
  t.true(Date.parse(paused['breaker'].next_attempt_at) > server.clock.now!);
  t.is(paused['works_offline'], 'all');
  t.is(paused['requests'].hits, 1, 'a stale answer saves its request');

  const { upstream: silent, server: never, get: tryGet } = await withImage(t);
  silent.unplug();
  t.true((await tryGet('app/manifests/v1')).status >= 500);
  t.is((await json(never, '/upstreams/up-team'))['latency'], null, 'no answer has a time');

  const { server: later } = await withImage(t, { freshFor: '1m', staleFor: '1h' });
  const row = (name: string, kind: string, reference: string) => ({
    id: name.padEnd(64, '0'),
    upstream: 'up-team',
    kind,
    name,
    reference,
    digest: `sha256:${name.padEnd(64, '0')}`,
    size_bytes: 10,
    content_type: 'text/plain',
    attributes: '{}',
    stored_at: 1,
    validated_at: later.clock.now! - 62 * minute,
    used_at: 1,
  });
  const rows = [row('a', 'manifest', 'v1'), row('b', 'manifest', 'sha256:0'), row('c', 'blob', 'sha256:1')];
  rows.push(row('d', 'tags', ''), { ...row('e', 'tags', ''), validated_at: later.clock.now! - 60 * minute });
  rows.push(row('f', 'referrers', 'sha256:2'));
  for (const each of rows) await databaseOf(later).transaction((tx) => tx.insertNew('mirror_entries', [each]));
  const old = await json(later, '/upstreams/up-team');
  t.like(old['cached'], { entries: 6, size_bytes: 60, expired_documents: 3 });
  t.is(old['works_offline'], 'partly');
});

test('the state of an upstream follows its latest answers, and its last success is known after a restart', async (t) => {
  const { upstream, server, get } = await withImage(t);
  upstream.image('app', 'v1');
  const { manifest, layer } = upstream.image('app', 'v2');
  upstream.manifest('app', manifest.bytes, 'v3');
  const state = async (of: TestServer = server) => json(of, '/upstreams/up-team');
  t.is((await get('app/manifests/v1')).status, 200);
  upstream.on('/v2/app/manifests/private', answer(403));
  t.is((await get('app/manifests/private')).status, 403);
  t.like(await state(), { state: 'working', failures: 0, last_failure: null }, 'a denied name is no failure');
  const fail = async (path: string, status: number) => {
    upstream.on(`/v2/${path}`, answer(status));
    t.is((await get(path)).status, 502);
  };
  for (const tag of ['w1', 'w2']) await fail(`app/manifests/${tag}`, 400);
  server.clock.now! += 1000;
  t.like(await state(), {
    state: 'working',
    failures: 2,
    last_failure: { time: new Date(server.clock.now! - 1000).toISOString(), reason: 'answered 400' },
  });
  await fail('app/manifests/w3', 400);
  t.like(await state(), { state: 'failing', failures: 3 });
  for (const path of ['manifests/v2', 'manifests/v3', `blobs/${layer.digest}`]) {
    server.clock.now! += 1000;
    t.is((await get(`app/${path}`)).status, 200);
  }
  const succeeded = new Date(server.clock.now!).toISOString();
  t.like(await state(), { state: 'working', failures: 0, last_failure: { reason: 'answered 400' } });
  server.clock.now! += 1000;
  for (const tag of ['w4', 'w5', 'w6']) await fail(`app/manifests/${tag}`, 401);
  t.like(await state(), { state: 'refused', last_failure: { reason: 'refused access; check its credentials' } });
  await server.close();

  const settings = { data: server.data, upstreams: [upstream.settings('up.test', { id: 'up-team' })] };
  const again = await startTestServer(t, settings);
  t.like(await state(again), { state: 'unused', failures: 0, last_failure: null, last_success_at: succeeded });
});

test('a failing search is no failure of its feed', async (t) => {
  const up = await UpstreamFeed.start(t);
  const server = await startMirrorOf(t, [up.as('up.test')]);
  up.upstream.on('/query', answer(500));
  // A busy machine may leave the feed out of a search before it asks.
  await until(async () => {
    t.is((await server.fetch('/v3/search?q=a')).status, 200);
    return up.asked.includes('/query');
  });
  t.like(await json(server, '/upstreams/up.test'), { state: 'working', failures: 0, last_failure: null });
});

test('an upstream that is set to offline serves documents of any age, and an empty one nothing', async (t) => {
  const { server } = await withImage(t, { mode: 'offline' });
  t.like(await json(server, '/upstreams/up-team'), {
    mode: 'offline',
    works_offline: 'nothing',
    last_success_at: null,
  });
});

test('a rate limit is shown until its window is over', async (t) => {
  const { upstream, server, get } = await withImage(t);
  const { manifest } = upstream.image('app');
  upstream.manifest('app', JSON.parse(manifest.bytes) as object, 'v1', {
    'ratelimit-limit': '100;w=21600',
    'ratelimit-remaining': '76;w=21600',
  });
  await get('app/manifests/v1');
  const resets = new Date(server.clock.now! + 21_600_000).toISOString();
  t.deepEqual((await json(server, '/upstreams/up-team'))['rate_limit'], {
    limit: 100,
    remaining: 76,
    resets_at: resets,
  });
  server.clock.now! += 21_600_000;
  t.is((await json(server, '/upstreams/up-team'))['rate_limit'], null);
});

test('a feed and a registry may share an ID: their entries stay apart', async (t) => {
  const feed = await UpstreamFeed.start(t);
  const registry = await startUpstreamRegistry(t);
  const server = await startTestServer(t, {
    upstreams: [feed.as('both.test'), registry.settings('both.test'), registry.settings('other.test')],
  });
  await feed.offer({ id: 'Thing', versions: [{ version: '1.0.0' }] });
  await (await new TestFeed(server).fetch('/package/thing/1.0.0/thing.1.0.0.nupkg')).arrayBuffer();
  const { layer } = registry.image('app', 'v1');
  await (await server.fetch(`/v2/both.test/app/blobs/${layer.digest}`)).arrayBuffer();
  t.is((await server.fetch('/v1/upstreams/both.test')).status, 400);
  t.is((await server.fetch('/v1/upstreams/none')).status, 404);
  const kinds = async (kind: string) => {
    const { items } = await json(server, `/upstreams/both.test/entries?kind=${kind}`);
    return items.map((each: Json) => each['kind']) as string[];
  };
  t.deepEqual(await kinds('registry'), ['blob']);
  const stored = await kinds('nuget');
  t.is(stored[0], 'nupkg');
  t.false(stored.includes('blob'));
  const rows = await databaseOf(server).select('SELECT id FROM mirror_entries');
  t.is(stored.length + 1, rows.length, 'every kind of entry is known');
  const cached = async (kind: string) => (await json(server, `/upstreams/both.test?kind=${kind}`))['cached'].entries;
  await until(async () => (await cached('registry')) === 1);
  t.is(await cached('nuget'), stored.length);
  const { items } = await json(server, '/upstreams/both.test/entries?kind=registry');
  const path = `/v1/upstreams/both.test/entries/${items[0].id}?kind=nuget`;
  t.is((await server.fetch(path, { method: 'DELETE' })).status, 404, 'an entry of the other one');
  const other = `/v1/upstreams/other.test/entries/${items[0].id}`;
  for (const method of ['GET', 'DELETE']) t.is((await server.fetch(other, { method })).status, 404, 'of another name');
});

test('a dropped package is recorded as one, and another document of a feed as an entry', async (t) => {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'Contoso.Utility', versions: [{ version: '1.0.0' }] });
  const server = await startMirrorOf(t, [up.as('up.test')]);
  const path = '/v3/package/contoso.utility';
  for (const each of ['index.json', '1.0.0/contoso.utility.1.0.0.nupkg'])
    t.is((await server.fetch(`${path}/${each}`)).status, 200);
  const { items } = await json(server, '/upstreams/up.test/entries?kind=nuget&name=contoso.utility');
  for (const { id } of items)
    t.is((await server.fetch(`/v1/upstreams/up.test/entries/${id}?kind=nuget`, { method: 'DELETE' })).status, 204);
  const said = (await auditOf(server)).map(({ type, subject }) => `${type} ${subject.name} ${subject.version ?? ''}`);
  t.true(said.includes('package.deleted contoso.utility 1.0.0'), said.join('; '));
  t.true(said.includes('upstream.entry_dropped up.test '), said.join('; '));
  t.is(said.filter((each) => each.startsWith('package.deleted')).length, 1);
});

test('the scopes: operate to see, delete to drop, and no name patterns for what is stored', async (t) => {
  const { upstream, server, get } = await withImage(t);
  const { layer } = upstream.image('app', 'v1');
  await get(`app/blobs/${layer.digest}`);
  const { items } = await json(server, '/upstreams/up-team/entries');
  const entry = `/upstreams/up-team/entries/${items[0].id}`;
  const status = async (path: string, token: string, method = 'GET') =>
    (await server.fetch(`/v1${path}`, { token, method })).status;
  const account = await tokenOf(server, ['read', 'write', 'delete', 'admin']);
  for (const path of ['/upstreams', '/upstreams/up-team', '/upstreams/up-team/entries', entry]) {
    t.is(await status(path, account), 403, path);
  }
  t.is(await status(entry, account, 'DELETE'), 403);
  t.is(await status(entry, await tokenOf(server, ['read', 'operate']), 'DELETE'), 403);
  const { value: limited } = await createToken(server, ['operate', 'delete'], 'default', { containers: ['x/*'] });
  t.is(await status('/upstreams', limited), 200);
  for (const path of ['/upstreams/up-team/entries', entry]) t.is(await status(path, limited), 403, path);
  t.is(await status(entry, limited, 'DELETE'), 403);
  t.is(await status(entry, server.token), 200, 'it is still there');
  t.false(firstUpstream(server).isPaused);
});

test('a paused upstream is tried now, its page and doctor show the pause, and others may not', async (t) => {
  const { upstream, server, get } = await withImage(t);
  upstream.image('app', 'v1');
  upstream.on('/v2/limited/manifests/v1', answer(429, { 'retry-after': '86400' }));
  t.is((await get('limited/manifests/v1')).status, 502);
  t.is((await get('app/manifests/v1')).status, 502, 'paused');
  // What a server does each few seconds.
  const tell = async () => {
    await flushEvents(server, true);
    await eventsOf(server).dispatch();
  };
  const document = await OpenDocument.of(server);
  const shown: Json = await document.read('GET /upstreams/{id}', await server.fetch('/v1/upstreams/up-team'));
  t.like(shown['breaker'], { state: 'open', reason: 'asks for a pause (429)' });
  t.is(Date.parse(shown['breaker'].next_attempt_at) - server.clock.now!, 5 * minute);
  await tell();
  const environment = {
    ENTREPOT_DATA: server.data,
    ENTREPOT_UPSTREAMS: JSON.stringify([upstream.settings('up.test', { id: 'up-team' })]),
  };
  const doctor = async () => {
    const { stdout } = await entrepot(environment, 'doctor');
    return stdout.split('\n').find((line) => line.includes('upstream up-team'))!;
  };
  t.regex(await doctor(), /reachable.*paused its requests since.*429.*POST \/v1\/upstreams\/up-team\/retry/);
  const visitor = await Visitor.signedIn(server);
  const page = '/console/mirror/up-team?kind=registry';
  t.regex(await visitor.page(page), /paused[^]*<button>Try now<\/button>/);
  const retry = '/v1/upstreams/up-team/retry';
  t.is((await server.fetch(retry, { method: 'POST', token: await tokenOf(server, ['read', 'admin']) })).status, 403);
  t.is((await get('app/manifests/v1')).status, 502);
  const after: Json = await document.read('POST /upstreams/{id}/retry', await server.fetch(retry, { method: 'POST' }));
  t.is(after['breaker'].state, 'closed');
  t.is((await get('app/manifests/v1')).status, 200);
  t.notRegex(await visitor.page(page), /Try now/);
  await tell();
  t.notRegex(await doctor(), /paused/);
  const sent = await visitor.send(page, []);
  t.is(leadsTo(sent), `${page} (upstream-works)`);
  upstream.unplug();
  t.is((await get('other/manifests/v1')).status, 502);
  const still: Json = await json(server, '/upstreams/up-team/retry', { method: 'POST' });
  t.is(still['breaker'].state, 'open', 'it was asked, and still fails');
});
