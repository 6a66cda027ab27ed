import test, { type ExecutionContext } from 'ava';
import { randomBytes } from 'node:crypto';
import { createClient } from '@redis/client';
import { Cache } from '../../src/cache/cache.ts';
import { answer, serve, startFaultyUpstream, startRawUpstream } from '../support/upstreams/faulty-upstream.ts';
import { openMirror, readEntry } from '../support/mirror.ts';
import { ownRedis } from '../support/processes/redis.ts';
import { redisUrl } from '../support/processes/services.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { until } from '../support/until.ts';

async function openCache(
  t: ExecutionContext,
  url: string | undefined,
  now = Date.now,
  namespace = randomBytes(8).toString('hex'),
) {
  const errors: unknown[] = [];
  const cache = await Cache.open(url, now, (error) => errors.push(error), namespace);
  t.teardown(() => cache.close());
  return { cache, errors, namespace };
}

for (const [kind, url] of [
  ['memory alone', () => undefined],
  ['Redis', redisUrl],
] as const) {
  test.serial(`${kind}: a value can be read as JSON until it is deleted`, async (t) => {
    const { cache, errors } = await openCache(t, url());
    t.is(await cache.get('a'), undefined);
    for (const value of ['text', '', 0, 7.5, true, false, [1, 'b'], { c: { d: null } }, 'ünïcode \u0000']) {
      await cache.set('a', value, 10_000);
      t.deepEqual(await cache.get('a'), value);
      t.deepEqual(cache.peek('a'), value);
    }
    await cache.set('b', 'other', 10_000);
    await cache.delete('a');
    t.is(await cache.get('a'), undefined);
    t.is(cache.peek('a'), undefined);
    t.is(await cache.get('b'), 'other');
    t.deepEqual(errors, []);
  });

  test.serial(`${kind}: a value can be read until it expires`, async (t) => {
    let now = Date.now();
    const { cache } = await openCache(t, url(), () => now);
    await cache.set('a', 1, 5000);
    await cache.set('b', 2, 10_000);
    now += 4999;
    t.is(await cache.get('a'), 1);
    now += 1;
    t.is(await cache.get('a'), undefined);
    t.is(cache.peek('a'), undefined);
    t.is(await cache.get('b'), 2);
    await cache.set('a', 3, 1000);
    t.is(await cache.get('a'), 3);
  });

  test.serial(`${kind}: memory is bounded`, async (t) => {
    const { cache } = await openCache(t, url());
    const big = 'x'.repeat(4 * 2 ** 20);
    for (let index = 0; index < 20; index += 1) await cache.set(`big-${index}`, big, 10_000);
    const kept = Array.from({ length: 20 }, (_, index) => cache.peek(`big-${index}`)).filter(Boolean).length;
    t.true(kept < 17, `${kept * 4} MiB kept`);
    t.truthy(cache.peek('big-19'));
    await t.notThrowsAsync(cache.set('too big for this process', 'x'.repeat(70 * 2 ** 20), 10_000));
  });

  test.serial(`${kind}: closing twice, and use after closing, are no errors`, async (t) => {
    const { cache } = await openCache(t, url());
    await cache.set('a', 1, 10_000);
    await cache.close();
    await cache.close();
    t.is(await cache.get('unknown'), undefined);
    await t.notThrowsAsync(cache.set('b', 1, 1000));
    await t.notThrowsAsync(cache.delete('b'));
  });
}

test.serial('instances share what Redis holds; another namespace does not', async (t) => {
  const { cache: a, namespace } = await openCache(t, redisUrl());
  const { cache: b } = await openCache(t, redisUrl(), Date.now, namespace);
  const { cache: other } = await openCache(t, redisUrl());
  await a.set('key', { n: 1 }, 10_000);
  t.is(b.peek('key'), undefined);
  t.deepEqual(await b.get('key'), { n: 1 });
  t.deepEqual(b.peek('key'), { n: 1 });
  t.is(await other.get('key'), undefined);
  await a.delete('key');
  const { cache: later } = await openCache(t, redisUrl(), Date.now, namespace);
  t.is(await later.get('key'), undefined, 'a deleted value is deleted for later readers');
});

