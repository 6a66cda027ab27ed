import { randomBytes } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import { Cache } from '../../src/cache/cache.ts';
import type { RedisWriteSignal } from '../../src/cache/changes.ts';

import { ownRedis } from '../support/processes/redis.ts';
import { redisUrl } from '../support/processes/services.ts';
import { until } from '../support/until.ts';

async function changesOf(t: ExecutionContext, url: string, namespace: string): Promise<RedisWriteSignal> {
  const cache = await Cache.open(url, Date.now, () => undefined, namespace);
  t.teardown(() => cache.close());
  return cache.changes!;
}

function anyNamespace(): string {
  return randomBytes(8).toString('hex');
}

/** A mark, without that part of it that time alone changes. */
async function valueOf(changes: RedisWriteSignal): Promise<string | undefined> {
  return (await changes.mark())?.split(' ')[0];
}

/** The same, once there is one. */
async function known(changes: RedisWriteSignal): Promise<string> {
  await until(async () => (await changes.mark()) !== undefined);
  return (await valueOf(changes))!;
}

test('without Redis there is nobody to bring word', async (t) => {
  const cache = await Cache.open(undefined, Date.now, () => undefined);
  t.is(cache.changes, undefined);
});

test('a mark stays while nobody writes, and is another one at once when any instance has', async (t) => {
  const namespace = anyNamespace();
  const [a, b] = [await changesOf(t, redisUrl(), namespace), await changesOf(t, redisUrl(), namespace)];
  const other = await changesOf(t, redisUrl(), anyNamespace());
  const before = { here: await known(a), other: await known(other) };
  t.is(await valueOf(b), before.here);
  t.not(before.other, before.here);
  const seen = new Set([before.here]);
  for (const [writer, reader] of [
    [a, b],
    [b, a],
    [a, a],
  ] as const) {
    await writer.tell();
    const mark = (await valueOf(reader))!;
    t.false(seen.has(mark));
    seen.add(mark);
  }
  t.is(await valueOf(other), before.other);
});

test('who asks in one turn of the event loop gets one answer; who asks later, a later one', async (t) => {
  const changes = await changesOf(t, redisUrl(), anyNamespace());
  await known(changes);
  const [one, same] = [changes.mark(), changes.mark()];
  t.is(one, same);
  await one;
  t.not(changes.mark(), one);
});

test('no mark is trusted for long', async (t) => {
  const changes = await changesOf(t, redisUrl(), anyNamespace());
  const value = await known(changes);
  const first = await changes.mark();
  await until(async () => (await changes.mark()) !== first);
  t.is(await valueOf(changes), value);
});

test('a Redis that is emptied brings back no mark from before', async (t) => {
  const redis = await ownRedis(t);
  await redis.start();
  const changes = await changesOf(t, redis.url, 'emptied');
  const before = await known(changes);
  await redis.kill();
  t.is(await changes.mark(), undefined);
  await redis.start();
  t.not(await known(changes), before);
});

test('an instance that cannot pass on the word waits until nobody trusts an older mark', async (t) => {
  const redis = await ownRedis(t);
  const namespace = anyNamespace();
  const cutOff = await changesOf(t, redis.url, namespace);
  const reader = await changesOf(t, redisUrl(), namespace);
  const value = await known(reader);
  const before = await reader.mark();
  await cutOff.tell();
  t.not(await reader.mark(), before);
  t.is(await valueOf(reader), value, 'by time alone');
});
