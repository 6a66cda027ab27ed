import { randomBytes } from 'node:crypto';
import type { OutgoingHttpHeaders } from 'node:http';
import test, { type ExecutionContext } from 'ava';
import { runFor, type Caller } from '../../src/runtime/caller.ts';
import { digestOf } from '../../src/runtime/digest.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { fetchFrom } from '../../src/mirror/fetch/fetch.ts';
import type { MirrorResource } from '../../src/mirror/fetch/resource.ts';
import { entryId, type EntryKey } from '../../src/mirror/store/entries.ts';
import { FetchPlaces } from '../../src/mirror/fetch/fetch-places.ts';
import { BackgroundTask } from '../../src/runtime/background-task.ts';
import { openMirror, readEntry, type MirrorSetup } from '../support/mirror.ts';
import { DiskReserve } from '../../src/storage/files/disk-reserve.ts';
import { held, serve, startFaultyUpstream, type Behaviour } from '../support/upstreams/faulty-upstream.ts';
import { until } from '../support/until.ts';

// An upstream that sends very slowly, but never stops, must not hold what others need.

/** Sends a byte of `bytes` every 20 ms. */
function trickle(bytes: Buffer, headers: OutgoingHttpHeaders = { 'content-length': bytes.length }): Behaviour {
  return (_request, response) => {
    response.writeHead(200, headers);
    let position = 0;
    const timer = setInterval(() => {
      response.write(bytes.subarray(position, position + 1));
      position += 1;
    }, 20);
    response.once('close', () => clearInterval(timer));
  };
}

async function setUp(t: ExecutionContext, setup: MirrorSetup = {}) {
  const server = await startFaultyUpstream(t);
  return { server, ...(await openMirror(t, server.url, { settings: { timeout: '2s' }, ...setup })) };
}

function caller(account: string): Caller {
  return { account, gone: false, whenGone: () => () => undefined };
}

function isFree(taken: unknown): boolean {
  return !(taken instanceof Promise);
}

/** The key of an entry of another upstream. */
function slowKey(reference: string): EntryKey {
  return { upstream: 'slow.test', kind: 'thing', name: 'a', reference };
}

for (const [size, what] of [
  [2 ** 20, 'a large body'],
  [60_000, 'a body of at most 64 KiB'],
] as const) {
  test(`${what} that an upstream sends a byte at a time is cut, told and not resumed`, async (t) => {
    const { server, mirror, resource, upstream, lines } = await setUp(t);
    const bytes = randomBytes(size);
    server.on('/thing', trickle(bytes));
    const thing = resource('/thing', { digest: digestOf(bytes), idle: 30_000 });
    const startedAt = performance.now();
    const entry = await mirror.open(thing);
    const error = await t.throwsAsync(readEntry(entry));
    t.like(error, { name: 'UpstreamUnavailable' });
    t.true(performance.now() - startedAt > (size > 65_536 ? 5800 : 1900), 'not before the time is over');
    t.is(server.asked.length, 1);
    t.is(upstream.counts.slowBodies, 1);
    const told = `sent fewer than ${size > 65_536 ? '6144 bytes of a body in 6' : '65536 bytes of a body in 2'} s`;
    t.true(lines.some((line) => line.includes(told)));
    server.on('/thing', serve(bytes));
    t.true((await readEntry(await mirror.open(thing))).equals(bytes), 'the next request succeeds');
  });
}

test('a document that comes a byte at a time ends in the time-out, also without a length', async (t) => {
  const { server, mirror, resource } = await setUp(t);
  const document = { whole: true, lifetime: { freshFor: 0, staleFor: 60_000 }, idle: 30_000 };
  const trickled = trickle(Buffer.alloc(2 ** 20), {});
  server.on('/thing', serve(Buffer.from('{}')), trickled);
  t.is((await mirror.open(resource('/thing', document, { document: true })))?.outcome, 'miss');
  const second = await mirror.open(resource('/thing', document, { document: true }));
  t.is(second?.outcome, 'stale', 'the stored one is served instead');
  t.is(String(await readEntry(second)), '{}');
});

