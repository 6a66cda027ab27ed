import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import test, { type ExecutionContext } from 'ava';
import { answer, endless, serve } from '../../support/upstreams/faulty-upstream.ts';
import { TestFeed } from '../../support/feed.ts';
import { makeNupkg, makeNuspec, zip } from '../../support/builders/nupkg.ts';
import type { TestServer } from '../../support/server.ts';
import { json, startMirrorOf, UpstreamFeed } from '../../support/upstreams/upstream-feed.ts';
import { writeZip } from '../../support/builders/zip.ts';
import { databaseOf } from '../../support/inside.ts';
import { scrape } from '../../support/metrics.ts';

// In a process of its own: it waits before it declares its tests.

// Upstreams that fail, send wrong content or cannot be reached: nothing wrong is served or stored, and a failure is
// never "not found".

interface Setup {
  up: UpstreamFeed;
  server: TestServer;
  feed: TestFeed;
}

async function mirrored(
  t: ExecutionContext,
  upstream: Record<string, unknown> = {},
  settings: Record<string, unknown> = {},
): Promise<Setup> {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'A', versions: [{ version: '1.0.0' }] });
  const server = await startMirrorOf(t, [up.as('up.test', { timeout: '60s', ...upstream })], settings);
  server.clock.now = Date.now();
  return { up, server, feed: new TestFeed(server) };
}

const nupkgPath = '/package/a/1.0.0/a.1.0.0.nupkg';
const theirs = '/flat/a/1.0.0/a.1.0.0.nupkg';

/** The body, the status if it is not 200, or `cut` if the body is not complete. */
async function read(feed: TestFeed, path: string): Promise<Buffer | number | 'cut'> {
  try {
    const response = await feed.fetch(path);
    const bytes = Buffer.from(await response.arrayBuffer());
    return response.status === 200 ? bytes : response.status;
  } catch {
    return 'cut';
  }
}

async function sizeOfStorage(server: TestServer): Promise<number> {
  return (await databaseOf(server).get<{ n: number }>(
    `SELECT COUNT(*) AS n FROM mirror_entries WHERE kind IN ('nupkg', 'nuspec')`,
  ))!.n;
}

const good = await makeNupkg({ id: 'A', version: '1.0.0', payloadBytes: 300_000 });
const gzipped = { 'content-encoding': 'gzip' };
const wrong: [what: string, bytes: Buffer | string, headers?: Record<string, string>][] = [
  ['of another id', await makeNupkg({ id: 'B', version: '1.0.0' })],
  ['of another version', await makeNupkg({ id: 'A', version: '1.0.1' })],
  ['a web page', '<!doctype html><p>Sign in</p>', { 'content-type': 'text/html' }],
  ['a zip without a nuspec', await zip({ 'a.txt': 'text' })],
  ['a zip with two nuspecs', await zip({ 'a.nuspec': makeNuspec({ id: 'A' }), 'b.nuspec': makeNuspec({ id: 'A' }) })],
  [
    'a zip whose names lead out of its folder',
    writeZip([{ name: '..\\a.txt' }, { name: 'a.nuspec', data: makeNuspec({ id: 'A' }) }]),
  ],
  ['the first half of a zip', good.subarray(0, good.length / 2)],
  ['empty', ''],
];

for (const [what, bytes, headers] of wrong) {
  test(`a nupkg that is ${what} never completes at a client and is not stored`, async (t) => {
    const { up, server, feed } = await mirrored(t);
    up.upstream.on(theirs, answer(200, headers, bytes), serve(good));
    t.false(Buffer.isBuffer(await read(feed, nupkgPath)));
    t.is(await sizeOfStorage(server), 0);
    if (bytes.length > 0) t.true(server.lines.some((line) => line.includes('must not be stored')));
    // The upstream was reachable, so the next request may ask it at once.
    t.deepEqual(await read(feed, nupkgPath), good);
  });
}

test('a nupkg that is cut without a Content-Length is not treated as complete', async (t) => {
  const { up, server, feed } = await mirrored(t);
  up.upstream.on(theirs, serve(good, { length: false, until: 200_000, how: 'end' }));
  t.false(Buffer.isBuffer(await read(feed, nupkgPath)));
  t.is(await sizeOfStorage(server), 0);
});

test('a nupkg that an upstream compresses without request is served uncompressed', async (t) => {
  const { up, feed } = await mirrored(t);
  up.upstream.on(theirs, answer(200, gzipped, gzipSync(good)));
  t.deepEqual(await read(feed, nupkgPath), good);
  const flat = gzipSync(JSON.stringify({ versions: ['1.0.0'] }));
  up.upstream.on('/flat/a/index.json', answer(200, gzipped, flat));
  t.deepEqual(await feed.json('/package/a/index.json'), { versions: ['1.0.0'] });
});

