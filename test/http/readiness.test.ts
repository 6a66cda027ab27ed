import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { copyFile, mkdir, rename, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { createClient } from '@redis/client';
import test, { type ExecutionContext } from 'ava';
import { timeLimits } from '../../src/database/time-limits.ts';
import { temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { rowsOf } from '../support/inside.ts';
import { MemoryDriver } from '../support/memory-driver.ts';
import { ownRedis } from '../support/processes/redis.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { until } from '../support/until.ts';

// `/readyz` is 200 while reads work, says `degraded` while writes or Redis do not, and 503 with the part that fails.

const healthTimes = { limit: 10_000, writeEvery: 0, perSecond: Number.POSITIVE_INFINITY, remember: 0 };

/** A server whose database breaks: what is written at its end fails. */
async function startBreaking(t: ExecutionContext): Promise<TestServer> {
  const server = await startTestServer(t, {}, { healthTimes });
  t.teardown(() => server.close().catch(() => undefined));
  return server;
}

interface Answer {
  status: number;
  body: { status: number | string; code?: string; parts?: string[]; detail?: string; degraded?: { part: string }[] };
}

async function readiness(server: TestServer): Promise<Answer> {
  const response = await server.fetch('/readyz', { token: null });
  const text = await response.text();
  if (text.includes(server.data)) throw new Error(`a path is shown: ${text}`);
  return { status: response.status, body: JSON.parse(text) as Answer['body'] };
}

async function assertNotReady(t: ExecutionContext, server: TestServer, part: string) {
  const { status, body } = await readiness(server);
  t.is(status, 503, JSON.stringify(body));
  t.is(body.code, 'NotReady');
  t.true(body.parts!.includes(part), JSON.stringify(body));
  t.regex(await (await server.fetch('/metrics')).text(), new RegExp(`^entrepot_degraded\\{part="${part}"\\} 1$`, 'm'));
}

async function assertDegraded(t: ExecutionContext, server: TestServer, part: string) {
  const { status, body } = await readiness(server);
  t.is(status, 200, JSON.stringify(body));
  t.is(body.status, 'degraded');
  t.deepEqual(
    body.degraded!.map((each) => each.part),
    [part],
  );
  t.regex(await (await server.fetch('/metrics')).text(), new RegExp(`^entrepot_degraded\\{part="${part}"\\} 1$`, 'm'));
}

async function assertReady(t: ExecutionContext, server: TestServer) {
  t.deepEqual(await readiness(server), { status: 200, body: { status: 'ready' } });
}

/** A refusal of `response` as unavailable, in the form of its interface. */
async function assertUnavailable(t: ExecutionContext, response: Response, code: string) {
  const text = await response.text();
  t.is(response.status, 503, text);
  t.true(Number(response.headers.get('retry-after')) > 0);
  const body = JSON.parse(text) as { code?: string; errors?: { code: string }[] };
  t.is(body.errors?.[0]!.code ?? body.code, code);
}

for (const [name, breakFile] of Object.entries({
  removed: (path: string) => rm(path),
  replaced: async (path: string) => {
    await copyFile(path, `${path}.copy`);
    await rename(`${path}.copy`, path);
  },
})) {
  for (const suffix of ['', '-wal']) {
    test(`entrepot.db${suffix} is ${name} while the server runs: not ready, and no push succeeds`, async (t) => {
      const server = await startBreaking(t);
      await new TestFeed(server).publish({ id: 'Kept' });
      await assertReady(t, server);
      const path = join(server.data, 'entrepot.db');
      await breakFile(path + suffix);
      await assertUnavailable(t, await new TestFeed(server).push({ id: 'Lost' }), 'DatabaseUnavailable');
      const upload = await server.fetch('/v2/lost/blobs/uploads/', { method: 'POST' });
      await assertUnavailable(t, upload, 'UNAVAILABLE');
      await assertNotReady(t, server, 'database');
      if (name === 'removed') t.false(existsSync(path + suffix), 'a new, empty file');
    });
  }
}

test('a damaged database is not ready, and requests that meet it are 503', async (t) => {
  const server = await startBreaking(t);
  await new TestFeed(server).publish({ id: 'A' });
  await assertReady(t, server);
  const path = join(server.data, 'entrepot.db');
  const other = new DatabaseSync(path);
  other.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  other.close();
  // A separate process writes, because closing a file releases all locks that this process has on it.
  const pages = (await stat(path)).size / 4096 - 1;
  const blocks = ['bs=4096', 'seek=1', `count=${pages}`, 'conv=notrunc'];
  t.is(spawnSync('dd', ['if=/dev/urandom', `of=${path}`, ...blocks], { stdio: 'ignore' }).status, 0);
  await assertNotReady(t, server, 'database');
  t.true(server.lines.some((line) => line.includes('malformed')));
  await assertUnavailable(t, await new TestFeed(server).push({ id: 'B' }), 'DatabaseUnavailable');
});

test('another process holds the write lock of the database: degraded, reads work, writes are 503 in time', async (t) => {
  const databaseLimits = { read: 1000, transaction: 2000, connection: 400, lock: 400, background: 60_000 };
  const server = await startTestServer(t, {}, { healthTimes, databaseLimits });
  await new TestFeed(server).publish({ id: 'A' });
  const other = new DatabaseSync(join(server.data, 'entrepot.db'));
  other.exec('BEGIN IMMEDIATE');
  const start = performance.now();
  const pushes = await Promise.all(
    Array.from({ length: 40 }, (_, id) => new TestFeed(server).push({ id: `Late${id}` })),
  );
  t.true(performance.now() - start < 40_000, 'the waiting writes do not wait one after another');
  for (const each of pushes) await assertUnavailable(t, each, 'DatabaseUnavailable');
  t.is((await server.fetch('/v3/package/a/index.json')).status, 200);
  await assertDegraded(t, server, 'database');
  other.exec('ROLLBACK');
  other.close();
  t.is((await new TestFeed(server).push({ id: 'Then' })).status, 201);
  await assertReady(t, server);
});

test('a file in place of the staging folder: not ready, and pushes are 503', async (t) => {
  const server = await startTestServer(t, {}, { healthTimes });
  const staging = join(server.data, 'staging');
  await rm(staging, { recursive: true });
  await assertUnavailable(t, await new TestFeed(server).push({ id: 'A' }), 'StorageUnavailable');
  await assertNotReady(t, server, 'storage');
  await writeFile(staging, '');
  await assertUnavailable(t, await new TestFeed(server).push({ id: 'A' }), 'StorageUnavailable');
  const blob = await server.fetch('/v2/a/blobs/uploads/', { method: 'POST' });
  await assertUnavailable(t, blob, 'UNAVAILABLE');
  await assertNotReady(t, server, 'storage');
  await rm(staging);
  await mkdir(staging);
  t.is((await new TestFeed(server).push({ id: 'A' })).status, 201);
  await assertReady(t, server);
});

test('the folder of the stored content is made anew while the server runs: not ready, and pushes are 503', async (t) => {
  const server = await startTestServer(t, {}, { healthTimes });
  await new TestFeed(server).publish({ id: 'A' });
  const blobs = join(server.data, 'blobs');
  await rm(blobs, { recursive: true });
  await assertNotReady(t, server, 'storage');
  await assertUnavailable(t, await new TestFeed(server).push({ id: 'B' }), 'StorageUnavailable');
  await mkdir(blobs);
  await assertNotReady(t, server, 'storage');
  await assertUnavailable(t, await new TestFeed(server).push({ id: 'B' }), 'StorageUnavailable');
});

function inputError(): Error {
  return Object.assign(new Error('EIO: i/o error, read'), { code: 'EIO', errno: -5, syscall: 'read' });
}

test('a storage whose content cannot be read is not ready, and requests that meet it are 503', async (t) => {
  const driver = new MemoryDriver();
  const server = await startTestServer(t, {}, { driver, healthTimes });
  const repository = new TestRepository(server, 'app');
  const layer = await repository.blob('a layer');
  await repository.image('v1');
  await assertReady(t, server);
  driver.faults.before = (operation) => {
    if (operation === 'open') throw inputError();
  };
  await assertNotReady(t, server, 'storage');
  await assertUnavailable(t, await repository.fetch(`blobs/${layer.digest}`), 'UNAVAILABLE');
  driver.faults = {};
  await assertReady(t, server);
});

test('one blob that cannot be read leaves the service ready', async (t) => {
  const driver = new MemoryDriver();
  const server = await startTestServer(t, {}, { driver, healthTimes });
  const [bad] = [
    await new TestRepository(server, 'app').blob('bad'),
    await new TestRepository(server, 'app').blob('good'),
  ];
  let met = 0;
  driver.faults.before = (operation, digest) => {
    if (operation !== 'open' || digest !== bad.digest) return;
    met += 1;
    throw inputError();
  };
  for (let tries = 0; tries < 40; tries += 1) await assertReady(t, server);
  t.true(met > 0);
});

test('a failure that a request met is degraded for a time', async (t) => {
  const driver = new MemoryDriver();
  const server = await startTestServer(t, {}, { driver, healthTimes: { ...healthTimes, remember: 60_000 } });
  const layer = await new TestRepository(server, 'app').blob('a layer');
  driver.faults.before = (operation) => {
    if (operation === 'open') throw inputError();
  };
  const response = await server.fetch(`/v2/app/blobs/${layer.digest}`);
  await assertUnavailable(t, response, 'UNAVAILABLE');
  driver.faults = {};
  await assertDegraded(t, server, 'storage');
});

test('readiness answers in its time while the storage hangs, and starts no second check', async (t) => {
  const driver = new MemoryDriver();
  const server = await startTestServer(t, {}, { driver, healthTimes: { ...healthTimes, limit: 1000 } });
  const hanging = Promise.withResolvers<void>();
  let checks = 0;
  driver.faults.before = async (operation) => {
    if (operation !== 'check') return;
    checks += 1;
    await hanging.promise;
  };
  for (let probe = 0; probe < 3; probe += 1) await assertNotReady(t, server, 'storage');
  await Promise.all([1, 2, 3, 4].map(() => assertNotReady(t, server, 'storage')));
  t.is(checks, 1);
  driver.faults = {};
  hanging.resolve();
  await until(async () => (await readiness(server)).status === 200);
});

test('more probes than ten in a second get the latest result', async (t) => {
  const driver = new MemoryDriver();
  const server = await startTestServer(t, {}, { driver, healthTimes: { ...healthTimes, perSecond: 10 } });
  let checks = 0;
  driver.faults.before = (operation) => {
    if (operation === 'check') checks += 1;
  };
  const start = performance.now();
  for (let probe = 0; probe < 200; probe += 1) await assertReady(t, server);
  const seconds = Math.floor((performance.now() - start) / 1000) + 2;
  t.true(checks <= 10 * seconds, `${checks} checks`);
});

test('many probes share one write', async (t) => {
  const server = await startTestServer(t, {}, { healthTimes: { ...healthTimes, writeEvery: 3_600_000 } });
  const written = async () => (await rowsOf(server, 'SELECT written_at FROM probes'))[0]?.['written_at'];
  t.is(await written(), undefined);
  await assertReady(t, server);
  const first = await written();
  t.is(typeof first, 'number');
  await until(() => Date.now() > Number(first));
  for (let probe = 0; probe < 5; probe += 1) await assertReady(t, server);
  t.is(await written(), first);
});

/** A driver whose writes of readiness fail while `isFailing`. */
class FailingWrites extends MemoryDriver {
  isFailing = false;

  override checkWrites(): Promise<void> {
    return this.isFailing ? Promise.reject(inputError()) : super.checkWrites();
  }
}

test('a storage that cannot be written is degraded, and logged once until it works again', async (t) => {
  const driver = new FailingWrites();
  const server = await startTestServer(t, {}, { driver, healthTimes });
  const logged = () => server.lines.filter((line) => line.includes('The storage cannot be written.')).length;
  for (const expected of [1, 2]) {
    await assertReady(t, server);
    driver.isFailing = true;
    for (let probe = 0; probe < 3; probe += 1) await assertDegraded(t, server, 'storage');
    t.is(logged(), expected);
    driver.isFailing = false;
  }
});

test('between two checks of writes, the result of the last one counts', async (t) => {
  const driver = new FailingWrites();
  const server = await startTestServer(t, {}, { driver, healthTimes: { ...healthTimes, writeEvery: 3_600_000 } });
  driver.isFailing = true;
  await assertDegraded(t, server, 'storage');
  driver.isFailing = false;
  for (let probe = 0; probe < 3; probe += 1) await assertDegraded(t, server, 'storage');
});

test('a Redis that failed for a request is degraded before the next check of writes', async (t) => {
  const redis = await ownRedis(t);
  await redis.start();
  const database = { url: await temporaryDatabase(t, 'mysql') };
  const server = await startTestServer(
    t,
    { redis: { url: redis.url }, database },
    { redisTimeout: 30_000, healthTimes: { ...healthTimes, writeEvery: 3_600_000, remember: 600_000 } },
  );
  await new TestFeed(server).publish({ id: 'A' });
  await assertReady(t, server);
  await redis.kill();
  t.is((await server.fetch('/v3/package/a/index.json')).status, 200);
  await assertDegraded(t, server, 'redis');
});

test('a malformed value in place of the version in Redis fails no request', async (t) => {
  const redis = await ownRedis(t);
  await redis.start();
  const database = { url: await temporaryDatabase(t, 'mysql') };
  const databaseLimits = { ...timeLimits, connection: 20_000 };
  const server = await startTestServer(t, { redis: { url: redis.url }, database }, { databaseLimits });
  await new TestFeed(server).publish({ id: 'A' });
  const client = createClient({ url: redis.url });
  await client.connect();
  t.teardown(() => client.destroy());
  const key = (await client.keys('*')).find((each) => each.endsWith('::written'));
  for (const value of ['{"value":null}', 'null', '[]']) {
    await client.set(key!, value);
    const response = await server.fetch('/v3/package/a/index.json');
    t.is(response.status, 200, await response.text());
  }
});

test('without Redis, or with one that is frozen, requests go on and readiness is degraded', async (t) => {
  const redis = await ownRedis(t);
  await redis.start();
  const server = await startTestServer(t, { redis: { url: redis.url } }, { healthTimes });
  await new TestFeed(server).publish({ id: 'A' });
  await assertReady(t, server);
  for (const [fault, end] of [
    [() => redis.kill(), () => redis.start()],
    [() => redis.freeze(), () => redis.thaw()],
  ] as const) {
    await fault();
    const start = performance.now();
    t.is((await server.fetch('/v3/package/a/index.json')).status, 200);
    t.true(performance.now() - start < 15_000);
    await assertDegraded(t, server, 'redis');
    await end();
    await until(async () => (await readiness(server)).body.status === 'ready');
  }
});