test.serial('after the clock was set back, a value does not live longer than its time', async (t) => {
  let now = Date.now();
  const { cache: a, namespace } = await openCache(t, redisUrl(), () => now);
  const { cache: b } = await openCache(t, redisUrl(), () => now, namespace);
  await a.set('key', 1, 3_600_000);
  now -= 60_000;
  t.is(await a.get('key'), 1, 'clocks of instances may differ by a minute');
  now -= 1;
  t.is(await a.get('key'), undefined);
  t.is(a.peek('key'), undefined);
  t.is(await b.get('key'), undefined, 'not from Redis either');
});

test.serial('a value that is too large for Redis replaces a smaller one there', async (t) => {
  const { cache: a, namespace } = await openCache(t, redisUrl());
  const { cache: b } = await openCache(t, redisUrl(), Date.now, namespace);
  await a.set('key', 'old', 10_000);
  await a.set('key', 'x'.repeat(3 * 2 ** 20), 10_000);
  t.is(await b.get('key'), undefined, 'not the old one');
});

test.serial('a value of another instance also expires in the memory of this one', async (t) => {
  let now = Date.now();
  const { cache: a, namespace } = await openCache(t, redisUrl(), () => now);
  const { cache: b } = await openCache(t, redisUrl(), () => now, namespace);
  await a.set('key', 1, 5000);
  t.is(await b.get('key'), 1);
  now += 5000;
  t.is(await b.get('key'), undefined);
});

test.serial('a malformed value of another program is a miss and does no harm', async (t) => {
  const { cache, errors, namespace } = await openCache(t, redisUrl());
  const client = createClient({ url: redisUrl() });
  await client.connect();
  t.teardown(() => client.destroy());
  for (const garbage of [
    'garbage',
    '7',
    'null',
    '[]',
    '{"value":7}',
    '{"value":null}',
    '{"value":{"value":1},"expires":null}',
    `{"value":{"until":${Date.now() + 10_000}}}`,
  ]) {
    await client.set(`${namespace}::key`, garbage);
    t.is(await cache.get('key'), undefined, garbage);
  }
  t.deepEqual(errors, []);
  await cache.set('key', 'mine', 10_000);
  t.truthy(await client.get(`${namespace}::key`), 'the key is where this test thinks it is');
});

async function timed<T>(work: Promise<T>): Promise<{ result: T; took: number }> {
  const started = performance.now();
  const result = await work;
  return { result, took: performance.now() - started };
}

/** More than one wait for Redis, which takes 300 or 500 ms, and less than the many of these tests; milliseconds. */
const oneWait = 10_000;

test.serial('an unreachable Redis delays the start by at most one wait, and no later command', async (t) => {
  const redis = await ownRedis(t);
  const { result, took } = await timed(openCache(t, redis.url));
  t.true(took < oneWait, `${took} ms`);
  const { cache, errors } = result;
  const all = await timed(
    (async () => {
      for (let index = 0; index < 100; index += 1) {
        await cache.set(`key-${index}`, index, 10_000);
        t.is(await cache.get(`key-${index}`), index);
        await cache.get(`missing-${index}`);
      }
    })(),
  );
  t.true(all.took < oneWait, `${all.took} ms`);
  t.is(errors.length, 1, 'reported once, not with each request');

  await redis.start();
  const { cache: other } = await openCache(t, redis.url, Date.now, result.namespace);
  await until(async () => {
    await cache.set('after', 'recovered', 10_000);
    return (await other.get('after')) === 'recovered';
  });
});

test.serial('a Redis that never answers delays the start by at most one wait', async (t) => {
  const silent = await startRawUpstream(t, () => undefined);
  const { took, result } = await timed(openCache(t, `redis://${silent.host}`));
  t.true(took < oneWait, `${took} ms`);
  const get = await timed(result.cache.get('key'));
  t.true(get.took < oneWait, `${get.took} ms`);
});

