import { randomBytes } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import test from 'ava';
import { answer, held, serve, type Behaviour } from '../../support/upstreams/faulty-upstream.ts';
import { digestOf, errorOf, ociManifest, TestRepository } from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';
import { startUpstreamRegistry } from '../../support/upstreams/upstream-registry.ts';
import { rowsOf, tokenOf } from '../../support/inside.ts';
import { until } from '../../support/until.ts';

const hour = 3_600_000;
const cacheOf = (response: Response) => response.headers.get('cache-status');
const digestAt = (response: Response) => response.headers.get('docker-content-digest');

/** Answers without whatever `token` gives, with a challenge. */
function guarded(realm: string, token: string, inside: Behaviour, error = ''): Behaviour {
  return (request, response) => {
    if (request.headers.authorization === `Bearer ${token}`) return inside(request, response);
    const challenge = `Bearer realm="${realm}",service="registry",scope="repository:team/app:pull"${error}`;
    return answer(401, { 'www-authenticate': challenge }, '{"errors":[{"code":"UNAUTHORIZED"}]}')(request, response);
  };
}

test('a tag that moves is fetched for all who wait, also if the first one may fetch no more or has left', async (t) => {
  for (const leaves of [false, true]) {
    const upstream = await startUpstreamRegistry(t);
    const server = await startTestServer(t, {
      upstreams: [upstream.settings('up.test', { freshFor: '1m' })],
      limits: { delay: '0s', missesPerMinute: 1 },
    });
    server.clock.now = Date.now();
    const other = await tokenOf(server, ['read']);
    const path = '/v2/up.test/team/app/manifests/v1';
    upstream.image('team/app', 'v1');
    t.is((await server.fetch(path, { token: other })).status, 200);
    const moved = upstream.image('team/app').manifest;
    const head = held(answer(200, { 'docker-content-digest': moved.digest, 'content-type': ociManifest }));
    upstream.on('/v2/team/app/manifests/v1', (request, response) => {
      if (request.method === 'HEAD') head.behaviour(request, response);
      else
        answer(
          200,
          { 'docker-content-digest': moved.digest, 'content-type': ociManifest },
          moved.bytes,
        )(request, response);
    });
    server.clock.now += hour;
    const leaving = new AbortController();
    const first = server.fetch(path, { signal: leaving.signal }).then(digestAt, () => 'left');
    await until(() => upstream.requests().at(-1) === 'HEAD /v2/team/app/manifests/v1');
    const { counts } = server.installation.core.mirror;
    const second = server.fetch(path, { token: other }).then(digestAt);
    await until(() => counts.joined === 1);
    if (leaves) {
      leaving.abort();
      t.is(await first, 'left');
      await until(() => server.lines.some((line) => line.includes('"complete":false')));
    }
    head.release();
    t.is(await second, moved.digest);
    if (!leaves) t.is(await first, moved.digest);
  }
});

test('the error for a failing upstream has its name, and is never "not found"', async (t) => {
  const cases: [string, Behaviour | undefined, number][] = [
    ['reset', (_request, response) => void response.socket?.resetAndDestroy(), 502],
    ['silent', () => undefined, 504],
    ['broken', answer(503), 502],
    ['away', undefined, 502],
    ['page', answer(200, { 'content-type': 'text/html' }, '<html></html>'), 502],
    ['odd', answer(418), 502],
    ['busy', answer(429, { 'retry-after': '120' }), 502],
    ['loop', (request, response) => answer(302, { location: request.url! })(request, response), 502],
    ['metadata', answer(302, { location: 'http://169.254.169.254/latest' }), 502],
  ];
  await Promise.all(
    cases.map(async ([name, behaviour, status]) => {
      const upstream = await startUpstreamRegistry(t);
      for (const path of [`manifests/v1`, `blobs/${digestOf('x')}`, 'tags/list']) {
        if (behaviour) upstream.on(`/v2/team/app/${path}`, behaviour);
      }
      if (!behaviour) upstream.unplug();
      const settings = upstream.settings(`${name}.test`, { timeout: name === 'silent' ? '2s' : '60s' });
      const server = await startTestServer(t, { upstreams: [settings] });
      const app = new TestRepository(server, `${name}.test/team/app`);
      for (const path of ['manifests/v1', `manifests/${digestOf('x')}`, `blobs/${digestOf('x')}`, 'tags/list']) {
        if (path.startsWith('manifests/sha256') && behaviour && name !== 'busy') continue;
        const response = await app.fetch(path);
        const body = (await response.json()) as { errors: [{ code: string; message: string }] };
        // A second request during the pause is no time-out any more.
        t.true([status, 502].includes(response.status), `${name} ${path} ${response.status}`);
        t.is(body.errors[0].code, 'UNAVAILABLE', name);
        t.true(body.errors[0].message.includes(`${name}.test`), body.errors[0].message);
        if (path === 'manifests/v1') t.is(response.status, status, name);
        if (name === 'busy') t.true(Number(response.headers.get('retry-after')) > 60, 'kept');
      }
      if (name === 'busy') t.is(upstream.asked.length, 1, 'then paused');
    }),
  );
});

