import test from 'ava';
import { brotliCompressSync, deflateSync, gzipSync, zstdCompressSync } from 'node:zlib';
import { release } from '../../src/runtime/incoming.ts';
import type { DomainError } from '../../src/runtime/errors.ts';
import { answer, held, serve, startFaultyUpstream, startRawUpstream } from '../support/upstreams/faulty-upstream.ts';
import { openUpstream } from '../support/mirror.ts';
import { until, within } from '../support/until.ts';
import { bytesOfBuffers } from '../support/measures.ts';

// In a process of its own: it measures the process.

async function setUp(t: Parameters<typeof startFaultyUpstream>[0], settings?: Record<string, unknown>) {
  const server = await startFaultyUpstream(t);
  const made = await openUpstream(t, server.url, { ...(settings && { settings }) });
  const get = (path: string) => made.upstream.send({ subject: path, url: new URL(path, server.url) });
  return { server, ...made, get };
}

test.serial('the memory of a body is freed without the garbage collector', async (t) => {
  const { server, get } = await setUp(t);
  const bytes = Buffer.alloc(128 * 2 ** 20);
  server.on('/thing', serve(bytes));
  const { body } = await get('/thing');
  const before = bytesOfBuffers();
  let length = 0;
  let most = 0;
  for await (const chunk of body as AsyncIterable<Buffer>) {
    length += chunk.length;
    release(chunk);
    most = Math.max(most, bytesOfBuffers() - before);
  }
  t.is(length, bytes.length);
  t.true(most < 8 * 2 ** 20, `${most}`);
});

test('"not found" is an answer that only the upstream itself gives', async (t) => {
  const { server, get, upstream } = await setUp(t);
  server.on('/gone', answer(410));
  t.is((await get('/missing')).status, 404);
  t.is((await get('/gone')).status, 410);
  t.is(upstream.unavailable(), undefined);
});

for (const status of [400, 403, 405, 418, 300]) {
  test(`${status} is a refusal of this request, not a failure of the upstream`, async (t) => {
    const { server, get, upstream } = await setUp(t);
    server.on('/thing', answer(status));
    await t.throwsAsync(get('/thing'), { name: 'UpstreamUnavailable' });
    t.is(server.asked.length, 1);
    t.is(upstream.unavailable(), undefined);
  });
}

test('a single 5xx is retried, and the client does not see it', async (t) => {
  const { server, get } = await setUp(t);
  server.on('/thing', answer(503), answer(200, {}, 'better'));
  t.is((await (await get('/thing')).body.toArray()).join(''), 'better');
});

for (const [what, header] of [
  ['seconds', '120'],
  ['a date', 'Sun, 06 Nov 1994 08:51:37 GMT'],
] as const) {
  test(`429 with Retry-After in ${what} pauses the upstream for that time, without a retry`, async (t) => {
    const { server, get, clock } = await setUp(t);
    clock.now = 1_000_000;
    // The upstream's clock is wrong by years: a date is compared with its own `Date`.
    server.on('/thing', answer(429, { 'retry-after': header, date: 'Sun, 06 Nov 1994 08:49:37 GMT' }));
    const error = await t.throwsAsync<DomainError>(get('/thing'), { message: /429/ });
    t.is(error.detail?.['retryAfter'], 120);
    t.is(server.asked.length, 1);
    clock.now += 60_000;
    t.is((await t.throwsAsync<DomainError>(get('/thing'))).detail!['retryAfter'], 60);
    clock.now += 59_999;
    await t.throwsAsync(get('/thing'));
    t.is(server.asked.length, 1);
    clock.now += 1;
    server.on('/thing', answer(200));
    t.is((await get('/thing')).status, 200);
  });
}

test('the success of an earlier request does not end the pause that a 429 asked for', async (t) => {
  const { server, get, clock } = await setUp(t);
  clock.now = 1_000_000;
  const slow = held(answer(200));
  server.on('/slow', slow.behaviour);
  server.on('/thing', answer(429, { 'retry-after': '60' }));
  const before = get('/slow');
  await until(() => server.count('/slow') > 0);
  await t.throwsAsync(get('/thing'));
  slow.release();
  t.is((await before).status, 200);
  await t.throwsAsync(get('/thing'), { message: /a moment ago/ });
  t.is(server.count('/thing'), 1);
});

test('after a refused connection the next request fails at once', async (t) => {
  const { server, get, clock, lines } = await setUp(t);
  clock.now = 1_000_000;
  await server.stop();
  const error = await t.throwsAsync(get('/thing'), { name: 'UpstreamUnavailable' });
  t.regex(error.message, /up\.test cannot be reached \(ECONNREFUSED\)/);
  await t.throwsAsync(get('/thing'), { message: /a moment ago: it cannot be reached \(ECONNREFUSED\)/ });
  t.is(lines.filter((line) => line.includes('an upstream failed')).length, 1);
});

