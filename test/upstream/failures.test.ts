import test, { type ExecutionContext } from 'ava';
import type { DomainError } from '../../src/runtime/errors.ts';
import type { Resolve } from '../../src/upstream/addresses.ts';
import { answer, held, startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';
import { openUpstream } from '../support/mirror.ts';
import { until } from '../support/until.ts';

// Which failure stops which requests, for how long, and which request is the probe.

async function setUp(t: ExecutionContext, settings: Record<string, unknown> = {}) {
  const server = await startFaultyUpstream(t);
  let reachable = true;
  const resolve: Resolve = (_name, _options, done) => {
    if (reachable) done(null, [{ address: '127.0.0.1', family: 4 }]);
    else done(Object.assign(new Error('no such name'), { code: 'ENOTFOUND' }), []);
  };
  const base = new URL(`http://up.test:${server.url.port}/`);
  const made = await openUpstream(t, base, { settings, resolve });
  made.clock.now = 1_000_000;
  /** The subject is the first segment of the path. */
  const get = async (path: string) => {
    const { status, body } = await made.upstream.send({
      subject: path.split('/', 2)[1]!,
      url: new URL(path, base),
    });
    body.resume();
    return status;
  };
  const refused = (path: string, message: RegExp = /./) =>
    t.throwsAsync<DomainError>(get(path), { name: 'UpstreamUnavailable', message });
  return {
    server,
    ...made,
    base,
    get,
    refused,
    /** Whether new connections succeed. Open ones stay open. */
    connect: (how: boolean) => {
      reachable = how;
      server.cutIdle();
    },
    /** Five subjects fail, so that the upstream counts as failing. */
    failAll: async () => {
      for (const name of ['a', 'b', 'c', 'd', 'e']) {
        server.on(`/${name}/1`, answer(500));
        await refused(`/${name}/1`, /up\.test answered 500/);
      }
    },
  };
}

test('after a 5xx an address fails at once for a while, without a request; other addresses work', async (t) => {
  const { server, get, refused } = await setUp(t);
  server.on('/bad/1', answer(500));
  const error = await refused('/bad/1', /up\.test answered 500/);
  t.is(error.detail?.['retryAfter'], 1);
  t.is(server.asked.length, 3);
  const next = await refused('/bad/1', /up\.test failed a moment ago for the same request: it answered 500/);
  t.is(next.detail?.['retryAfter'], 1);
  t.is(next.detail?.['upstream'], 'up.test');
  t.is(server.count('/bad/1'), 3);
  t.is(await get('/other/1'), 404);
  t.is(await get('/bad/2'), 404, 'another version, or another tag');
});

test('a time-out stops the one address, not the upstream', async (t) => {
  const { server, upstream, base, get, refused } = await setUp(t, { timeout: '1s' });
  server.on('/silent/1', () => undefined);
  const url = new URL('/silent/1', base);
  await t.throwsAsync(upstream.send({ subject: 'silent', url }), { name: 'UpstreamTimeout' });
  await refused('/silent/1', /a moment ago.*did not answer in time/);
  t.is(server.asked.length, 1);
  t.is(await get('/other/1'), 404);
});

test('the pause of an address grows to a minute while it fails, and ends with an answer', async (t) => {
  const { server, get, refused, clock } = await setUp(t);
  server.on('/bad/1', answer(500));
  const pauses: unknown[] = [];
  for (let round = 0; round < 8; round += 1) {
    const { detail } = await refused('/bad/1', /answered 500/);
    pauses.push(detail!['retryAfter']);
    clock.now! += (detail!['retryAfter'] as number) * 1000 - 1;
    await refused('/bad/1', /a moment ago/);
    clock.now! += 1;
  }
  t.deepEqual(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
  server.on('/bad/1', answer(200));
  t.is(await get('/bad/1'), 200);
  server.on('/bad/1', answer(500));
  t.is((await refused('/bad/1')).detail!['retryAfter'], 1);
});

test('requests that fail together count once', async (t) => {
  const { server, refused, clock } = await setUp(t);
  server.on('/bad/1', answer(500));
  await Promise.all(Array.from({ length: 20 }, () => refused('/bad/1')));
  t.is((await refused('/bad/1', /a moment ago/)).detail!['retryAfter'], 1);
  // A request that began before the first failure, and ends after the pause, counts as the same failure.
  clock.now! += 1000;
  const slow = held(answer(500));
  server.on('/bad/1', slow.behaviour, slow.behaviour, answer(500));
  const both = [refused('/bad/1'), refused('/bad/1')];
  await until(() => server.count('/bad/1') === 62);
  slow.release();
  const pauses = (await Promise.all(both)).map(({ detail }) => detail!['retryAfter']);
  t.deepEqual(pauses, [2, 2]);
});

test('a clock that is set back ends a pause', async (t) => {
  const { server, get, refused, clock } = await setUp(t);
  server.on('/bad/1', answer(503, { 'retry-after': '60' }), answer(200));
  await refused('/bad/1');
  clock.now! -= 3_600_000;
  t.is(await get('/bad/1'), 200);
});

for (const [retryAfter, seconds, date] of [
  ['120', 120],
  ['86400', 300],
  ['Fri, 31 Dec 2199 23:59:59 GMT', 300],
  // The clock of the upstream counts, and not the one of this machine.
  ['Wed, 01 Jan 2031 00:02:00 GMT', 120, 'Wed, 01 Jan 2031 00:00:00 GMT'],
] as const) {
  test(`503 with Retry-After ${retryAfter} pauses that address alone, for ${seconds} s`, async (t) => {
    const { server, get, refused, clock } = await setUp(t);
    server.on('/bad/1', answer(503, { 'retry-after': retryAfter, ...(date !== undefined && { date }) }));
    t.is((await refused('/bad/1', /answered 503/)).detail?.['retryAfter'], seconds);
    t.is(server.asked.length, 1, 'and is not tried again');
    t.is(await get('/other/1'), 404);
    clock.now! += seconds * 1000 - 1;
    await refused('/bad/1', /a moment ago/);
    clock.now! += 1;
    server.on('/bad/1', answer(200));
    t.is(await get('/bad/1'), 200);
  });
}

for (const [what, retryAfter] of [
  ['in the past', 'Thu, 01 Jan 1970 00:00:00 GMT'],
  ['that cannot be read', 'soon'],
]) {
  test(`503 with a Retry-After ${what} is as one without: the request is repeated at once`, async (t) => {
    const { server, get, refused } = await setUp(t);
    server.on('/bad/1', answer(503, { 'retry-after': retryAfter }), answer(200));
    t.is(await get('/bad/1'), 200);
    server.on('/worse/1', answer(503, { 'retry-after': retryAfter }));
    t.is((await refused('/worse/1', /answered 503/)).detail?.['retryAfter'], 1);
  });
}

test('a long pause that a 429 asks for is tested after 5 minutes, and then less often, for a day at most', async (t) => {
  const { server, refused, get, clock } = await setUp(t);
  server.on('/bad/1', answer(429, { 'retry-after': '86400' }));
  const waits: unknown[] = [];
  for (let passed = 0; passed < 86_400;) {
    const wait = Number((await refused('/bad/1', /429/)).detail?.['retryAfter']);
    await refused('/other/1', /a moment ago: it asks for a pause/);
    waits.push(wait);
    passed += wait;
    clock.now! += wait * 1000;
  }
  t.deepEqual(waits.slice(0, 4), [300, 600, 1200, 2400]);
  t.is(server.asked.length, waits.length, 'one request for each test');
  server.on('/bad/1', answer(200));
  t.is(await get('/bad/1'), 200);
  t.is(await get('/other/1'), 404, 'all requests are sent again');
});

test('an operator ends all pauses: the next request is a test', async (t) => {
  const { server, upstream, refused, get } = await setUp(t);
  server.on('/bad/1', answer(503, { 'retry-after': '200' }), answer(200));
  await refused('/bad/1', /503/);
  server.on('/limited/1', answer(429, { 'retry-after': '86400' }));
  await refused('/limited/1', /429/);
  upstream.tryNow();
  t.true(upstream.isPaused, 'until a request has succeeded');
  t.is(await get('/bad/1'), 200);
  t.false(upstream.isPaused);
});

test('429 pauses the whole upstream, optional services included', async (t) => {
  const { server, upstream, refused, get, clock, base } = await setUp(t);
  server.on('/bad/1', answer(429, { 'retry-after': '999999999' }), answer(200));
  t.is((await refused('/bad/1', /429/)).detail?.['retryAfter'], 300);
  await refused('/other/1', /a moment ago: it asks for a pause/);
  await t.throwsAsync(upstream.send({ subject: 'q', url: base, service: 'search' }), { message: /asks for a pause/ });
  t.is(server.asked.length, 1);
  clock.now! += 300_000;
  t.is(await get('/bad/1'), 200, 'it is not the bad one, so it may be the probe');
});

test('a connection that fails during the pause of a 429 changes nothing about it', async (t) => {
  const server = await startFaultyUpstream(t);
  const looksUp = Promise.withResolvers<() => void>();
  // The first request waits for the address of the host.
  let lookUps = 0;
  const resolve: Resolve = (_name, _options, done) => {
    if ((lookUps += 1) > 1) done(null, [{ address: '127.0.0.1', family: 4 }]);
    else looksUp.resolve(() => done(Object.assign(new Error('no such name'), { code: 'ENOTFOUND' }), []));
  };
  const base = new URL(`http://up.test:${server.url.port}/`);
  const { upstream, clock } = await openUpstream(t, base, { resolve });
  clock.now = 1_000_000;
  const send = (subject: string, service?: 'search') =>
    upstream.send({ subject, url: new URL(`/${subject}`, base), ...(service && { service }) });
  const early = send('early');
  const fail = await looksUp.promise;
  server.on('/limited', answer(429, { 'retry-after': '60' }));
  await t.throwsAsync(send('limited'), { message: /asks for a pause/ });
  fail();
  await t.throwsAsync(early, { message: /ENOTFOUND/ });
  clock.now += 59_000;
  await t.throwsAsync(send('found', 'search'), { message: /a moment ago/ });
  t.is(server.asked.length, 1);
  clock.now += 1000;
  await (await send('found', 'search')).body.toArray();
  t.is(server.asked.length, 2);
});

test('429 from another host that the upstream redirects to stops the one address', async (t) => {
  const { server, refused, get } = await setUp(t);
  const cdn = await startFaultyUpstream(t);
  server.on('/moved/1', answer(302, { location: new URL('/x', cdn.url).href }));
  cdn.on('/x', answer(429, { 'retry-after': '86400' }));
  t.is((await refused('/moved/1', /429/)).detail?.['retryAfter'], 300);
  t.is(await get('/other/1'), 404);
});

test('429 without Retry-After is not asked again at once, whichever host answers it', async (t) => {
  const { server, refused } = await setUp(t);
  const cdn = await startFaultyUpstream(t);
  server.on('/moved/1', answer(302, { location: new URL('/x', cdn.url).href }));
  cdn.on('/x', answer(429));
  server.on('/own/1', answer(429));
  for (const path of ['/moved/1', '/own/1']) await refused(path, /asks for a pause \(429\)/);
  t.deepEqual([cdn.count('/x'), server.count('/own/1')], [1, 1]);
});

test('a failed connection pauses the upstream at once, and the same request may be the probe', async (t) => {
  const { refused, get, clock, connect, upstream, lines } = await setUp(t);
  connect(false);
  await refused('/a/1', /up\.test cannot be reached \(ENOTFOUND\)/);
  await refused('/b/1', /up\.test failed a moment ago: it cannot be reached \(ENOTFOUND\)/);
  t.is(lines.filter((line) => line.includes('an upstream failed')).length, 1);
  const pauses: unknown[] = [];
  for (let round = 0; round < 7; round += 1) {
    clock.now! += (upstream.unavailable()!.detail!['retryAfter'] as number) * 1000;
    pauses.push((await refused('/a/1', /cannot be reached/)).detail?.['retryAfter']);
    await refused('/b/1', /a moment ago/);
  }
  t.deepEqual(pauses, [2, 4, 8, 16, 32, 60, 60]);
  connect(true);
  clock.now! += 60_000;
  t.is(await get('/a/1'), 404);
  t.is(await get('/b/1'), 404);
  connect(false);
  t.is((await refused('/a/1')).detail?.['retryAfter'], 1);
});

test('a failed connection while other requests are answered pauses nothing else', async (t) => {
  const { server, refused, get, connect, upstream } = await setUp(t);
  const slow = held(answer(200));
  server.on('/slow/1', slow.behaviour);
  const before = get('/slow/1');
  await until(() => server.count('/slow/1') === 1);
  const moved = held(answer(302, { location: '/away/2', connection: 'close' }));
  server.on('/away/1', moved.behaviour);
  const away = refused('/away/1', /cannot be reached/);
  await until(() => server.count('/away/1') === 1);
  slow.release();
  t.is(await before, 200);
  connect(false);
  moved.release();
  await away;
  t.is(upstream.unavailable(), undefined);
  await refused('/away/1', /a moment ago for the same request/);
});

test('several subjects that fail without a success in between pause the upstream', async (t) => {
  const { server, failAll, refused, upstream } = await setUp(t);
  await failAll();
  const before = server.asked.length;
  const error = await refused('/other/1', /up\.test failed a moment ago: it answered 500/);
  t.is(error.detail?.['retryAfter'], 1);
  t.is(server.asked.length, before);
  t.is(upstream.unavailable()?.name, 'UpstreamUnavailable');
});

test('one subject counts once, however many of its addresses fail', async (t) => {
  const { server, refused, get } = await setUp(t);
  for (let index = 0; index < 30; index += 1) {
    server.on(`/bad/${index}`, answer(500));
    await refused(`/bad/${index}`, /answered 500/);
  }
  for (const name of ['a', 'b', 'c']) {
    server.on(`/${name}/1`, answer(500));
    await refused(`/${name}/1`, /up\.test answered 500/);
  }
  t.is(await get('/other/1'), 404);
});

test('failures while other requests succeed do not pause the upstream', async (t) => {
  const { server, refused, get, upstream } = await setUp(t);
  for (let index = 0; index < 12; index += 1) {
    server.on(`/bad${index}/1`, answer(500));
    await refused(`/bad${index}/1`, /answered 500/);
    if (index % 4 === 3) t.is(await get('/other/1'), 404);
  }
  t.is(upstream.unavailable(), undefined);
  await get('/other/2');
  // All of them began before the success, and fail after it.
  const slow = held(answer(500));
  const names = Array.from({ length: 12 }, (_, index) => `/slow${index}/1`);
  for (const name of names) server.on(name, slow.behaviour);
  const failing = names.map((name) => refused(name, /answered 500/));
  await until(() => names.every((name) => server.count(name) > 0));
  await get('/other/3');
  slow.release();
  await Promise.all(failing);
  t.is(upstream.unavailable(), undefined);
});

test('after the pause one request is the probe; the others fail at once until it is answered', async (t) => {
  const { server, get, refused, clock, upstream, failAll } = await setUp(t);
  await failAll();
  const before = server.asked.length;
  clock.now! += 1000;
  t.is(upstream.unavailable(), undefined, 'to ask whether it may be asked is not yet to ask');
  t.is(upstream.unavailable(), undefined);
  const slow = held(answer(200));
  server.on('/probe/1', slow.behaviour);
  const probe = get('/probe/1');
  await refused('/other/1', /a moment ago/);
  await until(() => server.count('/probe/1') > 0);
  t.is(server.asked.length, before + 1);
  slow.release();
  t.is(await probe, 200);
  t.is(await get('/other/1'), 404);
});

test('a probe that hangs keeps the upstream paused no longer than the pause was', async (t) => {
  const { server, get, refused, clock, failAll } = await setUp(t);
  await failAll();
  clock.now! += 1000;
  const slow = held(answer(500));
  server.on('/slow/1', slow.behaviour);
  const hanging = refused('/slow/1');
  await until(() => server.count('/slow/1') > 0);
  await refused('/other/1', /a moment ago/);
  clock.now! += 1000;
  t.is(await get('/other/1'), 404);
  slow.release();
  await hanging;
  t.is(await get('/other/2'), 404, 'what fails later than another has succeeded closes nothing');
});

test('after a cancelled probe the next request is the probe', async (t) => {
  const { server, get, clock, failAll, upstream, base } = await setUp(t);
  await failAll();
  clock.now! += 1000;
  server.on('/left/1', () => undefined);
  const leaving = new AbortController();
  const url = new URL('/left/1', base);
  const left = upstream.send({ subject: 'left', url, signal: leaving.signal });
  await until(() => server.count('/left/1') > 0);
  leaving.abort();
  await t.throwsAsync(left, { name: 'Aborted' });
  t.is(await get('/other/1'), 404);
});

test('a failed probe repeats the pause; a failing subject is never the probe', async (t) => {
  const { server, get, refused, clock, failAll } = await setUp(t);
  await failAll();
  clock.now! += 999;
  await refused('/other/1', /a moment ago/);
  clock.now! += 1;
  // Its own pause is over too: its request is sent, fails, and extends only its own pause.
  await refused('/a/1', /up\.test answered 500/);
  server.on('/a/2', answer(500));
  await refused('/a/2', /a moment ago/);
  server.on('/new/1', answer(500));
  await refused('/new/1', /up\.test answered 500/);
  await refused('/other/1', /a moment ago/);
  clock.now! += 1000;
  t.is(await get('/other/1'), 404);
  t.is(await get('/other/2'), 404);
});

test('if only failing subjects are requested, their requests are sent, and a success ends the pause', async (t) => {
  const { server, get, refused, clock, failAll } = await setUp(t);
  await failAll();
  for (const pause of [1000, 2000, 4000]) {
    clock.now! += pause;
    for (const name of ['a', 'b', 'c', 'd', 'e']) await refused(`/${name}/1`, /up\.test answered 500/);
  }
  clock.now! += 8000;
  server.on('/c/1', answer(200));
  t.is(await get('/c/1'), 200);
  t.is(await get('/other/1'), 404);
  t.is(await get('/other/2'), 404);
});

test('a subject that failed and was answered since may be the probe again', async (t) => {
  const { server, get, refused, clock, connect } = await setUp(t);
  server.on('/a/1', answer(500));
  await refused('/a/1', /answered 500/);
  clock.now! += 1000;
  server.on('/a/1', answer(200));
  t.is(await get('/a/1'), 200);
  connect(false);
  await refused('/b/1', /cannot be reached/);
  connect(true);
  clock.now! += 1000;
  t.is(await get('/a/1'), 200);
});

test('an answer to a request that began before the pause does not end it', async (t) => {
  const { server, get, refused, failAll } = await setUp(t);
  const slow = held(answer(200));
  server.on('/slow/1', slow.behaviour);
  const before = get('/slow/1');
  await until(() => server.count('/slow/1') > 0);
  await failAll();
  slow.release();
  t.is(await before, 200);
  await refused('/other/1', /a moment ago/);
});

for (const [what, break_] of [
  ['cannot be reached', undefined],
  ['answers 500', answer(500)],
] as const) {
  test(`a host behind a redirect that ${what} stops its resources, and the upstream if nothing else succeeds`, async (t) => {
    const { server, get, refused } = await setUp(t);
    const cdn = await startFaultyUpstream(t);
    if (!break_) await cdn.stop();
    const names = ['a', 'b', 'c', 'd', 'e'];
    for (const name of names) {
      if (break_) cdn.on(`/${name}`, break_);
      server.on(`/${name}/1`, answer(302, { location: new URL(`/${name}`, cdn.url).href }));
    }
    for (const name of names) {
      t.is(await get('/other/1'), 404);
      await refused(`/${name}/1`, /cannot be reached|answered 500/);
      await refused(`/${name}/1`, /for the same request/);
    }
    t.is(await get('/other/1'), 404);
    for (const name of names) {
      server.on(`/${name}/2`, answer(302, { location: new URL(`/${name}`, cdn.url).href }));
      await refused(`/${name}/2`, /cannot be reached|answered 500/);
    }
    await refused('/other/1', /a moment ago: it/);
  });
}

for (const service of ['search', 'symbols'] as const) {
  test(`a ${service} that fails stops nothing else, and the other way round`, async (t) => {
    const { server, upstream, base, get, refused, failAll, clock, connect } = await setUp(t);
    const ask = async (name: string) => {
      const url = new URL(`/aside/${name}`, base);
      const { status, body } = await upstream.send({ subject: name, url, service });
      body.resume();
      return status;
    };
    await failAll();
    await refused('/other/1', /a moment ago/);
    t.is(await ask('good'), 404);
    clock.now! += 1000;
    t.is(await get('/other/1'), 404);
    for (const name of ['a', 'b', 'c', 'd', 'e']) {
      server.on(`/aside/${name}`, answer(500));
      await t.throwsAsync(ask(name), { message: /answered 500/ });
    }
    await t.throwsAsync(ask('good'), { message: /a moment ago/ });
    t.is(upstream.unavailable(), undefined);
    t.is(await get('/other/1'), 404);
    clock.now! += 1000;
    connect(false);
    await t.throwsAsync(ask('good'), { message: /cannot be reached/ });
    await t.throwsAsync(ask('other'), { message: /a moment ago: it cannot be reached/ });
    connect(true);
    t.is(await get('/other/1'), 404);
  });
}

test('the number of remembered failures is bounded', async (t) => {
  const { server, upstream, base, refused, get } = await setUp(t);
  server.on('/bad/1', answer(503, { 'retry-after': '60' }));
  await refused('/bad/1');
  const send = async (index: number) => {
    const url = new URL(`/other?${index}`, base);
    await t.throwsAsync(upstream.send({ subject: 'other', url }), { message: /answered 503/ });
  };
  server.on('/other', answer(503, { 'retry-after': '60' }));
  for (let index = 0; index < 4096; index += 64) {
    await Promise.all(Array.from({ length: 64 }, (_, each) => send(index + each)));
  }
  await refused('/bad/1', /answered 503/);
  t.is(server.count('/bad/1'), 2, 'the oldest failure has been forgotten');
  t.is(await get('/good/1'), 404);
});

test('the log has each reason once in 10 s, and the number of lines left out', async (t) => {
  const { server, refused, clock, lines } = await setUp(t);
  const logged = () => lines.map((line) => JSON.parse(line)).filter(({ upstream }) => upstream === 'up.test');
  for (let index = 0; index < 100; index += 1) {
    server.on(`/bad/${index}`, answer(index % 2 === 0 ? 501 : 502, { 'retry-after': '1' }));
    await refused(`/bad/${index}`, /answered 50/);
  }
  t.deepEqual(
    logged().map(({ reason, subject }) => [reason, subject]),
    [
      ['answered 501', 'bad'],
      ['answered 502', 'bad'],
    ],
  );
  clock.now! += 10_000;
  await refused('/bad/0', /answered 501/);
  t.is(logged().at(-1).untold, 98);
  for (let index = 0; index < 100; index += 1) {
    server.on(`/odd/${index}`, answer(300 + index, { 'content-encoding': `odd-${index}` }));
    await refused(`/odd/${index}`);
  }
  t.true(logged().length <= 23, 'the number of different reasons is limited too');
});
