import test from 'ava';
import type { Row } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { deleteOldDeliveries } from '../../src/webhooks/retention.ts';
import { webhooksIn } from '../../src/webhooks/webhook-rows.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

const time = Date.UTC(2027, 0, 20);
const keep = 14 * 86_400_000;

const webhook = (id: string, deletedAt: number | null = null): Row => ({
  id,
  account_id: 1,
  url: 'https://receiver.example/',
  events: '[]',
  enabled: 1,
  operate: 0,
  secret: '',
  since_position: 0,
  paused_until: 0,
  created_at: 1,
  deleted_at: deletedAt,
});

const delivery = (webhookId: string, id: string, createdAt: number): Row => ({
  id,
  webhook_id: webhookId,
  event_position: 1,
  type: 'package.published',
  body: '{}',
  state: 'pending',
  attempts: 0,
  next_at: 1,
  created_at: createdAt,
});

for (const dialect of dialects) {
  test(`${dialect}: deliveries that are too old go, and those of deleted webhooks`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    await migrate(database);
    // More than one statement deletes.
    const ids = Array.from({ length: 401 }, (_, index) => `many-${index}`);
    await database.transaction(async (tx) => {
      await tx.insertNew('webhooks', [webhook('kept'), webhook('gone', 5), webhook('left', 6)]);
      await tx.insertNew('webhook_deliveries', [
        delivery('kept', 'old', time - keep - 1),
        delivery('kept', 'young', time - keep),
        delivery('unknown', 'of no webhook', time),
        ...ids.map((id) => delivery('gone', id, time)),
      ]);
    });
    const counts = async () =>
      database.select<{ id: string; n: number }>(
        'SELECT webhook_id AS id, COUNT(*) AS n FROM webhook_deliveries GROUP BY webhook_id ORDER BY webhook_id',
      );
    const webhooks = async () =>
      (await database.select<{ id: string }>('SELECT id FROM webhooks ORDER BY id')).map(({ id }) => id);
    await deleteOldDeliveries({ database, time, stop: AbortSignal.abort() });
    t.deepEqual(await webhooks(), ['gone', 'kept', 'left'], 'the work had to end');
    t.deepEqual(
      (await counts()).map(({ n }) => n),
      [401, 2, 1],
    );

    await deleteOldDeliveries({ database, time, stop: new AbortController().signal });
    t.deepEqual(await webhooks(), ['kept']);
    t.deepEqual(await counts(), [
      { id: 'kept', n: 1 },
      { id: 'unknown', n: 1 },
    ]);
    t.deepEqual(await database.select(`SELECT id FROM webhook_deliveries WHERE webhook_id = 'kept'`), [
      { id: 'young' },
    ]);
  });

  test(`${dialect}: all webhooks that are not deleted are read, by their IDs`, async (t) => {
    const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    await migrate(database);
    const ids = Array.from({ length: 401 }, (_, index) => String(1000 + index));
    await database.transaction((tx) =>
      tx.insertNew('webhooks', [...ids.toReversed().map((id) => webhook(id)), webhook('1200-deleted', 5)]),
    );
    const found: string[] = [];
    for await (const { id } of webhooksIn(database, 'id')) found.push(id);
    t.deepEqual(found, ids);
  });
}

test('a webhook keeps its latest 100,000 deliveries, and older ones while they wait', async (t) => {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await migrate(database);
  await database.transaction(async (tx) => {
    await tx.insertNew('webhooks', [webhook('full'), webhook('other')]);
    await tx.run(
      `WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 100450)
       INSERT INTO webhook_deliveries (id, webhook_id, event_position, type, body, state, attempts, next_at, created_at)
       SELECT n, 'full', 0, 'package.published', '', CASE WHEN n IN (3, 205, 450) THEN 'pending' ELSE 'delivered' END, 1, 1, ?
       FROM numbers`,
      [time],
    );
    await tx.insertNew('webhook_deliveries', [{ ...delivery('other', 'delivered', time), state: 'delivered' }]);
  });
  const stop = new AbortController();
  const transaction = database.transaction.bind(database);
  let deletions = 0;
  database.transaction = (work, options) => {
    deletions += 1;
    if (deletions === 2) stop.abort();
    return transaction(work, options);
  };
  const left = async () =>
    (
      await database.select<{ number: number }>(
        "SELECT number FROM webhook_deliveries WHERE webhook_id = 'full' ORDER BY number LIMIT 5",
      )
    ).map(({ number }) => number);
  await deleteOldDeliveries({ database, time, stop: stop.signal });
  t.is(deletions, 2, 'the work had to end');
  t.deepEqual(await left(), [3, 205, 401, 402, 403]);
  await deleteOldDeliveries({ database, time, stop: new AbortController().signal });
  t.deepEqual(await left(), [3, 205, 450, 451, 452]);
  t.is(deletions, 3);
  await deleteOldDeliveries({ database, time, stop: new AbortController().signal });
  t.is(deletions, 3, 'nothing is left to delete');
  t.is((await database.get<{ n: number }>('SELECT COUNT(*) AS n FROM webhook_deliveries'))!.n, 100_004);
});