test('a denial of an upstream is 403 with its name: not 404, and not a status to retry', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const realm = new URL('/token', upstream.url).href;
  upstream.on('/token', answer(200, {}, '{"token":"one"}'));
  // As Docker Hub answers for a repository that does not exist.
  upstream.on('/v2/team/app/manifests/v1', guarded(realm, 'never', answer(200), ',error="insufficient_scope"'));
  upstream.on('/v2/team/app/manifests/v2', guarded(realm, 'one', answer(403)));
  upstream.on('/v2/team/app/manifests/v3', guarded(realm, 'never', answer(200)));
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { freshFor: '1h' })] });
  const app = new TestRepository(server, 'up.test/team/app');
  for (const tag of ['v1', 'v2']) {
    const response = await app.fetch(`manifests/${tag}`);
    t.is(response.headers.get('www-authenticate'), null, 'the client’s own credentials are good');
    const { errors } = (await response.clone().json()) as { errors: [{ message: string }] };
    t.regex(errors[0].message, /up\.test denied access/);
    t.deepEqual(await errorOf(response), [403, 'DENIED']);
  }
  t.deepEqual(await errorOf(await app.fetch('manifests/v3')), [502, 'UNAVAILABLE'], 'a 401 without end');
  t.is(upstream.count('/v2/team/app/manifests/v3'), 2);

  // After a later denial, pulled content is still served.
  const { manifest } = upstream.image('team/app', 'v4');
  await app.fetch('manifests/v4');
  upstream.on('/v2/team/app/manifests/v4', answer(403));
  server.clock.now = Date.now() + 2 * hour;
  const stale = await app.fetch('manifests/v4');
  t.is(digestAt(stale), manifest.digest);
  t.is(cacheOf(stale), 'entrepot; hit; detail=stale');
});

test('only the upstream’s credentials are used for tokens, and the other host of its blobs gets none', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const storage = await startUpstreamRegistry(t);
  const { manifest, layer } = upstream.image('team/app', 'v1');
  const realm = new URL('/token', upstream.url).href;
  const inside = [
    answer(200, { 'content-type': manifest.mediaType, 'docker-content-digest': manifest.digest }, manifest.bytes),
    answer(307, { location: new URL('/elsewhere?signature=1', storage.url).href }),
  ] as const;
  upstream.on('/token', answer(200, {}, '{"access_token":"one","expires_in":300}'));
  upstream.on('/v2/team/app/manifests/v1', guarded(realm, 'one', inside[0]));
  upstream.on(`/v2/team/app/blobs/${layer.digest}`, guarded(realm, 'one', inside[1]));
  storage.on('/elsewhere', serve(layer.bytes));
  const auth = { username: 'puller', password: 'of the upstream' };
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { auth })] });
  const app = new TestRepository(server, 'up.test/team/app');
  t.is(await (await app.fetch('manifests/v1')).text(), manifest.bytes);
  const blob = await app.fetch(`blobs/${layer.digest}`);
  t.deepEqual(Buffer.from(await blob.arrayBuffer()), layer.bytes);
  const [challenged, context, granted, ...more] = upstream.asked;
  t.is(challenged!.headers.authorization, undefined);
  t.is(context!.path, '/token?service=registry&scope=repository%3Ateam%2Fapp%3Apull');
  const basic = Buffer.from(`${auth.username}:${auth.password}`).toString('base64');
  t.is(context!.headers.authorization, `Basic ${basic}`);
  t.deepEqual(
    [granted, ...more].map((each) => each!.headers.authorization),
    ['Bearer one', 'Bearer one'],
  );
  t.is(storage.asked[0]!.path, '/elsewhere?signature=1');
  t.is(storage.asked[0]!.headers.authorization, undefined);
  const sent = JSON.stringify([...upstream.asked, ...storage.asked]);
  t.false(sent.includes(server.token), 'nor any client’s');
});

test('a realm on a foreign host gets no credentials', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const foreign = await startUpstreamRegistry(t);
  const { manifest } = upstream.image('team/app', 'v1');
  const inside = answer(200, { 'content-type': manifest.mediaType }, manifest.bytes);
  upstream.on('/v2/team/app/manifests/v1', guarded(new URL('/token', foreign.url).href, 'one', inside));
  foreign.on('/token', answer(200, {}, '{"token":"one"}'));
  const auth = { username: 'puller', password: 'secret' };
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { auth })] });
  t.is((await server.fetch('/v2/up.test/team/app/manifests/v1')).status, 200);
  t.is(foreign.asked[0]!.headers.authorization, undefined);
});

