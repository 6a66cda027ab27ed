import { randomBytes } from 'node:crypto';
import { createClient } from '@redis/client';
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

/** A version without the part that changes with time. */
async function valueOf(changes: RedisWriteSignal): Promise<string | undefined> {
  return (await changes.version())?.split(' ')[0];
}

/** The same, as soon as there is one. */
async function known(changes: RedisWriteSignal): Promise<string> {
  await until(async () => (await changes.version()) !== undefined);
  return (await valueOf(changes))!;
}

test('without Redis there is no write signal', async (t) => {
  const cache = await Cache.open(undefined, Date.now, () => undefined);
  t.is(cache.changes, undefined);
});

test('a version stays until an instance writes, and then changes at once on every instance', async (t) => {
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
    await writer.announce();
    const version = (await valueOf(reader))!;
    t.false(seen.has(version));
    seen.add(version);
  }
  t.is(await valueOf(other), before.other);
});

test('a malformed value in place of the version is replaced', async (t) => {
  const namespace = anyNamespace();
  const changes = await changesOf(t, redisUrl(), namespace);
  const before = await known(changes);
  const client = createClient({ url: redisUrl() });
  await client.connect();
  t.teardown(() => client.destroy());
  for (const value of ['{"value":null}', '{"value":[]}', '{}', 'null', '"text"', 'x']) {
    t.truthy(
      await client.set(`${namespace}::written`, value, { condition: 'XX' }),
      'the key is where this test thinks it is',
    );
    t.is(await changes.version(), undefined, value);
    t.not(await known(changes), before);
  }
});

test('reads in one turn of the event loop share one answer; a later read gets a later answer', async (t) => {
  const changes = await changesOf(t, redisUrl(), anyNamespace());
  await known(changes);
  const [one, same] = [changes.version(), changes.version()];
  t.is(one, same);
  await one;
  t.not(changes.version(), one);
});

test('no version is valid for long', async (t) => {
  const changes = await changesOf(t, redisUrl(), anyNamespace());
  const value = await known(changes);
  const first = await changes.version();
  await until(async () => (await changes.version()) !== first);
  t.is(await valueOf(changes), value);
});

test('a Redis that was emptied does not return an old version', async (t) => {
  const redis = await ownRedis(t);
  await redis.start();
  const changes = await changesOf(t, redis.url, 'emptied');
  const before = await known(changes);
  await redis.kill();
  t.is(await changes.version(), undefined);
  await redis.start();
  t.not(await known(changes), before);
});

test('an instance that cannot announce a write waits until every old version has expired', async (t) => {
  const redis = await ownRedis(t);
  const namespace = anyNamespace();
  const cutOff = await changesOf(t, redis.url, namespace);
  const reader = await changesOf(t, redisUrl(), namespace);
  const value = await known(reader);
  const before = await reader.version();
  await cutOff.announce();
  t.not(await reader.version(), before);
  t.is(await valueOf(reader), value, 'only the time has changed');
});
