import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { TestFeed } from '../../support/feed.ts';
import { answerOf, digestOf, errorOf, openRequest, TestRepository } from '../../support/registry.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { eventually, until } from '../../support/until.ts';
import { databaseOf, rowsOf, runJob, tokenOf } from '../../support/inside.ts';

const MiB = 2 ** 20;
const piece = randomBytes(300_000);
const patch = { method: 'PATCH', body: piece };

/** A measurement of stored bytes that takes long is used again; with a clock that stands still, none takes long. */
async function startMeasured(
  t: Parameters<typeof startTestServer>[0],
  settings: Record<string, unknown>,
): Promise<TestServer> {
  const server = await startTestServer(t, settings);
  server.clock.now = Date.now();
  return server;
}

/** Bytes of all files in the staging folder. */
async function stagedBytes({ data }: Pick<TestServer, 'data'>): Promise<number> {
  const folder = join(data, 'staging');
  const sizes = (await readdir(folder)).map(async (name) => (await stat(join(folder, name))).size);
  return (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
}

/** Sends `bytes` in chunks without a length, until the server answers; resolves to the status. */
async function sendChunked(server: TestServer, method: string, path: string, bytes: number): Promise<number> {
  const request = openRequest(server, method, path, { 'transfer-encoding': 'chunked' });
  const answered = answerOf(request);
  const over = answered.then(
    () => true,
    () => true,
  );
  for (let left = bytes; left > 0; left -= 65_536) {
    if (request.write(piece.subarray(0, Math.min(65_536, left)))) continue;
    if (await Promise.race([once(request, 'drain').then(() => false), over])) break;
  }
  request.end();
  const { status } = await answered;
  request.destroy();
  return status;
}

for (const dialect of dialects) {
  test(`${dialect}: the bytes of unfinished uploads count for the storage limit, on all instances`, async (t) => {
    const database = { url: await temporaryDatabase(t, dialect) };
    const settings = { database, limits: { accountStorage: MiB } };
    const one = await startMeasured(t, settings);
    const two = await startMeasured(t, { ...settings, data: one.data });
    const repositories = [new TestRepository(one, 'app'), new TestRepository(two, 'other')];
    const locations: [TestRepository, string][] = [];
    for (let index = 0; index < 6; index += 1) {
      const repository = repositories[index % 2]!;
      const location = await repository.start();
      const response = await repository.fetch(location, patch);
      if (index < 3) t.is(response.status, 202);
      else t.deepEqual(await errorOf(response), [403, 'DENIED']);
      locations.push([repository, location]);
    }
    t.is(await stagedBytes(one), 900_000);
    const stranger = new TestRepository(one, 'app', await tokenOf(one, ['read', 'write'], 'other'));
    t.is((await stranger.fetch(await stranger.start(), patch)).status, 202, 'another account has its own limit');

    const [repository, location] = locations[0]!;
    t.is((await repository.fetch(location, { method: 'DELETE' })).status, 204);
    const [next, free] = locations[3]!;
    t.is((await next.fetch(free, patch)).status, 202, 'a cancelled upload makes room');
    t.is((await next.fetch(`${free}?digest=${digestOf(piece)}`, { method: 'PUT' })).status, 201);
    t.is((await next.fetch(await next.start(), patch)).status, 403, 'a finished one still counts');
  });

  test(`${dialect}: a body without a length is refused while it arrives, and of many at once few are taken`, async (t) => {
    const database = { url: await temporaryDatabase(t, dialect) };
    const server = await startMeasured(t, { database, limits: { accountStorage: MiB } });
    const repository = new TestRepository(server, 'app');
    const location = await repository.start();
    await repository.fetch(location, patch);
    const query = `?digest=${digestOf(piece)}`;
    t.is(await sendChunked(server, 'PATCH', location, 20 * MiB), 403);
    t.is(await sendChunked(server, 'POST', `/v2/app/blobs/uploads/${query}`, 20 * MiB), 403);
    t.is(await sendChunked(server, 'PUT', `${await repository.start()}${query}`, 20 * MiB), 403);
    t.is(await stagedBytes(server), 300_000, 'nothing of a refused body is kept');
    t.is((await rowsOf(server, 'SELECT id FROM uploads')).length, 2, 'a POST of a whole blob leaves no session');
    t.is((await repository.fetch(location)).headers.get('range'), '0-299999');
    t.is((await repository.fetch(location, { method: 'DELETE' })).status, 204);

    const sessions = await Promise.all(Array.from({ length: 8 }, () => repository.start()));
    const statuses = await Promise.all(sessions.map((each) => sendChunked(server, 'PATCH', each, 600_000)));
    t.true(statuses.filter((status) => status === 202).length <= 1, String(statuses));
    t.true((await stagedBytes(server)) <= MiB);
  });

  test(`${dialect}: an upload whose writer was killed counts with what has arrived, not with what it had reserved`, async (t) => {
    const database = { url: await temporaryDatabase(t, dialect) };
    const server = await startMeasured(t, { database, limits: { accountStorage: MiB } });
    const repository = new TestRepository(server, 'app');
    const killed = await repository.start();
    t.is((await repository.fetch(killed, patch)).status, 202);
    const kill = "UPDATE uploads SET writer = 'killed', writer_until = ?, reserved = 1000000";
    await databaseOf(server).transaction((tx) => tx.run(kill, [server.clock.now! + 6000]));
    const next = await repository.start();
    t.is((await repository.fetch(next, patch)).status, 403, 'it may still be writing');
    server.clock.now! += 6000;
    t.is((await repository.fetch(next, patch)).status, 202);
    t.is(await sendChunked(server, 'PATCH', killed, 600_000), 403, 'what it had reserved is taken now');
    t.is((await repository.fetch(killed, patch)).status, 202, 'it can continue');
  });
}

test('an upload without its file does not count, unless the disk is away', async (t) => {
  const server = await startMeasured(t, { limits: { accountStorage: MiB } });
  const repository = new TestRepository(server, 'app');
  const [lost, whole] = [await repository.start(), await repository.start()];
  for (const each of [lost, whole]) t.is((await repository.fetch(each, patch)).status, 202);
  const [lostId, wholeId] = [lost, whole].map((each) => each.split('/').at(-1)!);
  const ids = async () => (await rowsOf<{ id: string }>(server, 'SELECT id FROM uploads')).map(({ id }) => id);
  const staging = join(server.data, 'staging');
  // As after a push that could neither become a blob nor end its session, because the database was away.
  await rm(join(staging, lostId!));
  await runJob(server, 'uploads');
  t.is((await ids()).length, 2, 'its writer may be about to end it');
  server.clock.now! += 60_001;
  await rename(staging, `${staging} away`);
  await t.throwsAsync(runJob(server, 'uploads'));
  await rename(`${staging} away`, staging);
  t.is((await ids()).length, 2);
  await runJob(server, 'uploads');
  t.deepEqual(await ids(), [wholeId!]);
  t.is((await repository.fetch(await repository.start(), { method: 'PATCH', body: randomBytes(600_000) })).status, 202);
});

test('what was stored after a long measurement began counts, although the measurement is used again', async (t) => {
  const server = await startMeasured(t, { limits: { accountStorage: MiB } });
  const database = databaseOf(server);
  const select = database.select.bind(database);
  let measurements = 0;
  database.select = (sql: string, ...rest) => {
    // Each measurement takes a second.
    if (sql.includes('AS once GROUP BY account_id')) {
      measurements += 1;
      server.clock.now! += 1000;
    }
    return select(sql, ...rest);
  };
  const repository = new TestRepository(server, 'app');
  const push = async (size: number) => {
    const body = randomBytes(size);
    const location = await repository.start();
    t.is((await repository.fetch(location, { method: 'PATCH', body })).status, 202);
    return repository.fetch(`${location}?digest=${digestOf(body)}`, { method: 'PUT' });
  };
  await repository.blob('first');
  for (let index = 0; index < 2; index += 1) t.is((await push(300_000)).status, 201);
  const feed = new TestFeed(server);
  t.is((await feed.push({ payloadBytes: 300_000 })).status, 201);
  t.is((await feed.push({ id: 'Another', payloadBytes: 300_000 })).status, 413);
  t.is((await repository.fetch(await repository.start(), patch)).status, 403);
  t.is(measurements, 1);
  server.clock.now! += 20_000;
  t.is((await repository.fetch('blobs/uploads/', { method: 'POST' })).status, 202);
  await until(() => measurements === 2);
  t.is((await repository.fetch(await repository.start(), patch)).status, 403, 'and it counts once');
  t.is((await push(100_000)).status, 201);
});

test('an upload that fills the limit exactly can be finished', async (t) => {
  const server = await startMeasured(t, { limits: { accountStorage: 600_000 } });
  const repository = new TestRepository(server, 'app');
  const body = randomBytes(600_000);
  const location = await repository.start();
  t.is((await repository.fetch(location, { method: 'PATCH', body })).status, 202);
  t.is((await repository.fetch(`${location}?digest=${digestOf(body)}`, { method: 'PUT' })).status, 201);
  // A measurement that takes longer than usual is waited for at a later request.
  await until(async () => (await repository.fetch('blobs/uploads/', { method: 'POST' })).status === 403);
  t.pass();
});

test('unfinished uploads have only the room that stored content leaves, in one upload and in many', async (t) => {
  const server = await startMeasured(t, { limits: { accountStorage: MiB } });
  const repository = new TestRepository(server, 'app');
  const stored = randomBytes(600_000);
  t.is(
    (await repository.fetch(`blobs/uploads/?digest=${digestOf(stored)}`, { method: 'POST', body: stored })).status,
    201,
  );
  const location = await repository.start();
  t.is((await repository.fetch(location, { method: 'PATCH', body: randomBytes(500_000) })).status, 403, 'announced');
  t.is(await sendChunked(server, 'PATCH', location, 500_000), 403, 'not announced');
  t.is(await stagedBytes(server), 0);
  t.is((await repository.fetch(location, patch)).status, 202, 'with room for it');
  const other = await repository.start();
  t.is((await repository.fetch(other, patch)).status, 403, 'together too much');
  t.is((await repository.fetch(location, patch)).status, 403, 'the rest of one, too');
});

test('an upload without a length reserves little more than has arrived, so that others have room', async (t) => {
  const server = await startMeasured(t, { limits: { accountStorage: 4 * MiB } });
  const repository = new TestRepository(server, 'app');
  const slow = openRequest(server, 'PATCH', await repository.start(), { 'transfer-encoding': 'chunked' });
  const answered = answerOf(slow);
  slow.write(piece);
  await until(async () => (await rowsOf(server, 'SELECT id FROM uploads WHERE reserved > 0')).length === 1);
  const other = { method: 'PATCH', body: randomBytes(2 * MiB) };
  t.is((await repository.fetch(await repository.start(), other)).status, 202);
  slow.end();
  t.is((await answered).status, 202);
});

test('the bytes of a cut upload count, and its rest can be sent', async (t) => {
  const server = await startMeasured(t, { limits: { accountStorage: MiB } });
  const repository = new TestRepository(server, 'app');
  const location = await repository.start();
  const cut = openRequest(server, 'PATCH', location, { 'transfer-encoding': 'chunked' });
  cut.write(piece);
  await eventually(
    () => repository.fetch(location, { method: 'PATCH' }),
    ({ status }) => status === 409,
  );
  cut.destroy();
  await eventually(
    async () => (await repository.fetch(location)).headers.get('range'),
    (range) => range === '0-299999',
  );
  const other = await repository.start();
  t.is((await repository.fetch(other, { method: 'PATCH', body: randomBytes(800_000) })).status, 403);
  t.is((await repository.fetch(location, patch)).status, 202);
  const digest = digestOf(Buffer.concat([piece, piece]));
  t.is((await repository.fetch(`${location}?digest=${digest}`, { method: 'PUT' })).status, 201);
});

test('a refused body leaves none of its bytes on the disk', async (t) => {
  const server = await startMeasured(t, { limits: { blob: 200_000 } });
  const repository = new TestRepository(server, 'app');
  const location = await repository.start();
  t.is((await repository.fetch(location, patch)).status, 413);
  t.is(await stagedBytes(server), 0);
  const wrong = openRequest(server, 'PATCH', location, { 'content-range': '0-9', 'transfer-encoding': 'chunked' });
  wrong.end(piece.subarray(0, 150_000));
  t.is((await answerOf(wrong)).status, 400);
  t.is(await stagedBytes(server), 0);
});

test('an account has at most 1,000 open uploads', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'app');
  const locations: string[] = [];
  while (locations.length < 1000) {
    locations.push(...(await Promise.all(Array.from({ length: 40 }, () => repository.start()))));
  }
  const refused = await repository.fetch('blobs/uploads/', { method: 'POST' });
  t.is(refused.headers.get('retry-after'), '60');
  t.deepEqual(await errorOf(refused), [429, 'TOOMANYREQUESTS']);
  await t.notThrowsAsync(repository.blob('whole'), 'a blob in one request needs no session');
  const stranger = new TestRepository(server, 'app', await tokenOf(server, ['read', 'write'], 'other'));
  await stranger.start();
  t.is((await repository.fetch(locations[0]!, { method: 'DELETE' })).status, 204);
  await repository.start();
  t.is((await readdir(join(server.data, 'staging'))).length, 1001, 'a refused one has no file');
});

test('a blob that was deleted but is still kept for a manifest counts', async (t) => {
  const server = await startMeasured(t, { limits: { accountStorage: MiB } });
  server.clock.now = Date.now();
  const repository = new TestRepository(server, 'app');
  const config = await repository.blob('{}');
  const push = async () => {
    const layer = await repository.blob(randomBytes(300_000));
    t.is((await repository.put('v1', { schemaVersion: 2, config, layers: [layer] })).status, 201);
    t.is((await repository.fetch(`blobs/${layer.digest}`, { method: 'DELETE' })).status, 202);
  };
  for (let index = 0; index < 3; index += 1) await push();
  await t.throwsAsync(push, { message: /^403 / });
});

test('the bytes of unfinished uploads leave no room for packages', async (t) => {
  const server = await startMeasured(t, { limits: { accountStorage: 310_000 } });
  const feed = new TestFeed(server);
  const repository = new TestRepository(server, 'app');
  const location = await repository.start();
  t.is((await repository.fetch(location, patch)).status, 202);
  t.is((await feed.push({ payloadBytes: 20_000 })).status, 413);
  t.is((await repository.fetch(location, { method: 'DELETE' })).status, 204);
  t.is((await feed.push({ payloadBytes: 20_000 })).status, 201);
});