test('a cut or wrong blob completes at no client and is not stored', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const bytes = randomBytes(1_000_000);
  const digest = digestOf(bytes);
  const path = `/v2/team/app/blobs/${digest}`;
  const wrong = Buffer.from(bytes);
  wrong[999_999]! ^= 1;
  const whole = serve(bytes);
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { timeout: '60s' })] });
  const app = new TestRepository(server, 'up.test/team/app');
  for (const behaviour of [
    serve(wrong),
    serve(wrong, { length: false }),
    serve(bytes, { until: 5000, ranges: false }),
  ]) {
    upstream.on(path, behaviour);
    await t.throwsAsync(async () => {
      const response = await app.fetch(`blobs/${digest}`);
      if (response.status !== 200) throw new Error(`${response.status}`);
      await response.arrayBuffer();
    });
    t.is((await rowsOf(server, 'SELECT digest FROM blobs')).length, 0);
    server.clock.now = (server.clock.now ?? Date.now()) + hour;
  }
  t.true(server.lines.some((line) => line.includes('an upstream sent content that must not be stored')));
  // After repeated cuts it is completed by ranges.
  upstream.on(path, serve(bytes, { until: 200_000 }), serve(bytes, { until: 300_000 }), whole);
  const response = await app.fetch(`blobs/${digest}`);
  t.is(response.headers.get('content-length'), '1000000');
  t.is(digestOf(Buffer.from(await response.arrayBuffer())), digest);
  // Without a length, only the digest shows that it is complete.
  const other = randomBytes(300_000);
  upstream.on(`/v2/team/app/blobs/${digestOf(other)}`, serve(other, { length: false }));
  const chunked = await app.fetch(`blobs/${digestOf(other)}`);
  t.is(chunked.headers.get('content-length'), null);
  t.is(digestAt(chunked), digestOf(other));
  t.deepEqual(Buffer.from(await chunked.arrayBuffer()), other);
});

for (const [what, serving] of [
  ['a few bytes', { until: 10 }],
  ['a few bytes without a length', { until: 10, length: false }],
  ['16 KiB', { until: 16_384 }],
] as const) {
  test(`an upstream that closes after ${what} is a 502, because nothing was sent to the client`, async (t) => {
    const upstream = await startUpstreamRegistry(t);
    const bytes = randomBytes(1_000_000);
    const digest = digestOf(bytes);
    for (const how of ['end', 'reset'] as const) {
      upstream.on(`/v2/team/${how}/blobs/${digest}`, serve(bytes, { ...serving, how, ranges: false }));
    }
    const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
    for (const how of ['end', 'reset']) {
      const response = await server.fetch(`/v2/up.test/team/${how}/blobs/${digest}`);
      t.deepEqual(await errorOf(response), [502, 'UNAVAILABLE']);
    }
  });
}

test('without its upstream, also after a restart, pulled content is served, and other content is not "not found"', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { manifest, layer } = upstream.image('team/app', 'v1');
  const settings = { upstreams: [upstream.settings('up.test', { freshFor: '1h', staleFor: '10h', default: true })] };
  const first = await startTestServer(t, settings);
  for (const path of ['manifests/v1', `blobs/${layer.digest}`]) {
    await (await first.fetch(`/v2/team/app/${path}`)).arrayBuffer();
  }
  upstream.unplug();
  await first.close();
  const server = await startTestServer(t, { ...settings, data: first.data });
  const app = new TestRepository(server, 'team/app');
  t.is(cacheOf(await app.fetch('manifests/v1')), 'entrepot; hit');
  server.clock.now = Date.now() + 2 * hour;
  const stale = await app.fetch('manifests/v1');
  t.is(await stale.text(), manifest.bytes);
  t.is(cacheOf(stale), 'entrepot; hit; detail=stale');
  t.is(cacheOf(await app.fetch(`manifests/${manifest.digest}`)), 'entrepot; hit');
  t.is(cacheOf(await app.fetch(`blobs/${layer.digest}`)), 'entrepot; hit');
  t.deepEqual(await errorOf(await app.fetch('manifests/v2')), [502, 'UNAVAILABLE']);
  server.clock.now += 20 * hour;
  t.deepEqual(await errorOf(await app.fetch('manifests/v1')), [502, 'UNAVAILABLE'], 'as stale as it may be');
  const mine = new TestRepository(server, 'mine/app');
  const { digest } = await mine.image('v1');
  t.is(digestAt(await mine.fetch('manifests/v1')), digest, 'what is hosted needs no upstream');
});

