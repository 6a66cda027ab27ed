import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { appendFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import test from 'ava';
import { filesOf } from '../../support/damage.ts';
import { dialects, temporaryDatabase } from '../../support/databases.ts';
import { databaseOf } from '../../support/inside.ts';
import { answerOf, digestOf, errorOf, openRequest, TestRepository } from '../../support/registry.ts';
import { startTestServer, type TestServer } from '../../support/server.ts';
import { until } from '../../support/until.ts';

// Sessions of a server that ended at once. Another one on the same data takes its place.

const bytes = randomBytes(60_000);
const digest = digestOf(bytes);
const half = bytes.length / 2;

/** From when `file` exists, no transaction of the server ends. Returns what ends that. */
function stopWhen(server: TestServer, file: string): () => void {
  const database = databaseOf(server);
  const transaction = database.transaction.bind(database);
  const { promise, resolve } = Promise.withResolvers<void>();
  database.transaction = async (work, options) => {
    if (existsSync(file)) await promise;
    return transaction(work, options);
  };
  return resolve;
}

for (const dialect of dialects) {
  for (const sent of [bytes.length, half]) {
    test(`${dialect}: a session continues after a kill between the put of its blob and the commit, ${sent} bytes before`, async (t) => {
      const database = { url: await temporaryDatabase(t, dialect) };
      const killed = await startTestServer(t, { database });
      const repository = new TestRepository(killed, 'app');
      const location = await repository.start();
      const first = { method: 'PATCH', body: bytes.subarray(0, sent) };
      t.is((await repository.fetch(location, first)).status, 202);
      const { stored } = filesOf(killed, digest);
      const proceed = stopWhen(killed, stored);
      t.teardown(proceed);
      const last = openRequest(killed, 'PUT', `${location}?digest=${digest}`);
      const ended = answerOf(last).catch(() => undefined);
      last.end(bytes.subarray(sent));
      await until(() => existsSync(stored));

      const next = await startTestServer(t, { data: killed.data, database });
      next.clock.now = Date.now() + 10_000;
      const again = new TestRepository(next, 'app');
      const status = await again.fetch(location);
      t.is(status.status, 204);
      t.is(status.headers.get('range'), `0-${sent - 1}`);
      const finish = await again.fetch(`${location}?digest=${digest}`, { method: 'PUT', body: bytes.subarray(sent) });
      t.is(finish.status, 201);
      t.deepEqual(Buffer.from(await (await again.fetch(`blobs/${digest}`)).arrayBuffer()), bytes);
      t.is((await again.fetch(location)).status, 404, 'the session has ended');
      proceed();
      await ended;
      t.deepEqual(Buffer.from(await (await again.fetch(`blobs/${digest}`)).arrayBuffer()), bytes);
    });
  }

  test(`${dialect}: the status of a session has only bytes that stay after a kill, and none without its file`, async (t) => {
    const database = { url: await temporaryDatabase(t, dialect) };
    const server = await startTestServer(t, { database });
    const repository = new TestRepository(server, 'app');
    const location = await repository.start();
    t.is((await repository.fetch(location, { method: 'PATCH', body: bytes.subarray(0, half) })).status, 202);
    const file = join(server.data, 'staging', location.split('/').at(-1)!);
    // As after a kill in the middle of the next chunk: its bytes are in the file, and the row has its lease.
    await appendFile(file, 'of the chunk that was cut');
    const sql = "UPDATE uploads SET writer = 'killed', writer_until = ?";
    await databaseOf(server).transaction((tx) => tx.run(sql, [Date.now() + 2000]));
    t.is((await repository.fetch(location)).headers.get('range'), `0-${half - 1}`);
    const rest = { method: 'PATCH', headers: { 'content-range': `${half}-${bytes.length - 1}` } };
    t.is((await repository.fetch(location, { ...rest, body: bytes.subarray(half) })).status, 202);
    t.is((await repository.fetch(location)).headers.get('range'), `0-${bytes.length - 1}`);
    await server.close();

    const next = new TestRepository(await startTestServer(t, { database, data: server.data }), 'app');
    t.is((await next.fetch(location)).status, 204);
    await rm(file);
    t.deepEqual(await errorOf(await next.fetch(location)), [404, 'BLOB_UPLOAD_UNKNOWN']);
  });
}
