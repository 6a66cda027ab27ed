import { randomBytes } from 'node:crypto';
import { rename } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { rowsOf } from '../../support/inside.ts';
import { answerOf, digestOf, errorOf, openRequest, TestRepository } from '../../support/registry.ts';
import { startTestServer } from '../../support/server.ts';
import { until, within } from '../../support/until.ts';

// Writers of one session that do not end: a process that was stopped for longer than its lease, and a silent client.

const bytes = randomBytes(60_000);
const half = bytes.length / 2;

const wrong = Buffer.alloc(2000, 'w');
const requests = [
  ['PATCH', 'PATCH', ''],
  ['PUT', 'PUT', `?digest=${digestOf(wrong)}`],
  ['PUT with a wrong digest', 'PUT', `?digest=${digestOf('another')}`],
] as const;

for (const dialect of dialects) {
  for (const [name, method, query] of requests) {
    test(`${dialect}: a ${name} that has lost its lease changes nothing any more`, async (t) => {
      const database = { url: await temporaryDatabase(t, dialect) };
      const stopped = await startTestServer(t, { database });
      const other = await startTestServer(t, { data: stopped.data, database });
      // The lease has expired by the clock of the other instance only: the first one cannot know.
      other.clock.now = Date.now() + 10_000;
      const repository = new TestRepository(other, 'app');
      const location = await repository.start();
      const late = openRequest(stopped, method, location + query, { 'content-length': wrong.length });
      const ended = answerOf(late).catch(() => undefined);
      late.write(wrong.subarray(0, 1000));
      await until(async () => (await rowsOf(stopped, 'SELECT writer FROM uploads'))[0]!['writer'] !== null);

      const first = { method: 'PATCH', body: bytes.subarray(0, half) };
      t.is((await within(repository.fetch(location, first))).headers.get('range'), `0-${half - 1}`);
      // Now it writes to the beginning of the file that it has open.
      late.end(wrong.subarray(1000));
      const answer = await within(ended);
      t.true(answer === undefined || answer.status >= 400, 'it has not appended anything');
      t.is((await repository.fetch(location)).headers.get('range'), `0-${half - 1}`);
      await other.close();

      const later = new TestRepository(await startTestServer(t, { data: stopped.data, database }), 'app');
      const last = { method: 'PUT', body: bytes.subarray(half) };
      t.is((await later.fetch(`${location}?digest=${digestOf(bytes)}`, last)).status, 201);
      t.deepEqual(Buffer.from(await (await later.fetch(`blobs/${digestOf(bytes)}`)).arrayBuffer()), bytes);
      t.is((await later.fetch(`blobs/${digestOf(wrong)}`, { method: 'HEAD' })).status, 404);
    });
  }

  test(`${dialect}: a process does not go on with its open file after another one has detached the session from it`, async (t) => {
    const database = { url: await temporaryDatabase(t, dialect) };
    const holder = await startTestServer(t, { database });
    const stopped = await startTestServer(t, { data: holder.data, database });
    const later = await startTestServer(t, { data: holder.data, database });
    later.clock.now = Date.now() + 10_000;
    const repository = new TestRepository(holder, 'app');
    const location = await repository.start();
    const first = { method: 'PATCH', body: bytes.subarray(0, half) };
    t.is((await repository.fetch(location, first)).status, 202);

    const stalled = openRequest(stopped, 'PATCH', location, { 'content-length': wrong.length });
    const ended = answerOf(stalled).catch(() => undefined);
    stalled.write(wrong.subarray(0, 1000));
    await until(async () => (await rowsOf(holder, 'SELECT writer FROM uploads'))[0]!['writer'] !== null);
    // It takes the session from the stalled writer, and adds no bytes.
    const outOfOrder = { method: 'PATCH', headers: { 'content-range': '0-9' }, body: bytes.subarray(0, 10) };
    t.is((await within(new TestRepository(later, 'app').fetch(location, outOfOrder))).status, 416);
    stalled.destroy();
    await within(ended);

    const rest = { method: 'PATCH', body: bytes.subarray(half) };
    t.is((await repository.fetch(location, rest)).headers.get('range'), `0-${bytes.length - 1}`);
    t.is((await repository.fetch(`${location}?digest=${digestOf(bytes)}`, { method: 'PUT' })).status, 201);
    const stored = await repository.fetch(`blobs/${digestOf(bytes)}`);
    t.is(digestOf(Buffer.from(await stored.arrayBuffer())), digestOf(bytes));
  });
}

test('a writer that sends nothing makes room for the next one, and its bytes count', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'app');
  const location = await repository.start();
  const silent = openRequest(server, 'PATCH', location, { 'content-length': bytes.length });
  silent.write(bytes.subarray(0, half));
  await until(async () => (await repository.fetch(location)).headers.get('range') === `0-${half - 1}`);
  let status = 409;
  await until(async () => {
    const rest = { method: 'PATCH', headers: { 'content-range': `${half}-${bytes.length - 1}` } };
    ({ status } = await repository.fetch(location, { ...rest, body: bytes.subarray(half) }));
    return status !== 409;
  });
  t.is(status, 202);
  t.is((await repository.fetch(`${location}?digest=${digestOf(bytes)}`, { method: 'PUT' })).status, 201);
});

test('a session whose file cannot be opened is unknown, and goes on at once when the file is there again', async (t) => {
  const server = await startTestServer(t);
  const repository = new TestRepository(server, 'app');
  const [location, empty] = [await repository.start(), await repository.start()];
  t.is((await repository.fetch(location, { method: 'PATCH', body: bytes.subarray(0, half) })).status, 202);
  const fileOf = (session: string) => join(server.data, 'staging', session.split('/').at(-1)!);
  for (const session of [location, empty]) {
    await rename(fileOf(session), join(server.data, 'away'));
    for (const method of ['PATCH', 'GET'])
      t.deepEqual(
        await errorOf(await repository.fetch(session, { method })),
        [404, 'BLOB_UPLOAD_UNKNOWN'],
        `${method} ${session}`,
      );
    await rename(join(server.data, 'away'), fileOf(session));
  }
  t.deepEqual(await rowsOf(server, 'SELECT received, writer, torn FROM uploads ORDER BY received'), [
    { received: 0, writer: null, torn: 0 },
    { received: half, writer: null, torn: 0 },
  ]);
  t.is((await repository.fetch(location)).headers.get('range'), `0-${half - 1}`);
  const last = { method: 'PUT', body: bytes.subarray(half) };
  t.is((await repository.fetch(`${location}?digest=${digestOf(bytes)}`, last)).status, 201);
});
