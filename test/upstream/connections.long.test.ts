import { setImmediate as nextTurn } from 'node:timers/promises';
import test, { type ExecutionContext } from 'ava';
import { once } from 'node:events';
import type { DomainError } from '../../src/runtime/errors.ts';
import { answer, held, serve, startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';
import { openUpstream } from '../support/mirror.ts';
import { until, within } from '../support/until.ts';

async function setUp(t: ExecutionContext, maxConnections: number, timeout = '60s') {
  const server = await startFaultyUpstream(t);
  const made = await openUpstream(t, server.url, { maxConnections, settings: { timeout } });
  made.clock.now = 1_000_000;
  const slow = held(answer(200, {}, 'content'));
  /** The subject is the first segment of the path. */
  const send = (path: string, signal?: AbortSignal) => {
    const [, subject] = path.split('/', 2);
    return made.upstream.send({ subject: subject!, url: new URL(path, server.url), ...(signal && { signal }) });
  };
  return {
    server,
    ...made,
    send,
    get: async (path: string, signal?: AbortSignal) => {
      const { body } = await send(path, signal);
      return (await body.toArray()).join('');
    },
    /** Sends requests that are answered at `release`, and waits until the upstream has them. */
    hang: async (...paths: string[]) => {
      for (const path of paths) server.on(path, slow.behaviour);
      const asked = server.asked.length + paths.length;
      const answers = paths.map((path) => send(path).then(({ body }) => body.toArray()));
      await until(() => server.asked.length === asked);
      return answers;
    },
    release: slow.release,
  };
}

test('without a free connection a request waits for its time-out, and that is no failure of the upstream', async (t) => {
  const { server, upstream, get, hang, release, lines } = await setUp(t, 4, '4s');
  // The bodies have begun, so the time-out for an answer does not end them.
  const names = ['a', 'b', 'c', 'd'];
  const open = names.map(async (name) => {
    server.on(`/${name}/1`, (_request, response) => {
      response.writeHead(200);
      response.write('x');
    });
    return upstream.send({ subject: name, url: new URL(`/${name}/1`, server.url) });
  });
  const bodies = (await Promise.all(open)).map(({ body }) => body);
  const started = performance.now();
  const error = await t.throwsAsync<DomainError>(get('/other/1'), { name: 'UpstreamTimeout' });
  const took = performance.now() - started;
  t.true(took > 3950 && took < 60_000, `${took}`);
  t.is(error.message, 'The upstream up.test got no request: all connections to it are in use.');
  t.deepEqual(error.detail, { upstream: 'up.test', retryAfter: 1 });
  t.is(server.count('/other/1'), 0);
  t.is(upstream.unavailable(), undefined);
  t.is(upstream.counts.lastFailure, null);
  t.is(lines.filter((line) => line.includes('are in use')).length, 1);
  bodies[0]!.destroy();
  t.is(await get('/other/1'), '', 'the same address is not paused');
  for (const body of bodies) body.destroy();
  const answers = await hang('/e/1', '/f/1', '/g/1', '/h/1');
  release();
  await Promise.all(answers);
});

test('waiting requests are served in turn, as connections become free', async (t) => {
  const { server, send, hang, release } = await setUp(t, 4);
  const answers = await hang('/a/1', '/b/1', '/c/1', '/d/1');
  const names = Array.from({ length: 20 }, (_, index) => `/other${index}/1`);
  for (const name of names) server.on(name, answer(200, {}, 'x'));
  const waiting = names.map((name) => send(name).then(({ body }) => body.toArray()));
  release();
  await Promise.all([...answers, ...waiting]);
  const order = server.asked.map(({ path }) => path).filter((path) => path.startsWith('/other'));
  t.is(order.length, 20);
  t.deepEqual(new Set(order.slice(0, 4)), new Set(names.slice(0, 4)), 'four at a time');
  t.true(server.connections() <= 5, `${server.connections()}`);
});

test('a cancelled request leaves the queue at once and is never sent; the queue is bounded', async (t) => {
  const { server, get, hang, release } = await setUp(t, 1);
  const [first] = await hang('/a/1');
  const leaving = new AbortController();
  const left = Array.from({ length: 1024 }, () => get('/left/1', leaving.signal));
  const full = await t.throwsAsync(get('/full/1'), { name: 'UpstreamTimeout', message: /are in use/ });
  t.truthy(full);
  leaving.abort();
  for (const each of left) await t.throwsAsync(each, { name: 'Aborted' });
  server.on('/next/1', answer(200, {}, 'next'));
  const next = get('/next/1');
  release();
  await first;
  t.is(await next, 'next');
  t.is(server.count('/left/1'), 0);
});

test('when the server stops, waiting requests fail at once and no request is sent', async (t) => {
  const { server, upstream, get, hang } = await setUp(t, 1);
  const [first] = await hang('/a/1');
  const waiting = ['b', 'c', 'd'].map((name) => t.throwsAsync(get(`/${name}/1`), { message: /server is stopping/ }));
  // They await nothing but promises before they are in the queue.
  for (let turn = 0; turn < 20; turn += 1) await nextTurn();
  upstream.close();
  await within(Promise.all([...waiting, t.throwsAsync(first!)]));
  await t.throwsAsync(get('/e/1'), { message: /server is stopping/ });
  t.is(server.connections(), 1);
});

test('one subject has a quarter of the connections at most, and so has an optional service', async (t) => {
  const { server, upstream, get, hang, release } = await setUp(t, 8);
  server.on('/other/1', answer(200, {}, 'there'));
  const answers = await hang('/bad/1', '/bad/2');
  const third = get('/bad/3');
  t.is(await get('/other/1'), 'there');
  server.on('/query', () => undefined);
  const leaving = new AbortController();
  const searches = ['a', 'b', 'c'].map((word) => {
    const url = new URL(`/query?q=${word}`, server.url);
    return upstream.send({ subject: url.href, url, service: 'search', signal: leaving.signal });
  });
  await until(() => server.asked.filter(({ path }) => path.startsWith('/query')).length === 2);
  t.is(await get('/other/1'), 'there');
  t.is(server.count('/bad/3'), 0);
  release();
  await Promise.all([...answers, third]);
  t.is(server.count('/bad/3'), 1);
  leaving.abort();
  for (const each of searches) await t.throwsAsync(each, { name: 'Aborted' });
});

test('each host has its own connections', async (t) => {
  const { server, get, hang, release } = await setUp(t, 1);
  const other = await startFaultyUpstream(t);
  other.on('/x', answer(200, {}, 'elsewhere'));
  const moved = held(answer(302, { location: new URL('/x', other.url).href }));
  server.on('/moved/1', moved.behaviour);
  const found = get('/moved/1');
  await until(() => server.count('/moved/1') === 1);
  moved.release();
  t.is(await found, 'elsewhere');
  const answers = await hang('/a/1');
  release();
  await Promise.all(answers);
});

test('every request releases its connection, however it ends', async (t) => {
  const { server, upstream, send, get, clock } = await setUp(t, 1, '3s');
  server.on('/good/1', answer(200, {}, 'good'));
  server.on('/moved/1', answer(302, { location: '/good/1' }, 'moved'));
  server.on('/loop/1', answer(302, { location: '/loop/1' }));
  server.on('/clear/1', answer(302, { location: 'gopher://x' }));
  server.on('/coded/1', answer(200, { 'content-encoding': 'zstd' }, 'x'));
  server.on('/cut/1', serve(Buffer.alloc(100_000), { until: 10 }));
  server.on('/stalls/1', serve(Buffer.alloc(100_000), { until: 10, how: 'stall' }));
  server.on('/reset/1', (request) => void request.socket.resetAndDestroy());
  server.on('/silent/1', () => undefined);
  server.on('/failing/1', answer(500, {}, 'no'));
  server.on('/denied/1', answer(403, {}, Buffer.alloc(200_000)));
  const ends = {
    '/good/1': () => get('/good/1'),
    '/moved/1': () => get('/moved/1'),
    '/missing/1': () => get('/missing/1'),
    '/loop/1': () => t.throwsAsync(get('/loop/1')),
    '/clear/1': () => t.throwsAsync(get('/clear/1')),
    '/coded/1': () => t.throwsAsync(get('/coded/1')),
    '/cut/1': () => t.throwsAsync(get('/cut/1')),
    '/reset/1': () => t.throwsAsync(get('/reset/1')),
    '/silent/1': () => t.throwsAsync(get('/silent/1')),
    '/failing/1': () => t.throwsAsync(get('/failing/1')),
    '/denied/1': () => t.throwsAsync(get('/denied/1')),
    '/stalls/1': async () => {
      const { body } = await send('/stalls/1');
      await once(body, 'readable');
      body.destroy();
    },
    head: async () => {
      const { body } = await upstream.send({ subject: 'x', method: 'HEAD', url: new URL('/good/1', server.url) });
      t.deepEqual(await body.toArray(), []);
    },
    'not dialled': () =>
      t.throwsAsync(upstream.send({ subject: 'x', url: new URL('http://169.254.169.254/') }), { message: /refused/ }),
  };
  for (const [name, end] of Object.entries(ends)) {
    for (let round = 0; round < 2; round += 1) {
      await end();
      clock.now! += 100_000;
      t.is(await get('/good/1'), 'good', name);
    }
  }
});

test('a slow token realm does not delay requests without a token, nor the end of cancelled ones', async (t) => {
  const { server, upstream, get } = await setUp(t, 8);
  const challenge = `Bearer realm="${new URL('/token', server.url).href}",service="s"`;
  server.on('/token', () => undefined);
  server.on('/other/1', answer(200, {}, 'there'));
  const leaving = new AbortController();
  const waiting = ['a', 'b', 'c', 'd', 'e', 'f'].map((name) => {
    server.on(`/${name}/1`, answer(401, { 'www-authenticate': challenge }));
    const url = new URL(`/${name}/1`, server.url);
    return upstream.send({ subject: name, url, scope: `repository:${name}:pull`, signal: leaving.signal });
  });
  await until(() => server.asked.filter(({ path }) => path.startsWith('/token')).length === 2);
  t.is(await get('/other/1'), 'there');
  leaving.abort();
  for (const each of waiting) await t.throwsAsync(within(each), { name: 'Aborted' });
  t.is(upstream.unavailable(), undefined);
});
