import test, { type ExecutionContext } from 'ava';
import { randomBytes } from 'node:crypto';
import { unlink } from 'node:fs/promises';
import type { Database } from '../../src/database/database.ts';
import { digestOf } from '../../src/runtime/digest.ts';
import type { DomainError } from '../../src/runtime/errors.ts';
import { answer, held, serve, startFaultyUpstream } from '../support/upstreams/faulty-upstream.ts';
import { openMirror, readEntry, type MirrorSetup } from '../support/mirror.ts';
import { until, within } from '../support/until.ts';
import { changedDatabase } from '../support/databases.ts';

const minute = 60_000;
const lifetime = { freshFor: 5 * minute, staleFor: 60 * minute };
const one = Buffer.from('the first version');
const two = Buffer.from('the second version');

async function setUp(t: ExecutionContext, setup: MirrorSetup = {}) {
  const server = await startFaultyUpstream(t);
  const made = await openMirror(t, server.url, setup);
  made.clock.now = 1_700_000_000_000;
  const open = () => made.mirror.open(made.resource('/thing', { lifetime }));
  /** The outcome and the bytes; waits until the entry is stored. */
  const get = async () => {
    const entry = await open();
    if (!entry) return 'absent';
    const text = (await readEntry(entry)).toString();
    await entry.complete;
    return `${entry.outcome}: ${text}`;
  };
  return { server, ...made, clock: made.clock as { now: number }, open, get };
}

test('a document is fresh for a while, and then requested again', async (t) => {
  const { server, get, clock } = await setUp(t);
  server.on('/thing', serve(one), serve(two));
  t.is(await get(), 'miss: the first version');
  clock.now += lifetime.freshFor - 1;
  t.is(await get(), 'hit: the first version');
  t.is(server.asked.length, 1);
  clock.now += 1;
  t.is(await get(), 'miss: the second version');
  t.is(await get(), 'hit: the second version');
  t.is(server.asked.length, 2);
});

for (const [what, headers, condition, value] of [
  ['ETag', { etag: '"v1"' }, 'if-none-match', '"v1"'],
  ['a weak ETag', { etag: 'W/"v1"' }, 'if-none-match', 'W/"v1"'],
  [
    'Last-Modified',
    { 'last-modified': 'Sun, 06 Nov 1994 08:49:37 GMT' },
    'if-modified-since',
    'Sun, 06 Nov 1994 08:49:37 GMT',
  ],
] as const) {
  test(`a document that has not changed by ${what} is fresh again`, async (t) => {
    const { server, get, clock } = await setUp(t);
    server.on('/thing', serve(one, { headers }), answer(304));
    await get();
    clock.now += lifetime.freshFor;
    t.is(await get(), 'revalidated: the first version');
    t.is(server.asked[1]!.headers[condition], value);
    clock.now += lifetime.freshFor - 1;
    t.is(await get(), 'hit: the first version');
    t.is(server.asked.length, 2);
    clock.now += 1;
    t.is(await get(), 'revalidated: the first version');
  });
}

for (const [what, failure] of [
  ['5xx', answer(500)],
  ['429', answer(429, { 'retry-after': '120' })],
  ['silence', () => undefined],
  ['resets', (request: import('node:http').IncomingMessage) => void request.socket.resetAndDestroy()],
  ['a refusal', answer(403)],
  ['a body over the limit', answer(200, { 'content-length': 2 ** 40 })],
] as const) {
  test(`a stale document is served while the upstream fails (${what}), until its time is over`, async (t) => {
    const { server, get, clock } = await setUp(t, what === 'silence' ? { settings: { timeout: '2s' } } : {});
    server.on('/thing', serve(one), failure);
    await get();
    clock.now += lifetime.freshFor;
    t.is(await get(), 'stale: the first version');
    clock.now += lifetime.staleFor - 1;
    t.is(await get(), 'stale: the first version');
    clock.now += 1;
    const error = await t.throwsAsync(get());
    t.true(['UpstreamUnavailable', 'UpstreamTimeout'].includes(error.name));
    server.on('/thing', serve(two));
    clock.now += 2 * minute;
    t.is(await get(), 'miss: the second version');
  });
}