test('without an answer in time the request is a time-out, and the next one fails at once', async (t) => {
  const { server, get } = await setUp(t, { timeout: '100ms' });
  server.on('/thing', () => undefined);
  await t.throwsAsync(get('/thing'), { name: 'UpstreamTimeout', message: /did not answer in time/ });
  await t.throwsAsync(get('/thing'), { name: 'UpstreamUnavailable' });
  t.is(server.asked.length, 1);
});

test('headers that arrive byte by byte are a time-out too', async (t) => {
  const timers: NodeJS.Timeout[] = [];
  const url = await startRawUpstream(t, (socket) => {
    socket.write('HTTP/1.1 200 OK\r\n');
    timers.push(setInterval(() => socket.write('x-a: b\r\n'), 20));
  });
  t.teardown(() => timers.forEach(clearInterval));
  const { upstream } = await openUpstream(t, url, { settings: { timeout: '150ms' } });
  await t.throwsAsync(upstream.send({ subject: 'thing', url }), { name: 'UpstreamTimeout' });
});

test('an answer that is not HTTP is a failure', async (t) => {
  const url = await startRawUpstream(t, (socket) => socket.end('220 mail.test ESMTP\r\n'));
  const { upstream } = await openUpstream(t, url);
  await t.throwsAsync(upstream.send({ subject: 'thing', url }), { name: 'UpstreamUnavailable' });
});

test('an answer that switches protocols is a failure, and leaves no connection open', async (t) => {
  let open = 0;
  const url = await startRawUpstream(t, (socket) => {
    open += 1;
    socket.once('close', () => (open -= 1));
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n');
  });
  const { upstream } = await openUpstream(t, url, { settings: { timeout: '30s' } });
  const failed = within(
    t.throwsAsync(upstream.send({ subject: 'thing', url }), { name: 'UpstreamUnavailable' }),
    20_000,
  );
  t.regex((await failed).message, /switches protocols/);
  await until(() => open === 0);
});

test('endless headers are a failure, and use little memory', async (t) => {
  const url = await startRawUpstream(t, (socket) => {
    socket.write('HTTP/1.1 200 OK\r\n');
    const more = () => {
      while (!socket.destroyed && socket.write(`x-${'a'.repeat(1000)}: b\r\n`));
    };
    socket.on('drain', more);
    more();
  });
  const { upstream } = await openUpstream(t, url);
  await t.throwsAsync(upstream.send({ subject: 'thing', url }), { name: 'UpstreamUnavailable' });
});

test('resets before the answer are retried a few times', async (t) => {
  const { server, get } = await setUp(t);
  server.on('/thing', (request) => void request.socket.resetAndDestroy(), answer(200, {}, 'there'));
  t.is((await (await get('/thing')).body.toArray()).join(''), 'there');
  server.on('/never', (request) => void request.socket.resetAndDestroy());
  await t.throwsAsync(get('/never'), { name: 'UpstreamUnavailable', message: /ECONNRESET/ });
  t.is(server.count('/never'), 3);
});

test('connections are reused, and a stale one causes no failure', async (t) => {
  const { server, get } = await setUp(t);
  server.on('/thing', answer(200, {}, 'there'));
  const read = async () => (await (await get('/thing')).body.toArray()).join('');
  for (let round = 0; round < 3; round += 1) t.is(await read(), 'there');
  t.is(server.connections(), 1);
  server.cutIdle();
  t.is(await read(), 'there');

  // The worst case: the upstream resets at the moment of the request.
  let first = true;
  server.on('/thing', (request, response) => {
    if (first) request.socket.resetAndDestroy();
    else answer(200, {}, 'there')(request, response);
    first = false;
  });
  t.is(await read(), 'there');
});

test('refusals, redirects and "not found" leave the connection usable', async (t) => {
  const { server, get } = await setUp(t);
  server.on('/moved', answer(302, { location: '/missing' }, 'moved'));
  server.on('/forbidden', answer(403, {}, 'no'));
  for (let round = 0; round < 4; round += 1) {
    const { body } = await get('/moved');
    await body.toArray();
    await t.throwsAsync(get('/forbidden'));
  }
  // The next request may begin while the end of the last is still being read.
  t.true(server.connections() <= 2);
});

test('a refusal with an endless body is dropped', async (t) => {
  const { server, get } = await setUp(t);
  let closed = false;
  server.on('/thing', (_request, response) => {
    response.once('close', () => (closed = true));
    response.writeHead(403);
    const more = () => {
      while (!response.destroyed && response.write(Buffer.alloc(65_536)));
    };
    response.on('drain', more);
    more();
  });
  await t.throwsAsync(get('/thing'));
  await until(() => closed);
  t.pass();
});