test('a slow reader, and a limited rate of a background task, are not faults of the upstream', async (t) => {
  const bytes = randomBytes(4 * 2 ** 20);
  const { server, mirror, resource, upstream } = await setUp(t, {
    settings: { timeout: '1s' },
    mirror: { room: new DiskReserve('/', 0, () => Promise.resolve(-1)) },
  });
  server.on('/thing', serve(bytes));
  server.on('/other', serve(bytes.subarray(0, 200_000)));
  const entry = await mirror.open(resource('/thing', { digest: digestOf(bytes), idle: 60_000 }));
  t.is(entry?.outcome, 'passed');
  const piece = Buffer.alloc(1000);
  t.true((await entry!.content.read(piece, 0)) > 0);
  const task = new BackgroundTask(new AbortController().signal, 50_000);
  const other = await task.run(() =>
    mirror.open(resource('/other', { digest: digestOf(bytes.subarray(0, 200_000)), idle: 60_000 })),
  );
  t.is((await readEntry(other)).length, 200_000);
  t.true((await readEntry(entry)).equals(bytes));
  t.is(upstream.counts.slowBodies, 0);
});

test('a fetch without readers ends after a while, and the next reader continues it', async (t) => {
  const bytes = randomBytes(300_000);
  const { server, mirror, resource, upstream } = await setUp(t, {
    settings: { timeout: '60s' },
    mirror: { unreadTime: 200 },
  });
  server.on('/thing', serve(bytes, { until: 100_000, how: 'stall' }), serve(bytes));
  const fetch: MirrorResource['fetch'] = (_known, signal) =>
    fetchFrom(upstream, { url: new URL('/thing', server.url), subject: 'thing', signal });
  const thing = resource('/thing', { digest: digestOf(bytes), idle: 60_000, fetch });
  const entry = await mirror.open(thing);
  await entry!.content.read(Buffer.alloc(1000), 0);
  entry!.content.close();
  t.is(mirror.flights, 1, 'little is missing');
  await until(() => mirror.flights === 0);
  t.true((await readEntry(await mirror.open(thing))).equals(bytes));
  t.is(server.asked.at(-1)?.range, 'bytes=100000-');
});

test('a complete body whose readers have left is stored or refused, not kept as a beginning', async (t) => {
  const bytes = randomBytes(300_000);
  const unreadTime = 50;
  const { server, mirror, resource, blobCount, staged } = await setUp(t, { mirror: { unreadTime } });
  server.on('/thing', serve(bytes));
  for (const isRight of [false, true]) {
    const verifying = Promise.withResolvers<void>();
    const verified = Promise.withResolvers<Record<string, never>>();
    const verify = () => {
      verifying.resolve();
      return verified.promise;
    };
    const entry = await mirror.open(resource('/thing', { digest: digestOf(bytes), verify }));
    await verifying.promise;
    entry!.content.close();
    // A timer that was set earlier has fired before.
    setTimeout(() => (isRight ? verified.resolve({}) : verified.reject(new Error('wrong'))), unreadTime);
    await until(() => mirror.flights === 0);
    t.deepEqual(await staged(), []);
    t.is(await blobCount(), isRight ? 1 : 0);
    t.is(server.asked.at(-1)!.range, undefined);
  }
  t.is(server.asked.length, 2);
});

test('an upstream uses at most as many places of an account as it leaves free', async (t) => {
  const slots = new FetchPlaces({ max: 8, wait: 60_000 });
  const first = caller('one');
  const slow = Array.from({ length: 8 }, () => slots.take(first, 'slow'));
  t.is(slow.filter(isFree).length, 5);
  t.is(slots.waiting('slow'), 3);
  const others = Array.from({ length: 3 }, () => slots.take(first, 'other'));
  t.is(others.filter(isFree).length, 2);
  t.true(isFree(slots.take(first, 'third')), 'there is still one for a third');
  t.true(isFree(slots.take(caller('two'), 'slow')), 'another account has its own');
  // The released places are for `other`, because `slow` uses more than it leaves free.
  const waits = slow.filter((each) => each instanceof Promise);
  for (const each of slow.slice(0, 2)) (each as () => void)();
  const release = await (others[2] as Promise<() => void>);
  t.is(slots.waiting('slow'), 3);
  for (const each of [...slow.slice(2, 5), ...others.slice(0, 2)]) (each as () => void)();
  release();
  for (const each of waits) (await each)();
  t.is(slots.waiting('slow'), 0);
});

