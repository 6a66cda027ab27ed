import { randomUUID } from 'node:crypto';
import test, { type ExecutionContext } from 'ava';
import type { Dialect, Row } from '../../src/database/database.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { databaseOf, defaultAccountOf, rowsOf, runJob, tokenOf } from '../support/inside.ts';
import { longestTurn, longestTurnOf } from '../support/longest-turn.ts';
import { allowLoopback, api, ask, createWebhook, deliverUntil } from '../support/receiver.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { within } from '../support/until.ts';

// In a process of its own: it measures the process.

const closed = 'http://127.0.0.1:9/';

async function opened(t: ExecutionContext, dialect: Dialect): Promise<TestServer> {
  return startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) }, ...allowLoopback });
}

interface Written {
  state?: string;
  createdAt?: number;
}

async function write(server: TestServer, webhookId: string, count: number, written: Written = {}): Promise<void> {
  const { state = 'failed', createdAt = Date.now() } = written;
  const body = JSON.stringify({ text: 'x'.repeat(600) });
  const rows = Array.from({ length: count }, (): Row => ({
    id: randomUUID(),
    webhook_id: webhookId,
    event_position: 1,
    type: 'package.published',
    body,
    state,
    attempts: 1,
    next_at: 1,
    created_at: createdAt,
  }));
  await databaseOf(server).transaction(async (tx) => {
    for (let from = 0; from < count; from += 500)
      await tx.insertNew('webhook_deliveries', rows.slice(from, from + 500));
  });
}

async function writeEvents(server: TestServer, count: number): Promise<void> {
  const row: Row = { time: 1, type: 'package.deleted', account_id: defaultAccountOf(server), details: '{}' };
  Object.assign(row, { actor_kind: 'token', subject_kind: 'package', subject_name: 'a', subject_key: 'a' });
  const rows = Array.from({ length: count }, () => row);
  await databaseOf(server).transaction(async (tx) => {
    for (let from = 0; from < count; from += 500) await tx.insertNew('events', rows.slice(from, from + 500));
  });
}

async function numberOf(server: TestServer, condition: string): Promise<number> {
  const sql = `SELECT COUNT(*) AS n FROM webhook_deliveries WHERE ${condition}`;
  return (await rowsOf<{ n: number }>(server, sql))[0]!.n;
}

/** Nothing is sent from a disabled webhook. */
async function disabled(server: TestServer): Promise<string> {
  const { id } = await createWebhook(server, closed, ['package.*']);
  await api(server, 'PATCH', `/${id}`, { enabled: false });
  return id;
}

const always = { since: new Date(0).toISOString() };

for (const dialect of dialects) {
  test.serial(
    `${dialect}: all deliveries of a webhook are repeated without holding other requests, once at a time`,
    async (t) => {
      const server = await opened(t, dialect);
      const id = await disabled(server);
      const other = await disabled(server);
      const theirs = await tokenOf(server, ['admin'], 'other');
      const { id: their } = await createWebhook(server, closed, ['package.*'], theirs);
      await write(server, id, 5000);
      await write(server, other, 1);
      const turn = await longestTurn(async () => {
        t.deepEqual(await api(server, 'POST', `/${id}/redeliver`, always), { deliveries: 5000 });
      });
      t.true(turn < 50, `${turn} ms`);
      t.is(await numberOf(server, "state = 'pending' AND attempts = 0"), 5000);

      // One of the requests waits for the lock on its webhook.
      const [locked, ended] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
      const holding = databaseOf(server).transaction(async (tx) => {
        await tx.run('UPDATE webhooks SET paused_until = 1 WHERE id IN (?, ?)', [id, other]);
        locked.resolve();
        await ended.promise;
      });
      await locked.promise;
      const both = [id, other].map(async (each) => (await ask(server, 'POST', `/${each}/redeliver`, always)).status);
      t.is(await within(Promise.race(both)), 429);
      ended.resolve();
      await holding;
      t.deepEqual(
        (await Promise.all(both)).toSorted((a, b) => a - b),
        [200, 429],
      );
      const third = await ask(server, 'POST', `/${their}/redeliver`, always, theirs);
      t.is(third.status, 200, 'another account does not wait');
      t.deepEqual(await api(server, 'POST', `/${other}/redeliver`, always), { deliveries: 1 });
    },
  );

  test.serial(`${dialect}: old deliveries are all deleted, without holding other requests`, async (t) => {
    const server = await opened(t, dialect);
    const id = await disabled(server);
    const before = Date.now() - 15 * 86_400_000;
    await write(server, id, 12_000, { createdAt: before });
    const turn = await longestTurnOf(() => server.installation.webhooks.deleteOld());
    t.true(turn < 50, `${turn} ms`);
    t.is(await numberOf(server, '1 = 1'), 0);
  });

  test.serial(`${dialect}: many new events for many webhooks hold no other requests`, async (t) => {
    const server = await opened(t, dialect);
    for (let each = 0; each < 20; each += 1) {
      const { id } = await createWebhook(server, closed, ['package.*', 'tag.*', '*']);
      await write(server, id, 200, { state: 'pending' });
    }
    await writeEvents(server, 1000);
    const sql =
      'SELECT COUNT(*) AS n FROM events WHERE position IS NULL OR position > (SELECT position FROM webhook_cursor)';
    const made = async () => (await rowsOf<{ n: number }>(server, sql))[0]!.n === 0;
    const turn = await longestTurnOf(() => deliverUntil(server, made));
    t.true(turn < 50, `${turn} ms`);
    t.is(await numberOf(server, "type = 'package.deleted'"), 20 * 1000);
    t.true((await longestTurnOf(() => runJob(server, 'audit'))) < 50);
  });
}

test.serial('deliveries that wait are counted for all webhooks, however many there are', async (t) => {
  const server = await opened(t, 'sqlite');
  const first = await disabled(server);
  const [row] = await rowsOf(server, 'SELECT * FROM webhooks');
  const copies = Array.from({ length: 450 }, () => ({ ...row!, id: randomUUID() }));
  await databaseOf(server).transaction((tx) => tx.insertNew('webhooks', copies));
  const ids = [first, ...copies.map(({ id }) => id)].sort();
  for (const index of [0, 199, 200, 399, 450]) await write(server, ids[index]!, 1, { state: 'pending' });
  await server.installation.webhooks.chores.find(({ failure }) => failure.includes('not counted'))!.run();
  const metrics = await (await server.fetch('/metrics', { token: null })).text();
  t.regex(metrics, /^entrepot_webhook_pending 5$/m);
});

test.serial('of a webhook the latest 100,000 deliveries are kept, and older ones that wait', async (t) => {
  const server = await opened(t, 'sqlite');
  const id = await disabled(server);
  await write(server, id, 2, { state: 'pending' });
  await write(server, id, 3, { state: 'delivered' });
  await write(server, id, 1, { state: 'pending' });
  await databaseOf(server).transaction((tx) =>
    tx.run(
      `WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 100000)
       INSERT INTO webhook_deliveries (id, webhook_id, event_position, type, body, state, attempts, next_at, created_at)
       SELECT n, ?, 0, 'package.published', '', 'failed', 1, ?, ? FROM numbers`,
      [id, Date.now(), Date.now()],
    ),
  );
  await server.installation.webhooks.deleteOld();
  t.is(await numberOf(server, "state = 'delivered'"), 0);
  t.is(await numberOf(server, "state = 'pending'"), 3);
  t.is(await numberOf(server, '1 = 1'), 100_003);
});
