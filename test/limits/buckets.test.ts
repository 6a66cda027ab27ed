import { createClient } from '@redis/client';
import test from 'ava';
import { Cache } from '../../src/cache/cache.ts';
import { MemoryBuckets, maxKeys, SharedBuckets, type TakeUnit } from '../../src/limits/buckets.ts';
import { ownRedis } from '../support/processes/redis.ts';
import { until } from '../support/until.ts';

const rate = { quota: 60 };

/** Takes more than the quota, at a clock that stands still or is much slower than that. */
async function overuse(take: TakeUnit, patience: number): Promise<number[]> {
  const waits: number[] = [];
  for (let each = 0; each < rate.quota + 4; each += 1) waits.push((await take('a', rate, patience)).wait);
  return waits;
}

test('a bucket gives its quota at once, then one unit a step, and refuses what is not free within the patience', async (t) => {
  const clock = { now: 1_000_000 };
  const buckets = new MemoryBuckets(() => clock.now);
  const waits = await overuse((...unit) => buckets.take(...unit), 2000);
  t.deepEqual(waits.slice(0, 60), Array<number>(60).fill(0));
  t.deepEqual(waits.slice(60), [1000, 2000, 3000, 3000], 'what is refused takes no unit');
  t.like(buckets.take('b', rate, 0), { wait: 0, reset: 1000 });
  clock.now += 3000;
  t.like(buckets.take('a', rate, 0), { wait: 0, reset: 60_000 });
  t.deepEqual(buckets.take('a', rate, 0), { wait: 1000, reset: 60_000 });
  const one = [0, 0, 0, 60_000].map((patience) => buckets.take('c', { quota: 1 }, patience).wait);
  t.deepEqual(one, [0, 60_000, 60_000, 60_000]);
  t.is(buckets.take('c', { quota: 1 }, 60_000).wait, 120_000, 'the longest wait of all, for which no unit was taken');
});

test('a unit that is given back can be taken again, and no bucket has more than its quota', (t) => {
  const buckets = new MemoryBuckets(() => 1_000_000);
  const one = { quota: 1 };
  buckets.giveBack('a', one);
  for (let count = 0; count < 3; count += 1) {
    t.is(buckets.take('a', one, 0).wait, 0);
    t.not(buckets.take('a', one, 0).wait, 0);
    buckets.giveBack('a', one);
    buckets.giveBack('a', one);
  }
  const two = { quota: 2 };
  const wait = () => buckets.take('b', two, 0).wait;
  t.deepEqual([wait(), wait(), wait()], [0, 0, 30_000]);
  buckets.giveBack('b', two);
  t.deepEqual([wait(), wait()], [0, 30_000]);
});

test('a clock that is set back does not refuse for long', (t) => {
  const clock = { now: 1e12 };
  const buckets = new MemoryBuckets(() => clock.now);
  buckets.take('a', { quota: 1 }, 0);
  clock.now -= 86_400_000;
  t.is(buckets.take('a', { quota: 1 }, 0).wait, 0);
});

test('the number of keys in memory is limited, and the one unused for longest is forgotten', (t) => {
  const buckets = new MemoryBuckets(() => 0);
  const one = { quota: 1 };
  buckets.take('first', one, 0);
  buckets.take('second', one, 0);
  for (let each = 0; each < maxKeys - 1; each += 1) {
    if (each % 1000 === 0) t.not(buckets.take('second', one, 0).wait, 0);
    buckets.take(`address ${each}`, one, 0);
  }
  t.is(buckets.size, maxKeys);
  t.not(buckets.take('second', one, 0).wait, 0, 'a client that continues stays limited');
  t.is(buckets.take('first', one, 0).wait, 0);
});

test('buckets in Redis count as those in memory, for all instances together, and go on in memory without Redis', async (t) => {
  const redis = await ownRedis(t);
  await redis.start();
  const caches = await Promise.all([1, 2].map(() => Cache.open(redis.url, Date.now, () => undefined)));
  t.teardown(() => Promise.all(caches.map((cache) => cache.close())));
  for (const cache of caches)
    await until(() =>
      cache.check().then(
        () => true,
        () => false,
      ),
    );
  const [one, two] = caches.map((cache) => new SharedBuckets(cache, new MemoryBuckets(() => 0)));
  const few = { quota: 4 };
  const waits: number[] = [];
  for (let each = 0; each < 8; each += 1) waits.push((await (each % 2 ? one! : two!).take('a', few, 30_000)).wait);
  t.deepEqual(waits.slice(0, 4), [0, 0, 0, 0]);
  for (const [index, expected] of [15_000, 30_000, 45_000, 45_000].entries()) {
    const wait = waits[4 + index]!;
    t.true(wait <= expected && wait > expected - 10_000, `${wait} of ${expected}`);
  }
  const { wait, reset } = await two!.take('b', { quota: 1 }, 0);
  t.is(wait, 0);
  t.true(reset > 50_000 && reset <= 60_000, `${reset}`);
  t.not((await one!.take('b', { quota: 1 }, 0)).wait, 0);
  for (const buckets of [one!, two!]) await buckets.giveBack('b', { quota: 1 });
  t.is((await one!.take('b', { quota: 1 }, 0)).wait, 0);
  t.not((await two!.take('b', { quota: 1 }, 0)).wait, 0, 'one unit in all');

  await redis.kill();
  t.deepEqual(await overuse((...unit) => one!.take(...unit), 2000), [
    ...Array<number>(60).fill(0),
    1000,
    2000,
    3000,
    3000,
  ]);
  for (let each = 0; each < 3; each += 1) await one!.giveBack('a', rate);
  t.is((await one!.take('a', rate, 0)).wait, 0, 'a unit is given back to the bucket in memory');
});

test('a Redis that runs no scripts still keeps values, and limits count in memory', async (t) => {
  const redis = await ownRedis(t);
  await redis.start();
  const client = createClient({ url: redis.url });
  await client.connect();
  await client.sendCommand(['ACL', 'SETUSER', 'plain', 'on', '>secret', '~*', '&*', '+@all', '-eval', '-evalsha']);
  client.destroy();
  const errors: unknown[] = [];
  const url = redis.url.replace('redis://', 'redis://plain:secret@');
  const cache = await Cache.open(url, Date.now, (error) => errors.push(error));
  t.teardown(() => cache.close());
  await until(() =>
    cache.check().then(
      () => true,
      () => false,
    ),
  );
  const buckets = new SharedBuckets(cache, new MemoryBuckets(() => 0));
  t.is((await buckets.take('a', { quota: 1 }, 0)).wait, 0);
  t.is((await buckets.take('a', { quota: 1 }, 0)).wait, 60_000);
  await until(() =>
    cache.check().then(
      () => true,
      () => false,
    ),
  );
  t.is(errors.filter((error) => String(error).includes('NOPERM')).length, 1, 'the log has it once');
});