test.serial(
  'a Redis that stops answering causes one short wait, not one per command; the cache recovers',
  async (t) => {
    const redis = await ownRedis(t);
    await redis.start();
    const { cache, namespace } = await openCache(t, redis.url);
    const { cache: other } = await openCache(t, redis.url, Date.now, namespace);
    await other.set('key', 'shared', 100_000);
    redis.freeze();
    const first = await timed(cache.get('key'));
    t.is(first.result, undefined);
    t.true(first.took < oneWait, `${first.took} ms`);
    // One after the other: if each of them waited for Redis, that would take 30 seconds.
    const more = await timed(
      (async () => {
        for (let index = 0; index < 100; index += 1) await cache.get(`key-${index}`);
      })(),
    );
    t.true(more.took < oneWait, `${more.took} ms`);
    redis.thaw();
    await until(async () => (await cache.get('key')) === 'shared');
    t.pass();
  },
);

test.serial(
  'with Redis killed and emptied during traffic, answers stay the same, none is slow, and the cache recovers',
  async (t) => {
    const redis = await ownRedis(t);
    await redis.start();
    const server = await startFaultyUpstream(t);
    const documents = new Map(Array.from({ length: 20 }, (_, index) => [`/doc-${index}`, randomBytes(500)]));
    for (const [path, body] of documents) server.on(path, serve(body, { headers: { etag: `"${path}"` } }));
    server.on('/missing', answer(404));
    const { mirror, resource, clock } = await openMirror(t, server.url, { redisUrl: redis.url });
    clock.now = 1_700_000_000_000;
    const lifetime = { freshFor: 60_000, staleFor: 600_000 };
    let slowest = 0;
    let answers = 0;
    const state = { going: true };
    const traffic = Array.from({ length: 4 }, async () => {
      while (state.going) {
        for (const [path, body] of documents) {
          const { result, took } = await timed(mirror.open(resource(path, { lifetime })));
          slowest = Math.max(slowest, took);
          if (!(await readEntry(result)).equals(body)) throw new Error(`another answer for ${path}`);
          answers += 1;
        }
        if (await mirror.open(resource('/missing'))) throw new Error('found what is missing');
        await new Promise((resolve) => setTimeout(resolve, 1));
      }
    });
    // Time passes, so that documents are requested again and written to the cache all the time.
    const age = () => (clock.now! += 61_000);
    const some = async () => {
      const enough = answers + 200;
      age();
      await Promise.race([until(() => answers >= enough), ...traffic]);
    };
    await some();
    await redis.kill();
    await some();
    await some();
    await redis.start();
    await some();
    redis.freeze();
    await some();
    redis.thaw();
    await some();
    state.going = false;
    await Promise.all(traffic);
    t.true(slowest < oneWait, `${slowest} ms`);
    t.true(server.asked.length < 20 * 12, 'the database has what Redis lost');
  },
);

test('memory keeps short values up to the memory that they really take', async (t) => {
  const { cache } = await openCache(t, undefined);
  const count = 300_000;
  for (let index = 0; index < count; index += 1) await cache.set(`absent:${index}`, true, 60_000);
  t.is(cache.peek('absent:0'), undefined);
  t.true(cache.peek(`absent:${count - 1}`));
});

for (const [what, write] of [
  ['a value', (cache: Cache) => cache.check().then(() => true)],
  [
    'a script',
    async (cache: Cache) => (await cache.evaluate("return redis.call('SET', KEYS[1], 'x')", 'key', [])) === 'OK',
  ],
] as const) {
  test.serial(`after a fail-over behind one address, ${what} reaches the new primary`, async (t) => {
    const [former, next] = [await ownRedis(t), await ownRedis(t)];
    await Promise.all([former.start(), next.start()]);
    const [from, to] = [new URL(former.url), new URL(next.url)];
    const proxy = new TcpProxy({ host: from.hostname, port: Number(from.port) });
    t.teardown(() => proxy.close());
    const { cache } = await openCache(t, `redis://127.0.0.1:${await proxy.listen()}`);
    const works = () => write(cache).catch(() => false);
    await until(works);
    proxy.lead({ host: to.hostname, port: Number(to.port) });
    // The former primary keeps its connections, and goes on to answer.
    const operator = createClient({ url: former.url });
    await operator.connect();
    t.teardown(() => operator.destroy());
    await operator.sendCommand(['REPLICAOF', to.hostname, to.port]);
    t.false(await works());
    await until(works);
  });
}
