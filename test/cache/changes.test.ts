import { randomBytes } from 'node:crypto';
import { createClient } from '@redis/client';
import test, { type ExecutionContext } from 'ava';
import { RedisWriteSignal } from '../../src/cache/changes.ts';
import { RedisStore } from '../../src/cache/redis-store.ts';
import { freePort, redisUrl } from '../support/processes/services.ts';

// On the Redis of the run. `changes.long.test.ts` has several instances, and Redis servers that end.

/** How long a version is valid that could not be renewed; milliseconds. */
const lifetime = 200;

/** A signal on the Redis at `url`, with keys of its own. */
async function signalOn(t: ExecutionContext, url = redisUrl(), timeout = 30_000) {
  const namespace = randomBytes(8).toString('hex');
  const store = await RedisStore.open(url, namespace, () => undefined, timeout);
  t.teardown(() => store.close());
  return { signal: new RedisWriteSignal(store), key: `${namespace}::written` };
}

type Client = Awaited<ReturnType<typeof clientOf>>;

async function clientOf(t: ExecutionContext) {
  const client = createClient({ url: redisUrl() });
  await client.connect();
  t.teardown(() => client.destroy());
  return client;
}

/** The address for a user of the Redis of the run who may not run scripts. */
async function withoutScripts(t: ExecutionContext, client: Client): Promise<string> {
  const user = randomBytes(8).toString('hex');
  await client.sendCommand(['ACL', 'SETUSER', user, 'on', '>secret', '~*', '+@all', '-eval', '-evalsha']);
  t.teardown(async () => {
    const admin = await createClient({ url: redisUrl() }).connect();
    await admin.sendCommand(['ACL', 'DELUSER', user]);
    admin.destroy();
  });
  return redisUrl().replace('//', `//${user}:secret@`);
}

/** The version of all tables, and those of some by their names. */
async function stored(client: Client, key: string): Promise<{ all: string; tables: Record<string, string> }> {
  const { value } = (JSON.parse((await client.get(key))!) as { value: { value: string } }).value;
  const [all, ...tables] = value.split(';');
  return { all: all!, tables: Object.fromEntries(tables.map((each) => each.split(':', 2) as [string, string])) };
}

test('a write changes the versions of its tables, and one to any table that of all', async (t) => {
  const client = await clientOf(t);
  const { signal, key } = await signalOn(t);
  await signal.announce(undefined);
  const first = await stored(client, key);
  t.deepEqual(first.tables, {});
  await signal.announce(['tags', 'blobs']);
  const second = await stored(client, key);
  t.deepEqual([second.all, Object.keys(second.tables)], [first.all, ['tags', 'blobs']]);
  await signal.announce(['tags']);
  const third = await stored(client, key);
  t.deepEqual([third.all, third.tables['blobs']], [first.all, second.tables['blobs']]);
  t.not(third.tables['tags'], second.tables['tags']);
  await signal.announce(undefined);
  const last = await stored(client, key);
  t.not(last.all, first.all);
  t.deepEqual(last.tables, {}, 'no table has a version of its own any more');
});

/** Milliseconds that so many announcements take, one after the other. */
async function timeOf(signal: RedisWriteSignal, count: number): Promise<number> {
  const startedAt = performance.now();
  for (let time = 0; time < count; time += 1) await signal.announce(['tags']);
  return performance.now() - startedAt;
}

test('a write that cannot be announced to its tables is announced to all, else it waits until every version has expired', async (t) => {
  const client = await clientOf(t);
  const [working, plain] = [await signalOn(t), await signalOn(t, await withoutScripts(t, client))];
  const away = await signalOn(t, `redis://127.0.0.1:${await freePort()}`, 300);
  t.true((await timeOf(away.signal, 1)) >= lifetime, 'nobody was told');
  const many = 50;
  for (const { signal } of [working, plain]) t.true((await timeOf(signal, many)) < many * lifetime, 'none has to wait');
  t.deepEqual(Object.keys((await stored(client, working.key)).tables), ['tags']);
  const before = await stored(client, plain.key);
  await plain.signal.announce(['tags']);
  const after = await stored(client, plain.key);
  t.deepEqual([before.tables, after.tables], [{}, {}]);
  t.not(after.all, before.all);
});

test('a version that Redis does not have is made anew, and is unknown until then', async (t) => {
  const client = await clientOf(t);
  const { signal, key } = await signalOn(t);
  t.is(await client.get(key), null);
  t.is(await signal.versions(), undefined);
  const made = await client.get(key);
  t.truthy(made);
  t.truthy(await signal.versions());
  t.is(await client.get(key), made, 'it stays');
  const [one, same] = [signal.versions(), signal.versions()];
  t.is(one, same);
  await one;
  t.not(signal.versions(), one);
});