test('offline serves stored entries of any age and sends no request', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const { manifest } = upstream.image('team/app', 'v1');
  const online = upstream.settings('up.test', { freshFor: '1m', staleFor: '1m' });
  const first = await startTestServer(t, { upstreams: [online] });
  await first.fetch('/v2/up.test/team/app/manifests/v1');
  await first.close();
  const before = upstream.asked.length;
  for (const settings of [{ offline: true, upstreams: [online] }, { upstreams: [{ ...online, mode: 'offline' }] }]) {
    const server = await startTestServer(t, { ...settings, data: first.data });
    server.clock.now = Date.now() + 1000 * hour;
    const response = await server.fetch('/v2/up.test/team/app/manifests/v1');
    t.is(await response.text(), manifest.bytes);
    t.deepEqual(await errorOf(await server.fetch('/v2/up.test/team/app/manifests/v2')), [502, 'UNAVAILABLE']);
    await server.close();
  }
  t.is(upstream.asked.length, before);
});

test('only the upstream’s answer is "not found", and it is requested again after a while', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test', { negativeFor: '1m' })] });
  const app = new TestRepository(server, 'up.test/team/app');
  const blob = digestOf('later');
  for (let index = 0; index < 3; index += 1) {
    t.deepEqual(await errorOf(await app.fetch('manifests/v1')), [404, 'MANIFEST_UNKNOWN']);
    t.deepEqual(await errorOf(await app.fetch(`blobs/${blob}`)), [404, 'BLOB_UNKNOWN']);
  }
  t.is(upstream.asked.length, 2);
  const { manifest } = upstream.image('team/app', 'v1');
  upstream.blob('team/app', 'later');
  t.is((await app.fetch('manifests/v1')).status, 404);
  server.clock.now = Date.now() + 2 * 60_000;
  t.is(digestAt(await app.fetch('manifests/v1')), manifest.digest);
  t.is(await (await app.fetch(`blobs/${blob}`)).text(), 'later');
});

test('a Docker engine with this mirror and no credentials pulls official images', async (t) => {
  const hub = await startUpstreamRegistry(t);
  const { manifest, layer } = hub.image('library/alpine', '3');
  const server = await startTestServer(t, {
    anonymousRead: true,
    upstreams: [hub.settings('docker.io', { default: true })],
  });
  const probe = await server.fetch('/v2/', { token: null });
  t.is(probe.status, 401);
  const [, realm, service] = /Bearer realm="([^"]+)",service="([^"]+)"/.exec(probe.headers.get('www-authenticate')!)!;
  const scope = 'repository:library/alpine:pull';
  const grant = await fetch(`${realm}?${new URLSearchParams({ service: service!, scope }).toString()}`);
  const { token } = (await grant.json()) as { token: string };
  const get = (path: string, method = 'GET') => server.fetch(`/v2/library/alpine/${path}`, { token, method });
  t.is(digestAt(await get('manifests/3', 'HEAD')), manifest.digest);
  t.is(await (await get(`manifests/${manifest.digest}`)).text(), manifest.bytes);
  t.deepEqual(Buffer.from(await (await get(`blobs/${layer.digest}`)).arrayBuffer()), layer.bytes);
  t.is((await get('blobs/uploads/', 'POST')).status, 401, 'reading is all that is open');
});

test('a blob that an upstream sends with a content coding is 502 with the reason, and no byte of it is sent', async (t) => {
  const upstream = await startUpstreamRegistry(t);
  const server = await startTestServer(t, { upstreams: [upstream.settings('up.test')] });
  const app = new TestRepository(server, 'up.test/team/app');
  const layer = gzipSync(randomBytes(100_000));
  const path = `/v2/team/app/blobs/${digestOf(layer)}`;
  for (const coding of ['gzip', 'x-gzip', 'br', 'zstd']) {
    upstream.on(path, answer(200, { 'content-encoding': coding }, layer));
    server.clock.now = (server.clock.now ?? Date.now()) + hour;
    const response = await app.fetch(`blobs/${digestOf(layer)}`);
    t.is(response.status, 502, coding);
    t.regex(await response.text(), /up\.test .*content coding/, coding);
  }
  t.is(upstream.asked.at(-1)!.headers['accept-encoding'], 'identity');
  upstream.on(path, serve(layer, { headers: { 'content-encoding': 'identity' } }));
  server.clock.now! += hour;
  t.deepEqual(Buffer.from(await (await app.fetch(`blobs/${digestOf(layer)}`)).arrayBuffer()), layer);
});
