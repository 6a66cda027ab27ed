import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { pino } from 'pino';
import { schema } from '../../src/config/schema.ts';
import { openDatabase, type Database, type WriteSignal } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { Events } from '../../src/events/events.ts';
import { recordEvent } from '../../src/events/record.ts';
import { openWebhooks, type OpenWebhooks } from '../../src/webhooks/open.ts';
import { temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { startReceiver, type Receiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';

interface Opened {
  database: Database;
  events: Events;
  open: OpenWebhooks;
  id: string;
  receiver: Receiver;
}

async function opened(t: ExecutionContext, url: string, changes?: WriteSignal): Promise<Opened> {
  const database = await openDatabase(url, changes);
  t.teardown(() => database.close());
  await migrate(database);
  const events = new Events(database, () => Promise.resolve('default'));
  const data = join(await folderUntilEnd(t));
  const config = schema.parse({ data, webhooks: { allow: ['127.0.0.1'] } });
  const log = pino({ level: 'silent' });
  const open = openWebhooks({ config, database, events, log, now: Date.now, deletionTime: Date.now });
  t.teardown(() => open.close(1000));
  const receiver = await startReceiver(t);
  const { webhook } = await open.webhooks.create(1, { url: receiver.url, events: ['*'], operate: false });
  return { database, events, open, id: webhook.id, receiver };
}

async function write(database: Database, accountId = 1): Promise<void> {
  const event = { type: 'package.published', accountId, subject: { kind: 'package', name: 'a' } } as const;
  await database.transaction((tx) => recordEvent(tx, event, Date.now()));
}

async function deliver({ open, id }: Opened): Promise<void> {
  await until(async () => {
    await open.tick();
    return (await open.webhooks.deliveries(1, id, 10)).every(
      ({ state, attempts }) => state !== 'pending' || attempts > 0,
    );
  });
}

test('sqlite: deliveries leave cached rows', async (t) => {
  const parts = await opened(t, await temporaryDatabase(t, 'sqlite'));
  const { database, open, receiver } = parts;
  const getCached = async () => {
    await new Promise(setImmediate);
    return database.getCached('SELECT COUNT(*) AS events FROM events');
  };
  await write(database);
  const cached = await getCached();
  await deliver(parts);
  t.is(receiver.received.length, 1);
  receiver.answer = (response) => response.writeHead(500, { 'retry-after': '1' }).end();
  await open.webhooks.redeliverSince(1, parts.id, 0);
  await deliver(parts);
  await open.deleteOld();
  t.is(await getCached(), cached);
  const made = { url: receiver.url, events: ['tag.*'], operate: false };
  const { webhook } = await open.webhooks.create(1, made);
  await open.webhooks.change(1, webhook.id, { name: 'changed' });
  t.is(await open.webhooks.setDecryptable(false), 2);
  t.is(await open.webhooks.setDecryptable(true), 2);
  await open.webhooks.delete(1, webhook.id);
  t.is(await getCached(), cached, 'changes of webhooks');
});

test('mysql: deliveries are not announced', async (t) => {
  let announced = 0;
  const parts = await opened(t, await temporaryDatabase(t, 'mysql'), {
    versions: () => Promise.resolve({ of: () => '1' }),
    announce: () => Promise.resolve(void (announced += 1)),
  });
  await write(parts.database);
  const before = announced;
  await deliver(parts);
  t.is(parts.receiver.received.length, 1);
  t.is(announced, before);
});

test('a delivery and the position of its event are written together', async (t) => {
  const parts = await opened(t, await temporaryDatabase(t, 'sqlite'));
  const { database, events, open, id, receiver } = parts;
  await write(database);
  await events.dispatch();
  const position = await open.cursor();
  const transaction = database.transaction.bind(database);
  // A process that is killed while it makes deliveries: its transaction is rolled back.
  database.transaction = (work, options) =>
    transaction(async (tx) => {
      await work(tx);
      throw new Error('killed');
    }, options);
  await t.throwsAsync(open.tick(), { message: 'killed' });
  t.is(await open.cursor(), position);
  t.deepEqual(await open.webhooks.deliveries(1, id, 10), []);
  database.transaction = transaction;
  await deliver(parts);
  t.is(receiver.received.length, 1);
  t.is(await open.cursor(), position + 2, 'with the event of the webhook itself');
  await open.webhooks.delete(1, id);
  t.is(await open.cursor(), Infinity, 'without webhooks no event is needed');
});

test('a webhook gets no events of before, also if they are not turned into deliveries yet', async (t) => {
  const parts = await opened(t, await temporaryDatabase(t, 'sqlite'));
  const { database, open, id, receiver } = parts;
  await write(database);
  const { webhook: later } = await open.webhooks.create(1, { url: receiver.url, events: ['*'], operate: false });
  await deliver(parts);
  const types = (await open.webhooks.deliveries(1, id, 10)).map(({ type }) => type);
  t.deepEqual(types, ['webhook.created', 'package.published']);
  t.is((await open.webhooks.deliveries(1, later.id, 10)).length, 0);
});

test('a receiver that has failed gets one delivery at a time until it accepts one', async (t) => {
  const parts = await opened(t, await temporaryDatabase(t, 'sqlite'));
  const { database, open, receiver } = parts;
  receiver.answer = (response) => response.writeHead(500, { 'retry-after': '0' }).end();
  await write(database);
  await deliver(parts);
  const waiting: (() => void)[] = [];
  receiver.answer = (response) => waiting.push(() => response.writeHead(204).end());
  for (let each = 0; each < 5; each += 1) await write(database);
  await until(async () => {
    await open.tick();
    return waiting.length > 0;
  });
  for (let each = 0; each < 3; each += 1) await open.tick();
  const leased = () => database.select('SELECT number FROM webhook_deliveries WHERE lease IS NOT NULL');
  t.is((await leased()).length, 1);
  waiting[0]!();
  await until(() => waiting.length === 5);
  t.is((await leased()).length, 4);
  for (const end of waiting.slice(1)) end();
});

test('deliveries that are taken while the server stops are released and not sent', async (t) => {
  const parts = await opened(t, await temporaryDatabase(t, 'sqlite'));
  const { database, open, receiver } = parts;
  await write(database);
  const leased = () => database.select('SELECT number FROM webhook_deliveries WHERE lease IS NOT NULL');
  const transaction = database.transaction.bind(database);
  let closing: Promise<void> | undefined;
  database.transaction = async (work, options) => {
    const result = await transaction(work, options);
    if ((await leased()).length > 0) closing ??= open.close(10_000);
    return result;
  };
  await until(async () => {
    await open.tick();
    return closing !== undefined;
  });
  await closing;
  t.deepEqual(await leased(), []);
  const due = 'SELECT attempts FROM webhook_deliveries WHERE next_at <= ?';
  t.deepEqual(await database.select(due, [Date.now()]), [{ attempts: 0 }]);
  t.is(receiver.received.length, 0);
});