for (const [coding, encode] of [
  ['gzip', gzipSync],
  ['x-gzip', gzipSync],
  ['deflate', deflateSync],
  ['br', brotliCompressSync],
] as const) {
  test(`${coding} is decoded although it was not requested`, async (t) => {
    const { server, get } = await setUp(t);
    const coded = encode(Buffer.from('the content'));
    server.on('/thing', answer(200, { 'content-encoding': coding }, coded));
    const { body, decoded, headers } = await get('/thing');
    t.true(decoded);
    t.is(headers['content-length'], undefined);
    t.is((await body.toArray()).join(''), 'the content');
    t.is(server.asked[0]!.headers['accept-encoding'], 'identity');
  });
}

test('an unknown content coding is a refusal', async (t) => {
  const { server, get, upstream } = await setUp(t);
  server.on('/thing', answer(200, { 'content-encoding': 'zstd' }, zstdCompressSync(Buffer.from('x'))));
  await t.throwsAsync(get('/thing'), { message: /content coding zstd/ });
  t.is(upstream.unavailable(), undefined);
});

test('a coded body that is cut or damaged ends with an error, with and without a reader', async (t) => {
  const { server, get } = await setUp(t);
  const coded = gzipSync(Buffer.alloc(100_000, 'content'));
  server.on('/cut', answer(200, { 'content-encoding': 'gzip' }, coded.subarray(0, 60)));
  server.on('/garbage', answer(200, { 'content-encoding': 'gzip' }, 'garbage'));
  await get('/garbage');
  await t.throwsAsync(async () => (await get('/cut')).body.toArray());
  await t.throwsAsync(async () => (await get('/garbage')).body.toArray());
});

test('the upstream’s rate limit headers are recorded', async (t) => {
  const { server, get, upstream } = await setUp(t);
  server.on('/thing', answer(200, { 'ratelimit-limit': '100;w=21600', 'ratelimit-remaining': '76;w=21600' }));
  await get('/thing');
  t.like(upstream.counts.rateLimit(Date.now()), { remaining: 76, limit: 100 });
});

for (const [what, setup] of [
  ['globally', { offline: true }],
  ['for this upstream', { settings: { mode: 'offline' } }],
] as const) {
  test(`offline ${what} sends no request`, async (t) => {
    const server = await startFaultyUpstream(t);
    const { upstream } = await openUpstream(t, server.url, setup);
    const error = await t.throwsAsync<DomainError>(upstream.send({ subject: 'thing', url: server.url }), {
      message: /offline/,
    });
    t.is(error.name, 'UpstreamUnavailable');
    t.is(server.connections(), 0);
  });
}

test('a cancelled request is no failure of the upstream', async (t) => {
  const { server, upstream } = await setUp(t);
  server.on('/thing', () => undefined);
  const leaving = new AbortController();
  const sent = upstream.send({ subject: 'thing', url: new URL('/thing', server.url), signal: leaving.signal });
  await until(() => server.asked.length > 0);
  leaving.abort();
  await t.throwsAsync(sent);
  t.is(upstream.unavailable(), undefined);
});

test('an answer that is cut before it is read does not end the process', async (t) => {
  const { server, get } = await setUp(t);
  server.on('/thing', serve(Buffer.alloc(1000), { until: 10 }));
  const { body } = await get('/thing');
  await until(() => body.errored !== null);
  await t.throwsAsync(body.toArray());
});

test('a reset at the time of the headers is retried or reported, never an uncaught error', async (t) => {
  const url = await startRawUpstream(t, (socket) => {
    socket.write('HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n');
    socket.resetAndDestroy();
  });
  const { upstream } = await openUpstream(t, url);
  await t.throwsAsync(async () => (await upstream.send({ subject: 'thing', url })).body.toArray());
});

test('the figures have the last success, the last failure, and the failures since a success', async (t) => {
  const { server, get, upstream, clock } = await setUp(t);
  const { counts } = upstream;
  const figures = () => [counts.failures, counts.lastFailure, counts.succeededAt];
  const other = 'x'.repeat(300);
  server.on('/thing', answer(418), answer(200), answer(401), answer(403));
  clock.now = 1_000_000;
  await t.throwsAsync(get('/thing'));
  const refused = { at: 1_000_000, subject: '/thing', reason: 'answered 418', isRefusal: false };
  t.deepEqual(figures(), [1, refused, null]);
  clock.now += 1;
  await get('/thing');
  t.deepEqual(figures(), [0, refused, 1_000_001]);
  clock.now += 1;
  const url = new URL('/thing', server.url);
  await t.throwsAsync(upstream.send({ subject: other, url }));
  const reason = 'refused access; check its credentials';
  const unauthorized = { at: 1_000_002, subject: other.slice(0, 200), reason, isRefusal: true };
  t.deepEqual(figures(), [1, unauthorized, 1_000_001]);
  await t.throwsAsync(get('/thing'), { message: /denied access/ });
  server.on('/thing', answer(418));
  await t.throwsAsync(upstream.send({ subject: 'thing', url, service: 'search' }));
  t.deepEqual(figures(), [1, unauthorized, 1_000_001], 'a denied resource and an optional service say nothing of it');
});