test('a mirrored nupkg of old tools, with backslashes in its names, is served; a push of it is refused', async (t) => {
  const { up, feed } = await mirrored(t);
  const nuspec = makeNuspec({ id: 'A', version: '1.0.0', readmePath: 'docs\\README.md' });
  const old = writeZip([
    { name: 'a.nuspec', data: nuspec },
    { name: 'lib\\net20\\a.dll', data: 'code' },
    { name: 'docs\\README.md', data: '# Old' },
  ]);
  up.upstream.on(theirs, serve(old));
  t.deepEqual(await read(feed, nupkgPath), old);
  t.is(String(await read(feed, '/package/a/1.0.0/a.nuspec')), nuspec);
  t.is(String(await read(feed, '/package/a/1.0.0/readme')), '# Old');
  t.is((await feed.push(old)).status, 400);
});

test('a mirrored package is served although its icon or readme is missing, or clients ignore parts of its nuspec', async (t) => {
  const { up, feed } = await mirrored(t);
  const nuspec = makeNuspec({
    id: 'A',
    version: '1.0.0',
    iconPath: 'none.png',
    readmePath: 'none.md',
    namespace: 'http://example.org/nuspec.xsd',
    dependencies: [{ id: 'B', version: '$version$' }, { id: 'not an id' }],
  });
  const odd = await makeNupkg({ id: 'A', nuspec });
  up.upstream.on(theirs, serve(odd));
  up.upstream.on('/flat/a/1.0.0/a.nuspec', answer(200, {}, nuspec));
  t.is(String(await read(feed, '/package/a/1.0.0/a.nuspec')), nuspec);
  t.deepEqual(await read(feed, nupkgPath), odd);
  t.is(await read(feed, '/package/a/1.0.0/icon'), 404);
  t.is((await feed.push(odd)).status, 400);
});

function sha512(bytes: Buffer): string {
  return createHash('sha512').update(bytes).digest('base64');
}

test('a nupkg that does not match the hash in the stored registration is refused, without a further request', async (t) => {
  const { up, server, feed } = await mirrored(t);
  const version = (nupkg: Buffer) => ({
    version: '1.0.0',
    nupkg,
    entry: { packageHash: sha512(good), packageHashAlgorithm: 'SHA512' },
  });
  const other = await makeNupkg({ id: 'A', version: '1.0.0' });
  for (const pageSize of [undefined, 1]) {
    await up.offer({ id: 'A', versions: [version(other)], ...(pageSize && { pageSize }) });
    const index = await feed.json('/registration-gz-semver2/a/index.json');
    if (pageSize) await feed.json(index.items[0]['@id']);
    const asked = up.asked.length;
    t.false(Buffer.isBuffer(await read(feed, nupkgPath)));
    t.true(server.lines.some((line) => line.includes('SHA-512')));
    t.is(up.asked.length, asked + 1);
    server.clock.now! += 3_600_000;
  }
  await up.offer({ id: 'A', versions: [version(good)] });
  t.deepEqual(await read(feed, nupkgPath), good);
});

test('without a stored registration the hash is not requested', async (t) => {
  const { up, feed } = await mirrored(t);
  up.upstream.on(theirs, serve(good));
  t.deepEqual(await read(feed, nupkgPath), good);
  t.deepEqual(up.asked, [theirs]);
});

test('a document without end is aborted', async (t) => {
  const { up, server, feed } = await mirrored(t, {}, { limits: { nupkg: '1MiB' } });
  const sent = { bytes: 0 };
  up.upstream.on('/flat/a/index.json', endless(sent, { 'content-type': 'application/json' }));
  t.is(await read(feed, '/package/a/index.json'), 502);
  t.true(sent.bytes < 200 * 2 ** 20);
  sent.bytes = 0;
  up.upstream.on(theirs, endless(sent));
  t.is(await read(feed, nupkgPath), 'cut');
  t.true(sent.bytes < 100 * 2 ** 20);
  t.is(await sizeOfStorage(server), 0);
});

