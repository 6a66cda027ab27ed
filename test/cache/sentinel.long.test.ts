import test from 'ava';
import { Cache } from '../../src/cache/cache.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { startSentinelRedis, type SentinelRedis } from '../support/processes/redis-sentinel.ts';
import { freePort } from '../support/processes/services.ts';
import { until } from '../support/until.ts';
import type { ExecutionContext } from 'ava';

async function redisOf(t: ExecutionContext, sentinels: number): Promise<SentinelRedis> {
  const redis = await startSentinelRedis(await folderUntilEnd(t), { redis: 2, sentinels, downAfter: 500 });
  t.teardown(() => redis.stop());
  return redis;
}

async function openCache(t: ExecutionContext, url: string, errors: string[] = []): Promise<Cache> {
  const cache = await Cache.open(url, Date.now, (error) => errors.push((error as Error).message));
  t.teardown(() => cache.close());
  return cache;
}

test('the cache follows the primary of Sentinels through a fail-over, and with a Sentinel less', async (t) => {
  const redis = await redisOf(t, 3);
  const errors: string[] = [];
  const one = await openCache(t, redis.url, errors);
  await t.notThrowsAsync(one.check());
  await one.set('kept', 1, 600_000);
  t.is(await (await openCache(t, redis.url)).get('kept'), 1);
  await redis.killSentinel(0);
  const former = await redis.primary();
  await redis.kill(former);
  await t.throwsAsync(one.check());
  await until(
    async () =>
      one.check().then(
        () => true,
        () => false,
      ),
    30_000,
  );
  t.not(await redis.primary(), former);
  // A replica has the values.
  const later = await openCache(t, redis.url);
  await until(async () => (await later.get('kept')) === 1);
  t.is(errors.length, 1, errors.join('; '));
});

test('a start does not wait for Sentinels that are down or do not know the name, and logs it once', async (t) => {
  const redis = await redisOf(t, 1);
  const errors: string[] = [];
  const unknown = await openCache(t, redis.url.replace('/main', '/other'), errors);
  await t.throwsAsync(unknown.check());
  t.is(errors.length, 1);
  t.regex(errors[0]!, /no Sentinel names the primary other: the Sentinel at 127\.0\.0\.1:\d+ does not know it/);
  const startedAt = performance.now();
  const down = await openCache(t, `redis+sentinel://127.0.0.1:${await freePort()}/main`, errors);
  t.true(performance.now() - startedAt < 20_000);
  await t.throwsAsync(down.check());
  t.is(await down.get('key'), undefined);
});
