import { randomBytes } from 'node:crypto';
import { createClient } from '@redis/client';
import test, { type ExecutionContext } from 'ava';
import { Cache } from '../../src/cache/cache.ts';
import { TableVersions, type RedisWriteSignal } from '../../src/cache/changes.ts';
import { RedisStore } from '../../src/cache/redis-store.ts';
import { ownRedis } from '../support/processes/redis.ts';
import { redisUrl } from '../support/processes/services.ts';
import { eventually, until } from '../support/until.ts';

async function changesOf(t: ExecutionContext, url: string, namespace: string): Promise<RedisWriteSignal> {
  const cache = await Cache.open(url, Date.now, () => undefined, namespace, 30_000);
  t.teardown(() => cache.close());
  return cache.changes!;
}

function anyNamespace(): string {
  return randomBytes(8).toString('hex');
}

/** A version without the part that changes with time. */
async function valueOf(changes: RedisWriteSignal, ...tables: string[]): Promise<string | undefined> {
  // On a busy machine an answer of Redis can be late, and nothing is known then for a second.
  await until(async () => (await changes.versions()) !== undefined);
  return (await versionOf(changes, tables.length === 0 ? undefined : tables))?.split(' ').slice(1).join(' ');
}

/** The version of all tables, or of some. */
async function versionOf(changes: RedisWriteSignal, tables?: readonly string[]): Promise<string | undefined> {
  return (await changes.versions())?.of(tables);
}

/** The same, as soon as there is one. */
async function known(changes: RedisWriteSignal): Promise<string> {
  await until(async () => (await changes.versions()) !== undefined);
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
    await writer.announce(undefined);
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
    t.is(await versionOf(changes), undefined, value);
    t.not(await known(changes), before);
  }
});

test('reads in one turn of the event loop share one answer; a later read gets a later answer', async (t) => {
  const changes = await changesOf(t, redisUrl(), anyNamespace());
  await known(changes);
  const [one, same] = [changes.versions(), changes.versions()];
  t.is(one, same);
  await one;
  t.not(changes.versions(), one);
});

test('no version is valid for long', async (t) => {
  const changes = await changesOf(t, redisUrl(), anyNamespace());
  const value = await known(changes);
  const first = await versionOf(changes);
  await until(async () => (await versionOf(changes)) !== first);
  t.is(await valueOf(changes), value);
});

test('a Redis that was emptied does not return an old version', async (t) => {
  const redis = await ownRedis(t);
  await redis.start();
  const changes = await changesOf(t, redis.url, 'emptied');
  const before = await known(changes);
  await redis.kill();
  t.is(await versionOf(changes), undefined);
  await redis.start();
  t.not(await known(changes), before);
});

test('an instance that cannot announce a write waits until every old version has expired', async (t) => {
  const redis = await ownRedis(t);
  const namespace = anyNamespace();
  const cutOff = await changesOf(t, redis.url, namespace);
  const reader = await changesOf(t, redisUrl(), namespace);
  const value = await known(reader);
  const before = await versionOf(reader);
  await cutOff.announce(['tags']);
  t.not(await versionOf(reader), before);
  t.is(await valueOf(reader), value, 'only the time has changed');
});

test('a write changes the versions of its tables only, on every instance', async (t) => {
  const namespace = anyNamespace();
  const [a, b] = [await changesOf(t, redisUrl(), namespace), await changesOf(t, redisUrl(), namespace)];
  await known(a);
  const [tags, tokens, both] = [['tags'], ['tokens'], ['tags', 'tokens']] as const;
  const all = async () => Promise.all([tags, tokens, both].map((tables) => valueOf(b, ...tables)));
  let before = await all();
  const whole = await valueOf(b);
  await a.announce(['tags', 'uploads']);
  const after = await all();
  t.not(after[0], before[0]);
  t.is(after[1], before[1], 'an unrelated table');
  t.not(after[2], before[2]);
  t.not(await valueOf(b), whole, 'a statement whose tables are not known');
  before = after;
  await b.announce(['tokens']);
  t.is((await all())[0], before[0], 'other versions are kept');
  t.not((await all())[1], before[1]);
  before = await all();
  await a.announce(undefined);
  for (const [index, version] of (await all()).entries()) t.not(version, before[index], 'a write to any table');
});

test('writes of two instances at the same time both change the versions', async (t) => {
  const namespace = anyNamespace();
  const instances = [await changesOf(t, redisUrl(), namespace), await changesOf(t, redisUrl(), namespace)];
  await known(instances[0]!);
  const tables = Array.from({ length: 30 }, (_, index) => `table_${index}`);
  const before = await Promise.all(tables.map((each) => valueOf(instances[0]!, each)));
  await Promise.all(tables.map((each, index) => instances[index % 2]!.announce([each])));
  const after = await Promise.all(tables.map((each) => valueOf(instances[1]!, each)));
  for (const [index, version] of after.entries()) t.not(version, before[index]);
  await instances[0]!.announce(['table_3']);
  t.is(await valueOf(instances[1]!, 'table_4'), after[4], 'none was lost');
});

test('instances of the version before, which know one version of everything, and this one see the writes of each other', async (t) => {
  const namespace = anyNamespace();
  const changes = await changesOf(t, redisUrl(), namespace);
  await known(changes);
  const older = await RedisStore.open(redisUrl(), namespace, () => undefined, 30_000);
  t.teardown(() => older.close());
  const written = () => older.get('written');
  const seen = async () => String((await eventually(written, (each) => each !== undefined))!.value);
  const first = await seen();
  await changes.announce(['tags']);
  t.not(await seen(), first);
  const before = await Promise.all([valueOf(changes, 'tags'), valueOf(changes, 'tokens')]);
  await older.set('written', { value: '0b3f9a3c-4c5e-4a6e-9d58-0f6f6c0ad001', until: Date.now() + 1000 }, 1000);
  const after = await Promise.all([valueOf(changes, 'tags'), valueOf(changes, 'tokens')]);
  t.not(after[0], before[0]);
  t.not(after[1], before[1]);
  await changes.announce(['tags']);
  t.is(await valueOf(changes, 'tokens'), after[1]);
});

test('a Redis whose user may not run scripts announces writes to all tables', async (t) => {
  const redis = await ownRedis(t);
  await redis.start();
  const admin = createClient({ url: redis.url });
  await admin.connect();
  t.teardown(() => admin.destroy());
  await admin.sendCommand(['ACL', 'SETUSER', 'plain', 'on', '>secret', '~*', '+@all', '-eval', '-evalsha']);
  const url = redis.url.replace('//', '//plain:secret@');
  const [a, b] = [await changesOf(t, url, 'scripts'), await changesOf(t, url, 'scripts')];
  await known(a);
  const before = await Promise.all([valueOf(b, 'tags'), valueOf(b, 'tokens')]);
  await a.announce(['tags']);
  t.not(await valueOf(b, 'tags'), before[0]);
  t.not(await valueOf(b, 'tokens'), before[1], 'more than needed');
});

test('versions of different times are different', (t) => {
  const [now, later] = [new TableVersions('a;tags:b', 1), new TableVersions('a;tags:b', 2)];
  for (const tables of [undefined, ['tags'], ['tokens']]) {
    t.not(later.of(tables), now.of(tables));
    t.is(new TableVersions('a;tags:b', 1).of(tables), now.of(tables));
  }
});