test('while the upstream is paused, a stale entry is served at once without a request, and a missing one is unavailable', async (t) => {
  const { server, get, clock, mirror, resource } = await setUp(t);
  server.on('/thing', serve(one));
  await get();
  clock.now += lifetime.freshFor;
  server.on('/thing', answer(429, { 'retry-after': '60' }));
  await get();
  const before = server.asked.length;
  clock.now += 59_000;
  for (let round = 0; round < 5; round += 1) t.is(await get(), 'stale: the first version');
  const error = await t.throwsAsync<DomainError>(mirror.open(resource('/other')), { name: 'UpstreamUnavailable' });
  t.is(error.detail?.['retryAfter'], 1);
  t.is(server.asked.length, before);
});

/** A stored entry that is stale, at an upstream that sends no answer until `release` is called. */
async function setUpHung(t: ExecutionContext, timeout = '3s') {
  const made = await setUp(t, { settings: { timeout } });
  const { server, get, clock } = made;
  server.on('/thing', serve(one));
  await get();
  clock.now += lifetime.freshFor;
  const { behaviour, release } = held(serve(two));
  server.on('/thing', behaviour);
  /** A request that waits for the upstream until its time is over. */
  const wait = async () => {
    const asked = server.asked.length;
    const waiting = get();
    await until(() => server.asked.length > asked);
    clock.now += 400;
    return waiting;
  };
  return { ...made, wait, release };
}

test('while one request waits for a hung upstream, others get the stale entry at once', async (t) => {
  const { server, get, clock, release } = await setUpHung(t, '20s');
  const states: string[] = [];
  const first = get().then((text) => states.push(text));
  await until(() => server.asked.length === 2);
  clock.now += 41;
  t.is(await within(get()), 'stale: the first version');
  t.deepEqual(states, [], 'the first one still waits');
  t.is(server.asked.length, 2);
  release();
  await first;
  t.deepEqual(states, ['miss: the second version']);
});

test('after a hang, stale entries are served at once, and the upstream is asked in the background', async (t) => {
  const { server, get, clock, wait, release, mirror, resource } = await setUpHung(t, '3s');
  server.on('/other', serve(one));
  const other = async () => {
    const entry = await mirror.open(resource('/other', { lifetime }));
    await readEntry(entry);
    await entry!.complete;
    return entry!.outcome;
  };
  clock.now -= 1;
  t.is(await other(), 'miss');
  clock.now += lifetime.freshFor;
  t.is(await wait(), 'stale: the first version');
  const { behaviour } = held(serve(two));
  server.on('/other', behaviour);
  t.is(await within(other(), 2000), 'stale', 'another entry of the upstream, before its request could time out');
  clock.now += minute;
  for (let round = 0; round < 5; round += 1) t.is(await get(), 'stale: the first version');
  await until(() => server.count('/thing') === 3);
  t.is(await get(), 'stale: the first version');
  t.is(server.count('/thing'), 3, 'one request at a time');
  release();
  await until(async () => {
    // The request may have failed before it was released: then a pause has to end.
    clock.now += 2000;
    return (await get()) === 'hit: the second version';
  });
});

test('a freshness period after a hang, one request waits again', async (t) => {
  const { clock, wait } = await setUpHung(t);
  t.is(await wait(), 'stale: the first version');
  clock.now += lifetime.freshFor;
  t.is(await wait(), 'stale: the first version');
});

test('an upstream that failed at once is asked before a stale entry is served', async (t) => {
  const { server, get, clock } = await setUp(t);
  server.on('/thing', serve(one), answer(403), serve(two));
  await get();
  clock.now += lifetime.freshFor;
  t.is(await get(), 'stale: the first version');
  clock.now += minute;
  t.is(await get(), 'miss: the second version');
});