for (const [what, body] of [
  ['a web page', '<html>Sign in</html>'],
  ['another document', '{"error":"no"}'],
  ['a list', '[]'],
  ['a cut document', '{"versions":["1.0.0"'],
  ['nothing', ''],
] as const) {
  test(`a document that is ${what} is an upstream failure, and the stored document is served`, async (t) => {
    const { up, server, feed } = await mirrored(t, { freshFor: '1m' });
    for (const path of ['/index.json', '/flat/a/index.json', '/registration/a/index.json']) {
      up.upstream.on(path, answer(200, { 'content-type': 'text/html' }, body));
    }
    t.is(await read(feed, '/package/a/index.json'), 502);
    up.announce();
    t.is(await read(feed, '/package/a/index.json'), 502);
    t.is(await read(feed, '/registration/a/index.json'), 502);
    await up.offer({ id: 'A', versions: [{ version: '1.0.0' }] });
    t.deepEqual(await feed.json('/package/a/index.json'), { versions: ['1.0.0'] });
    up.upstream.on('/flat/a/index.json', answer(200, {}, body));
    server.clock.now! += 61_000;
    const stale = await feed.fetch('/package/a/index.json');
    t.is(stale.headers.get('cache-status'), 'entrepot; hit; detail=stale');
    t.deepEqual(await stale.json(), { versions: ['1.0.0'] });
  });
}

test('an invalid address in a document of the upstream is an upstream failure', async (t) => {
  const { up, server, feed } = await mirrored(t);
  const page = { '@id': 'https://[', count: 1, lower: '1.0.0', upper: '1.0.0' };
  up.upstream.on('/registration/a/index.json', json({ count: 1, items: [page] }));
  t.is(await read(feed, '/registration/a/1.0.0.json'), 502);
  up.upstream.on(
    '/vulnerabilities/index.json',
    json([{ '@name': 'x', '@id': 'file:///etc/passwd', '@updated': '2024-01-01T00:00:00Z' }]),
  );
  t.is(await read(feed, '/vulnerabilities/up.test/x.json'), 502);
  t.false(server.lines.some((line) => JSON.parse(line).err !== undefined));
});

test('"not found" is cached for a while, and then requested again', async (t) => {
  const { up, server, feed } = await mirrored(t, { negativeFor: '1m' });
  const paths = ['/package/new/index.json', '/package/new/1.0.0/new.1.0.0.nupkg', '/registration/new/index.json'];
  for (const path of paths) t.is(await read(feed, path), 404);
  await up.offer({ id: 'New', versions: [{ version: '1.0.0' }] });
  server.clock.now! += 59_000;
  const asked = up.asked.length;
  for (const path of paths) t.is(await read(feed, path), 404);
  t.is(up.asked.length, asked);
  server.clock.now! += 2000;
  for (const path of paths) t.true(Buffer.isBuffer(await read(feed, path)), path);
});

test('the error names the upstream that failed, and retries end within the time limit', async (t) => {
  const { up, server, feed } = await mirrored(t);
  up.upstream.on('/flat/a/index.json', answer(429, { 'retry-after': '120' }));
  const response = await feed.fetch('/package/a/index.json');
  t.is(response.status, 502);
  t.is(response.headers.get('retry-after'), '120');
  t.is(response.headers.get('content-type'), 'application/problem+json');
  t.regex(response.statusText, /upstream up\.test/);
  t.like(await response.json(), { status: 502, code: 'UpstreamUnavailable', upstream: 'up.test', retryAfter: 120 });
  const asked = up.upstream.asked.length;
  server.clock.now! += 20_000;
  const soon = await feed.fetch('/package/b/index.json');
  t.deepEqual([soon.status, soon.headers.get('retry-after')], [502, '100']);
  t.is(up.upstream.asked.length, asked);
});

test('an upstream that does not answer is 504', async (t) => {
  const { up, feed } = await mirrored(t, { timeout: '2s' });
  up.upstream.on('/flat/a/index.json', () => undefined);
  const response = await feed.fetch('/package/a/index.json');
  t.is(response.status, 504);
  t.regex(response.statusText, /up\.test did not answer in time/);
});

test('the server starts and serves hosted packages while every upstream is unreachable', async (t) => {
  // No process of a test can listen on a port below 1024.
  const dead = 'http://127.0.0.1:1/v3/index.json';
  const upstreams = ['one.test', 'two.test'].map((name) => ({
    name,
    kind: 'nuget',
    url: dead,
    allowPrivateNetwork: true,
  }));
  const server = await startMirrorOf(t, [...upstreams, { name: 'refused.test', kind: 'nuget', url: dead }]);
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Hosted', version: '1.0.0' });
  t.deepEqual(await feed.json('/package/hosted/index.json'), { versions: ['1.0.0'] });
  t.is((await feed.json('/search?q=hosted')).totalHits, 1);
  t.deepEqual((await feed.json('/autocomplete?q=hos')).data, ['Hosted']);
  for (const path of ['/package/a/index.json', nupkgPath, '/registration/a/index.json', '/autocomplete?id=a']) {
    const response = await feed.fetch(path);
    t.is(response.status, 502, path);
    t.regex(response.statusText, /(one|two)\.test/, path);
  }
});

