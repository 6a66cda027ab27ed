import { randomBytes, randomInt } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import { answer, serve, startFaultyUpstream, type Behaviour } from '../support/upstreams/faulty-upstream.ts';
import { TestFeed } from '../support/feed.ts';
import { makeNupkg } from '../support/builders/nupkg.ts';
import { errorOf, TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { json, startMirrorOf, UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { startUpstreamRegistry, type UpstreamRegistry } from '../support/upstreams/upstream-registry.ts';
import { until } from '../support/until.ts';
import { firstUpstream } from '../support/inside.ts';

// A package or repository that fails upstream must not stop the readers of other ones.

const versions = json({ versions: ['1.0.0'] });

async function mirroredFeed(t: ExecutionContext, settings: Record<string, unknown> = {}) {
  const up = await UpstreamFeed.start(t);
  const server = await startMirrorOf(t, [up.as('up.test', settings)]);
  server.clock.now = Date.now();
  const feed = new TestFeed(server);
  let others = 0;
  return {
    up,
    server,
    feed,
    clock: server.clock as { now: number },
    index: (id: string) => feed.fetch(`/package/${id}/index.json`),
    /** Requests the versions of `count` new packages; resolves to the statuses. */
    ask: async (count: number) => {
      const statuses: number[] = [];
      for (let index = 0; index < count; index += 1) {
        const id = `good${(others += 1)}`;
        up.upstream.on(`/flat/${id}/index.json`, versions);
        statuses.push((await feed.fetch(`/package/${id}/index.json`)).status);
      }
      return statuses;
    },
  };
}

async function mirroredRegistry(t: ExecutionContext, settings: Record<string, unknown> = {}) {
  const upstream = await startUpstreamRegistry(t);
  // The limit of fetches for an account must not be reached before that of connections.
  const limits = { accountFetches: 1000 };
  const server = await startTestServer(t, { limits, upstreams: [upstream.settings('up.test', settings)] });
  server.clock.now = Date.now();
  return {
    upstream,
    server,
    clock: server.clock as { now: number },
    get: (path: string, init: RequestInit = {}) => server.fetch(`/v2/up.test/${path}`, init),
  };
}

const good = (count: number) => Array.from({ length: count }, () => 200);

/** Repeats a request, one after the other, until `ended`; resolves to the number of requests. */
async function again(ended: () => boolean, work: () => Promise<unknown>): Promise<number> {
  let count = 0;
  for (; !ended(); count += 1) await work();
  return count;
}

/** The status of an answer that is read to its end. */
async function statusOf(asked: Promise<Response>): Promise<number> {
  const response = await asked;
  await response.arrayBuffer();
  return response.status;
}

test('a package that answers 500 and is requested repeatedly fails alone and at once', async (t) => {
  const { up, index, ask, clock } = await mirroredFeed(t);
  up.upstream.on('/flat/bad/index.json', answer(500));
  let ended = false;
  const readers = Array.from({ length: 5 }, () =>
    again(
      () => ended,
      async () => t.is(await statusOf(index('bad')), 502),
    ),
  );
  t.deepEqual(await ask(150), good(150));
  ended = true;
  t.true((await Promise.all(readers)).reduce((sum, each) => sum + each) > 100);
  t.is(up.upstream.count('/flat/bad/index.json'), 3, 'three attempts, and then none');
  const refused = await index('bad');
  t.is(refused.status, 502);
  t.is(refused.headers.get('retry-after'), '1');
  t.like(await refused.json(), { code: 'UpstreamUnavailable', upstream: 'up.test', retryAfter: 1 });
  clock.now += 1000;
  up.upstream.on('/flat/bad/index.json', versions);
  t.is((await index('bad')).status, 200);
});

test('503 with a Retry-After of a day stops one package for 5 minutes, and no other', async (t) => {
  const { up, index, ask, clock } = await mirroredFeed(t);
  up.upstream.on('/flat/bad/index.json', answer(503, { 'retry-after': '86400' }), versions);
  t.is((await index('bad')).headers.get('retry-after'), '300');
  t.deepEqual(await ask(150), good(150));
  clock.now += 299_000;
  const refused = await index('bad');
  t.deepEqual([refused.status, refused.headers.get('retry-after')], [502, '1']);
  clock.now += 1000;
  t.is((await index('bad')).status, 200);
});

test('a body that is cut each time stops no other package, and is requested anew each time', async (t) => {
  const { up, feed, ask, server } = await mirroredFeed(t, { timeout: '60s' });
  const nupkg = await makeNupkg({ id: 'Cut', version: '1.0.0', payloadBytes: 200_000 });
  const path = '/flat/cut/1.0.0/cut.1.0.0.nupkg';
  up.upstream.on('/flat/cut/index.json', versions);
  up.upstream.on(path, serve(nupkg, { until: 50_000, ranges: false }));
  const get = () => feed.fetch('/package/cut/1.0.0/cut.1.0.0.nupkg');
  let ended = false;
  const reader = again(
    () => ended,
    () => t.throwsAsync(async () => (await get()).arrayBuffer()),
  );
  t.deepEqual(await ask(150), good(150));
  ended = true;
  await reader;
  up.upstream.on(path, serve(nupkg));
  const response = await get();
  t.deepEqual(Buffer.from(await response.arrayBuffer()), nupkg);
  t.true(server.lines.filter((line) => line.includes('in the middle of a body')).length <= 2);
});

test('several failing packages pause the upstream; one that succeeds ends the pause', async (t) => {
  const { up, index, ask, clock } = await mirroredFeed(t);
  t.deepEqual(await ask(1), good(1));
  const bad = ['a', 'b', 'c', 'd', 'e'];
  for (const id of bad) up.upstream.on(`/flat/${id}/index.json`, answer(500));
  for (const id of bad) t.is((await index(id)).status, 502);
  const asked = up.upstream.asked.length;
  t.deepEqual(await ask(3), [502, 502, 502]);
  t.is(up.upstream.asked.length, asked, 'no request reaches the upstream');
  clock.now += 1000;
  t.deepEqual(await ask(20), good(20));
});

test('packages that fail do not stop the search, and a search that fails does not stop packages', async (t) => {
  const { up, feed, index, ask, clock } = await mirroredFeed(t);
  await up.offer({ id: 'Found', versions: [{ version: '1.0.0' }] });
  t.deepEqual(await ask(1), good(1));
  for (const id of ['a', 'b', 'c', 'd', 'e']) {
    up.upstream.on(`/flat/${id}/index.json`, answer(500));
    await index(id);
  }
  t.deepEqual(await ask(1), [502]);
  t.is((await feed.json('/search?q=found')).totalHits, 1);
  clock.now += 1000;
  t.deepEqual(await ask(1), good(1));
  up.upstream.on('/query', answer(500));
  for (let each = 0; each < 8; each += 1) await feed.json(`/search?q=word${each}`);
  const asked = up.asked.filter((path) => path === '/query').length;
  await feed.json('/search?q=another');
  t.is(up.asked.filter((path) => path === '/query').length, asked, 'the search is paused');
  t.deepEqual(await ask(20), good(20));
});

test('a repository that fails for each of its tags and is requested repeatedly fails alone', async (t) => {
  const { upstream, server, get } = await mirroredRegistry(t);
  let tag = 0;
  const broken = async () => {
    tag += 1;
    upstream.on(`/v2/bad/app/manifests/${tag}`, answer(500));
    t.is(await statusOf(get(`bad/app/manifests/${tag}`)), 502);
  };
  let ended = false;
  const readers = Array.from({ length: 5 }, () => again(() => ended, broken));
  for (let index = 0; index < 60; index += 1) {
    upstream.image(`team/app${index}`, 'v1');
    t.is((await get(`team/app${index}/manifests/v1`)).status, 200);
    // Long enough for the readers to fail in between.
    if (index % 10 === 0) await until(() => tag > index / 2);
  }
  ended = true;
  await Promise.all(readers);
  t.true(tag > 20);
  t.is(firstUpstream(server).unavailable(), undefined);
});

test('one bad tag does not stop the others of its repository', async (t) => {
  const { upstream, get } = await mirroredRegistry(t);
  upstream.image('team/app', 'good');
  upstream.on('/v2/team/app/manifests/bad', answer(500));
  t.deepEqual(await errorOf(await get('team/app/manifests/bad')), [502, 'UNAVAILABLE']);
  const refused = await get('team/app/manifests/bad');
  t.is(refused.headers.get('retry-after'), '1');
  const { errors } = (await refused.json()) as { errors: [{ message: string }] };
  t.regex(errors[0].message, /up\.test failed a moment ago for the same request: it answered 500/);
  t.is(upstream.count('/v2/team/app/manifests/bad'), 3);
  t.is((await get('team/app/manifests/good')).status, 200);
});

/** A registry that requires a token from `realm` for each request. */
function guard(upstream: UpstreamRegistry, name: string, realm: URL, inside: Behaviour): void {
  const challenge = `Bearer realm="${realm.href}",service="registry",scope="repository:${name}:pull"`;
  for (const tag of ['1', '2', '3', '4']) {
    upstream.on(`/v2/${name}/manifests/${tag}`, (request, response) => {
      const isGranted = request.headers.authorization === 'Bearer one';
      (isGranted ? inside : answer(401, { 'www-authenticate': challenge }))(request, response);
    });
  }
}

test('a token context that fails stops its repository alone, and is not repeated for each tag', async (t) => {
  const { upstream, get, clock } = await mirroredRegistry(t);
  const realm = await startFaultyUpstream(t);
  const { manifest } = upstream.image('team/app', 'v1');
  const inside = answer(200, { 'content-type': manifest.mediaType }, manifest.bytes);
  for (const name of ['bad/app', 'team/one', 'team/two']) guard(upstream, name, new URL('/token', realm.url), inside);
  realm.on('/token', (request, response) => {
    const isBad = request.url!.includes('bad');
    (isBad ? answer(500) : answer(200, {}, '{"token":"one","expires_in":300}'))(request, response);
  });
  const exchanges = () => realm.asked.filter(({ path }) => path.includes('bad')).length;
  t.deepEqual(await errorOf(await get('bad/app/manifests/1')), [502, 'UNAVAILABLE']);
  t.is(exchanges(), 3);
  for (const tag of ['2', '3']) {
    const response = await get(`bad/app/manifests/${tag}`);
    t.is(response.headers.get('retry-after'), '1');
    t.deepEqual(await errorOf(response), [502, 'UNAVAILABLE']);
  }
  t.is(exchanges(), 3);
  for (const name of ['team/one', 'team/two']) t.is((await get(`${name}/manifests/1`)).status, 200);
  clock.now += 1000;
  await get('bad/app/manifests/4');
  t.is(exchanges(), 6);
  realm.unplug();
  t.is((await get('team/one/manifests/2')).status, 200, 'with the token at hand');
  await get('bad/app/manifests/3');
  t.is((await get('team/two/manifests/2')).status, 200, 'a realm elsewhere is not the upstream');
});

test('a storage host without a connection stops its blobs, and the upstream only if nothing else succeeds', async (t) => {
  const { upstream, get } = await mirroredRegistry(t);
  const storage = await startFaultyUpstream(t);
  await storage.stop();
  const names = ['a', 'b', 'c', 'd', 'e', 'f'];
  const layers = names.map((name) => {
    const { layer } = upstream.image(`team/${name}`, 'v1');
    upstream.on(`/v2/team/${name}/blobs/${layer.digest}`, answer(307, { location: storage.url.href }));
    return layer.digest;
  });
  for (const [index, name] of names.entries()) {
    t.is((await get(`team/${name}/manifests/v1`)).status, 200);
    t.deepEqual(await errorOf(await get(`team/${name}/blobs/${layers[index]}`)), [502, 'UNAVAILABLE']);
  }
  upstream.image('team/g', 'v1');
  t.is((await get('team/g/manifests/v1')).status, 200);
  for (const name of names.slice(0, 5)) {
    const { layer } = upstream.image(`team/${name}`);
    upstream.on(`/v2/team/${name}/blobs/${layer.digest}`, answer(307, { location: storage.url.href }));
    t.deepEqual(await errorOf(await get(`team/${name}/blobs/${layer.digest}`)), [502, 'UNAVAILABLE']);
  }
  upstream.image('team/h', 'v1');
  t.deepEqual(await errorOf(await get('team/h/manifests/v1')), [502, 'UNAVAILABLE']);
});

test('an upstream that refuses connections is paused at once, and requested again after the pause', async (t) => {
  // Below the system's ephemeral ports, so that no other server gets this port meanwhile.
  const port = randomInt(20_000, 30_000);
  const gone = await startUpstreamRegistry(t, { port });
  const server = await startTestServer(t, { upstreams: [gone.settings('up.test')] });
  const clock = server.clock as TestServer['clock'] & { now: number };
  clock.now = Date.now();
  const app = new TestRepository(server, 'up.test/team/app');
  const messageOf = async (path: string) => {
    const { errors } = (await (await app.fetch(path)).json()) as { errors: [{ message: string }] };
    return errors[0].message;
  };
  await gone.stop();
  t.regex(await messageOf('manifests/v1'), /up\.test cannot be reached \(ECONNREFUSED\)/);
  t.regex(await messageOf('manifests/v2'), /failed a moment ago: it cannot be reached/);
  clock.now += 1000;
  t.regex(await messageOf('manifests/v1'), /up\.test cannot be reached \(ECONNREFUSED\)/);
  t.is((await app.fetch('manifests/v1')).headers.get('retry-after'), '2');
  const back = await startUpstreamRegistry(t, { port });
  const { manifest } = back.image('team/app', 'v1');
  clock.now += 2000;
  t.is(await (await app.fetch('manifests/v1')).text(), manifest.bytes, 'what failed to connect may be the probe');
});

/** Answers, and then sends bytes without end, just fast enough that the body is not cut. */
function trickle(t: ExecutionContext): Behaviour {
  const timers = new Set<NodeJS.Timeout>();
  t.teardown(() => timers.forEach(clearInterval));
  return (_request, response) => {
    response.writeHead(200, { 'content-length': 4_000_000 });
    response.write('x'.repeat(100_000));
    const timer = setInterval(() => response.write('x'.repeat(3000)), 100);
    timers.add(timer);
    response.once('close', () => clearInterval(timer));
  };
}

test.serial(
  'a repository with endless bodies takes its share of the connections; when all are in use, requests fail in time',
  async (t) => {
    const { upstream, server, get } = await mirroredRegistry(t, { timeout: '15s' });
    const endless = trickle(t);
    const leaving = new AbortController();
    t.teardown(() => leaving.abort());
    const hang = (name: string, count: number) => {
      for (let index = 0; index < count; index += 1) {
        upstream.on(`/v2/${name}/manifests/${index}`, endless);
        void get(`${name}/manifests/${index}`, { signal: leaving.signal }).catch(() => undefined);
      }
    };
    const hanging = () => upstream.asked.filter(({ path }) => path.includes('/hanging')).length;
    hang('hanging/one', 300);
    await until(() => hanging() === 64);
    upstream.image('team/app', 'v1');
    t.is((await get('team/app/manifests/v1')).status, 200);
    for (const name of ['hanging/two', 'hanging/three', 'hanging/four']) hang(name, 64);
    await until(() => hanging() >= 256);

    upstream.image('team/other', 'v1');
    const started = performance.now();
    const response = await get('team/other/manifests/v1');
    const took = performance.now() - started;
    t.is(response.status, 504);
    t.is(response.headers.get('retry-after'), '1');
    const { errors } = (await response.json()) as { errors: [{ message: string }] };
    t.regex(errors[0].message, /The upstream up\.test got no request: all connections to it are in use/);
    t.true(took > 14_900 && took < 60_000, `${took}`);
    t.is(upstream.count('/v2/team/other/manifests/v1'), 0);
    t.is(firstUpstream(server).unavailable(), undefined, 'that is no failure of the upstream');
    t.is((await get('team/app/manifests/v1')).status, 200, 'what is stored needs no connection');
  },
);

test('a Retry-After that cannot be read is ignored', async (t) => {
  const { up, index, ask } = await mirroredFeed(t);
  const odd = ['', '-1', 'NaN', '1e309', '99999999999999999999999', randomBytes(20).toString('hex')];
  for (const [number, value] of odd.entries()) {
    up.upstream.on(`/flat/bad${number}/index.json`, answer(503, { 'retry-after': value }));
    const response = await index(`bad${number}`);
    t.is(response.status, 502);
    const seconds = Number(response.headers.get('retry-after'));
    t.true(seconds >= 1 && seconds <= 300, `${value}: ${seconds}`);
    t.deepEqual(await ask(1), good(1));
  }
});