test('an upstream that fails is never "not found"', async (t) => {
  const { server, get } = await setUp(t);
  await server.stop();
  await t.throwsAsync(get(), { name: 'UpstreamUnavailable' });
  await t.throwsAsync(get(), { name: 'UpstreamUnavailable' });
});

test('"not found" is cached for a while, and then requested again', async (t) => {
  const { server, get, clock } = await setUp(t);
  server.on('/thing', answer(404), serve(one));
  t.is(await get(), 'absent');
  clock.now += minute - 1;
  t.is(await get(), 'absent');
  t.is(server.asked.length, 1);
  clock.now += 1;
  t.is(await get(), 'miss: the first version');
});

test('content that the upstream has removed is not found, although an old copy is stored', async (t) => {
  const { server, get, clock } = await setUp(t);
  server.on('/thing', serve(one), answer(410), serve(two));
  await get();
  clock.now += lifetime.freshFor;
  t.is(await get(), 'absent');
  t.is(await get(), 'absent');
  clock.now += minute;
  t.is(await get(), 'miss: the second version');
});

test('immutable content is requested only once', async (t) => {
  const { server, clock, mirror, resource } = await setUp(t);
  server.on('/thing', serve(one));
  await readEntry(await mirror.open(resource('/thing')));
  await mirror.close();
  clock.now += 3650 * 24 * 60 * minute;
  await server.stop();
  const entry = await mirror.open(resource('/thing'));
  t.is(entry!.outcome, 'hit');
  t.is((await readEntry(entry)).toString(), one.toString());
});

test('offline serves stored entries of any age and sends no request', async (t) => {
  const online = await setUp(t);
  online.server.on('/thing', serve(one));
  await online.get();
  const connections = online.server.connections();
  for (const setup of [{ offline: true }, { settings: { mode: 'offline' } }]) {
    const { mirror, resource, clock } = await openMirror(t, online.server.url, { ...setup, data: online.data });
    clock.now = online.clock.now;
    const open = () => mirror.open(resource('/thing', { lifetime }));
    t.is((await open())!.outcome, 'hit');
    clock.now += lifetime.freshFor;
    const stale = await open();
    t.is(stale!.outcome, 'stale');
    t.is((await readEntry(stale)).toString(), one.toString());
    clock.now += 2 * lifetime.staleFor;
    t.is((await open())!.outcome, 'stale');
    await t.throwsAsync(mirror.open(resource('/other')), { name: 'UpstreamUnavailable', message: /offline/ });
  }
  t.is(online.server.connections(), connections);
});

test('a server that starts without its upstream serves the stored entries', async (t) => {
  const first = await setUp(t);
  first.server.on('/thing', serve(one));
  await first.get();
  await first.server.stop();
  const { mirror, resource, clock } = await openMirror(t, first.server.url, { data: first.data });
  clock.now = first.clock.now + lifetime.freshFor;
  const entry = await mirror.open(resource('/thing', { lifetime }));
  t.is(entry!.outcome, 'stale');
  t.is((await readEntry(entry)).toString(), one.toString());
});

/** Counts the queries to the database, but not whether a person dropped something, which comes from memory. */
function counting(count: { reads: number; writes: number }): (database: Database) => Database {
  return (database) =>
    changedDatabase(database, {
      select: (sql, values) => {
        count.reads += 1;
        return database.select(sql, values);
      },
      get: (sql, values) => {
        count.reads += 1;
        return database.get(sql, values);
      },
      getCached: (sql, values, options) => {
        if (!sql.includes('FROM mirror_drops')) count.reads += 1;
        return database.getCached(sql, values, options);
      },
      selectCached: (sql, values, options) => {
        count.reads += 1;
        return database.selectCached(sql, values, options);
      },
      transaction: (work) => {
        count.writes += 1;
        return database.transaction(work);
      },
    });
}