test('an upstream that fails does not take the vulnerability data of the others from clients', async (t) => {
  const [up, down] = [await UpstreamFeed.start(t), await UpstreamFeed.start(t)];
  for (const each of [up, down]) {
    const address = `${each.url}/vulnerabilities/x/base.json`;
    each.upstream.on(
      '/vulnerabilities/index.json',
      json([{ '@name': 'base', '@id': address, '@updated': '2024-05-06T07:08:09Z' }]),
    );
  }
  const times = { freshFor: '1m', staleFor: '1h' };
  const server = await startMirrorOf(t, [up.as('up.test', times), down.as('down.test', times)]);
  server.clock.now = Date.now();
  const feed = new TestFeed(server);
  const names = async () => {
    const index = (await feed.json('/vulnerabilities/index.json')) as unknown as { '@id': string }[];
    return index.map((each) => each['@id'].split('/vulnerabilities/')[1]);
  };
  const stateOf = async (id: string) =>
    (await (await server.fetch(`/v1/upstreams/${id}`)).json()) as Record<string, unknown>;
  t.like(await stateOf('down.test'), { state: 'unused', last_failure: null, failures: 0 });

  down.upstream.on('/index.json', answer(401));
  t.deepEqual(await names(), ['base.json', 'up.test/base.json']);
  t.like(await stateOf('up.test'), { state: 'working', failures: 0, audits_without_data: 0 });
  t.like(await stateOf('down.test'), {
    state: 'refused',
    failures: 1,
    audits_without_data: 1,
    last_success_at: null,
    last_failure: {
      time: new Date(server.clock.now).toISOString(),
      subject: 'service-index',
      reason: 'refused access; check its credentials',
    },
  });
  const metrics = await scrape(server);
  t.is(metrics.value('entrepot_upstream_audits_without_data_total', { upstream: 'down.test' }), 1);
  t.is(metrics.value('entrepot_upstream_audits_without_data_total', { upstream: 'up.test' }), 0);

  down.announce();
  t.deepEqual(await names(), ['base.json', 'up.test/base.json', 'down.test/base.json']);
  t.like(await stateOf('down.test'), { state: 'working', failures: 0 });
  down.upstream.on('/index.json', answer(401));
  down.upstream.on('/vulnerabilities/index.json', answer(401));
  server.clock.now += 30 * 60_000;
  t.deepEqual(await names(), ['base.json', 'up.test/base.json', 'down.test/base.json'], 'as long as staleFor says');
  t.like(await stateOf('down.test'), { audits_without_data: 1 });
  server.clock.now += 60 * 60_000;
  const late = await feed.fetch('/vulnerabilities/index.json');
  t.is(late.status, 502, 'data that was there is not left out silently');
  t.regex(late.statusText, /down\.test/);
});

for (const [what, upstream, settings] of [
  ['globally', {}, { offline: true }],
  ['for the upstream', { mode: 'offline' }, {}],
] as const) {
  test(`offline ${what}: stored content is served, and no upstream is asked for the rest`, async (t) => {
    const { up, server, feed } = await mirrored(t, { staleFor: '1s', freshFor: '1s' });
    const paths = ['/package/a/index.json', nupkgPath, '/package/a/1.0.0/a.nuspec', '/registration/a/index.json'];
    for (const path of paths) t.true(Buffer.isBuffer(await read(feed, path)), path);
    await server.close();
    const asked = up.upstream.asked.length;
    const again = await startMirrorOf(t, [up.as('up.test', { staleFor: '1s', freshFor: '1s', ...upstream })], {
      ...settings,
      data: server.data,
    });
    again.clock.now = Date.now() + 30 * 86_400_000;
    const late = new TestFeed(again);
    for (const path of paths) t.true(Buffer.isBuffer(await read(late, path)), path);
    for (const path of [
      '/package/b/index.json',
      '/package/a/2.0.0/a.2.0.0.nupkg',
      '/registration/b/1.0.0.json',
      '/vulnerabilities/index.json',
    ]) {
      const response = await late.fetch(path);
      t.is(response.status, 504, path);
      t.regex(response.statusText, /up\.test is set to offline/);
      t.like(await response.json(), { status: 504, offline: true });
    }
    t.deepEqual(await late.json('/search?q=a'), { totalHits: 0, data: [] });
    t.deepEqual((await late.json('/autocomplete?q=a')).data, []);
    t.deepEqual((await late.json('/autocomplete?id=a')).data, ['1.0.0']);
    t.is(up.upstream.asked.length, asked);
  });
}