test('a fetch that waits for long is reported, and refused later', async (t) => {
  const reported: string[] = [];
  const slots = new FetchPlaces({ max: 1, wait: 120, report: (upstream, account) => reported.push(upstream, account) });
  const release = slots.take(caller('one'), 'slow') as () => void;
  const error = await t.throwsAsync(slots.take(caller('one'), 'slow') as Promise<() => void>);
  t.like(error, { name: 'TooManyRequests' });
  t.deepEqual(reported, ['slow', 'one']);
  release();
  t.false(slots.take(caller('one'), 'slow') instanceof Promise);
});

test('one trickling upstream does not stop cold fetches from another', async (t) => {
  const { server, mirror, resource, lines } = await setUp(t, {
    settings: { timeout: '60s' },
    mirror: { accountFetches: 8 },
  });
  const bytes = randomBytes(100_000);
  for (let index = 0; index < 12; index += 1) server.on(`/slow/${index}`, trickle(bytes));
  server.on('/quick', serve(bytes));
  const work = () =>
    Array.from({ length: 12 }, (_, index) =>
      mirror.open(resource(`/slow/${index}`, { key: slowKey(`${index}`), idle: 60_000, digest: digestOf(`${index}`) })),
    );
  const slow = runFor(caller('one'), work);
  for (const each of slow) each.catch(() => undefined);
  await until(() => server.asked.length === 5);
  t.is(mirror.waiting('slow.test'), 7);
  const quick = await runFor(caller('one'), () => mirror.open(resource('/quick', { digest: digestOf(bytes) })));
  t.true((await readEntry(quick)).equals(bytes));
  t.is(server.asked.filter(({ path }) => path.startsWith('/slow')).length, 5);
  t.deepEqual(
    lines.filter((line) => line.includes('places')),
    [],
    'not told before they have waited',
  );
});

test('what is stored, and is not in the cache, waits for no place and does not count as a fetch', async (t) => {
  let admitted = 0;
  const admit = () => void (admitted += 1);
  const { server, mirror, resource, cache } = await setUp(t, {
    settings: { timeout: '60s' },
    mirror: { accountFetches: 1, admit },
  });
  const bytes = Buffer.from('stored');
  const slow = held(serve(bytes));
  server.on('/stored', serve(bytes));
  server.on('/slow', slow.behaviour);
  const open = (path: string) => runFor(caller('one'), () => mirror.open(resource(path, { idle: 60_000 })));
  t.is(String(await readEntry(await open('/stored'))), 'stored');
  const waiting = open('/slow');
  await until(() => server.count('/slow') === 1);
  await cache.delete(`entry:${entryId(resource('/stored').key)}`);
  const entry = open('/stored');
  let outcome: string | undefined;
  void entry.then((opened) => (outcome = opened?.outcome));
  await until(() => outcome !== undefined || mirror.waiting('up.test') > 0);
  t.is(outcome, 'hit');
  t.deepEqual([admitted, server.count('/stored')], [2, 1]);
  slow.release();
  for (const each of [await entry, await waiting]) t.is(String(await readEntry(each)), 'stored');
});

test('a stale entry is served while the account may fetch no more', async (t) => {
  let isRefused = false;
  const refusal = new DomainError('TooManyRequests', 'Later.');
  const admit = () => (isRefused ? Promise.reject(refusal) : undefined);
  const { server, mirror, resource, clock } = await setUp(t, { mirror: { admit } });
  clock.now = Date.now();
  server.on('/thing', serve(Buffer.from('{}')));
  const open = () => mirror.open(resource('/thing', { lifetime: { freshFor: 1000, staleFor: 60_000 } }));
  t.is(String(await readEntry(await open())), '{}');
  isRefused = true;
  clock.now += 2000;
  const stale = await open();
  t.is(stale?.outcome, 'stale');
  t.is(String(await readEntry(stale)), '{}');
  clock.now += 60_000;
  t.is(await t.throwsAsync(open()), refusal);
  t.is(server.asked.length, 1);
});