test('a warm hit makes no upstream request and touches no database', async (t) => {
  const count = { reads: 0, writes: 0 };
  const { server, get, entries } = await setUp(t, { wrap: counting(count) });
  server.on('/thing', serve(one));
  await get();
  Object.assign(count, { reads: 0, writes: 0 });
  for (let round = 0; round < 100; round += 1) t.is(await get(), 'hit: the first version');
  t.deepEqual(count, { reads: 0, writes: 0 });
  t.is(server.asked.length, 1);
  await entries.flushUses();
  t.is(count.writes, 1, 'a hundred uses are one write');
  await entries.flushUses();
  t.is(count.writes, 1, 'and none when there was none');
});

test('an entry without its blob is fetched again, or dropped if that fails', async (t) => {
  const { server, get, pathOf, clock } = await setUp(t);
  // Too large to be in memory.
  const text = one.toString().repeat(20_000);
  const large = Buffer.from(text);
  server.on('/thing', serve(large, { headers: { etag: '"v1"' } }));
  await get();
  const lose = () => unlink(pathOf(digestOf(large)));
  await lose();
  t.is(await get(), `miss: ${text}`);
  t.is(await get(), `hit: ${text}`);

  // A conditional request would get 304, and there would be nothing to serve.
  await lose();
  clock.now += lifetime.freshFor;
  server.on('/thing', (request, response) =>
    (request.headers['if-none-match'] ? answer(304) : serve(large))(request, response),
  );
  t.is(await get(), `miss: ${text}`);

  await lose();
  await server.stop();
  await t.throwsAsync(get(), { name: 'UpstreamUnavailable' });
});

test('many readers of an entry without its blob cause one fetch', async (t) => {
  const { server, mirror, get, pathOf } = await setUp(t);
  const again = held(serve(one));
  server.on('/thing', serve(one), again.behaviour);
  await get();
  await unlink(pathOf(digestOf(one)));
  const reading = Promise.all(Array.from({ length: 50 }, get));
  await until(() => mirror.counts.joined === 49);
  again.release();
  const answers = await reading;
  t.true(answers.every((each) => each.endsWith('the first version')));
  t.is(server.asked.length, 2);
});

test('the same bytes under two names are stored once', async (t) => {
  const { server, mirror, resource, blobCount } = await setUp(t);
  const bytes = randomBytes(10_000);
  for (const path of ['/a', '/b']) {
    server.on(path, serve(bytes));
    const entry = await mirror.open(resource(path));
    t.true((await readEntry(entry)).equals(bytes));
    await entry!.complete;
  }
  t.is(await blobCount(), 1);
});

test('an alias is the same entry under another name, without another request', async (t) => {
  const { server, mirror, resource } = await setUp(t);
  server.on('/latest', serve(one));
  const key = (reference: string) => ({ ...resource('').key, reference });
  const entry = await mirror.open(resource('/latest', { lifetime, aliases: ({ digest }) => [key(digest)] }));
  const { digest } = await entry!.complete;
  entry!.content.close();
  const byDigest = await mirror.open({ ...resource('/by-digest'), key: key(digest) });
  t.is(byDigest!.outcome, 'hit');
  t.is((await readEntry(byDigest)).toString(), one.toString());
  t.is(server.asked.length, 1);
  t.deepEqual(await mirror.references({ upstream: 'up.test', kind: 'thing', name: 'a' }, 10), ['/latest', digest]);
});

test('content with a too long type or validator is stored', async (t) => {
  const { server, get } = await setUp(t);
  const headers = {
    'content-type': 'x/'.padEnd(2000, 'y'),
    etag: `"${'e'.repeat(2000)}"`,
    'last-modified': 'z'.repeat(500),
  };
  server.on('/thing', serve(one, { headers }));
  t.is(await get(), 'miss: the first version');
  t.is(await get(), 'hit: the first version');
});
