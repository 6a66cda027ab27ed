import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import { schema } from '../../src/config/schema.ts';
import { Events } from '../../src/events/events.ts';
import { recordEvent } from '../../src/events/record.ts';
import { openWebhooks } from '../../src/webhooks/open.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { testLog } from '../support/mirror.ts';
import { startReceiver } from '../support/receiver.ts';
import { until } from '../support/until.ts';

// The webhooks of a server without a server: their work, metrics and key.

async function setUp(t: ExecutionContext, server: object = {}) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const events = new Events(database, () => Promise.resolve('default'));
  const data = await folderUntilEnd(t);
  const config = schema.parse({ data, server, webhooks: { allow: ['127.0.0.1'] } });
  const { log, lines } = testLog();
  const clock = { now: Date.now(), deletion: Date.now() };
  const open = openWebhooks({
    config,
    database,
    events,
    log,
    now: () => clock.now,
    deletionTime: () => clock.deletion,
  });
  t.teardown(() => open.close(1000));
  const receiver = await startReceiver(t);
  const write = () =>
    database.transaction((tx) =>
      recordEvent(tx, { type: 'package.published', accountId: 1, subject: { kind: 'package', name: 'a' } }, clock.now),
    );
  const chore = (failure: RegExp) => open.chores.find((each) => failure.test(each.failure))!;
  const logged = () =>
    lines.splice(0).map((line) => {
      const { level, webhooks, msg } = JSON.parse(line) as Record<string, unknown>;
      return [level, webhooks, msg];
    });
  return { database, data, clock, open, receiver, write, chore, logged };
}

/** The values of the counter of attempts. */
const outcomes = (delivered: number, retry: number) => [
  [{ outcome: 'delivered' }, delivered],
  [{ outcome: 'retry' }, retry],
  [{ outcome: 'failed' }, 0],
];

test('deliveries are made and sent, counted, and deleted by the clock for deletions', async (t) => {
  const { database, clock, open, receiver, write, chore } = await setUp(t, { baseUrl: 'https://hub.example/below/' });
  t.deepEqual(
    open.chores.map(({ interval, failure }) => [interval, failure]),
    [
      [1000, 'events did not get their positions, or webhook deliveries were not sent'],
      [15_000, 'webhook deliveries were not counted'],
      [15_000, 'the key of webhooks was not checked'],
      [60_000, 'old webhook deliveries were not deleted'],
    ],
  );
  const metrics: unknown[][] = [];
  const reads: (() => Iterable<[object, number]>)[] = [];
  const add =
    (type: string) =>
    (...[name, help, labels, read]: [string, string, readonly string[], () => Iterable<[object, number]>]) => {
      metrics.push([type, name, help, labels]);
      reads.push(read);
    };
  open.observe({ counter: add('counter'), gauge: add('gauge') });
  t.deepEqual(metrics, [
    ['counter', 'entrepot_webhook_deliveries_total', 'Finished webhook attempts of this process', ['outcome']],
    ['gauge', 'entrepot_webhook_pending', 'Webhook deliveries that wait, of all instances', []],
  ]);
  const values = () => reads.map((read) => [...read()]);
  t.deepEqual(values(), [outcomes(0, 0), [[{}, 0]]]);
  t.is(await open.cursor(), Infinity);

  const made = { url: receiver.url, events: ['package.*'], operate: false };
  const { webhook } = await open.webhooks.create(1, made);
  receiver.answer = (response) => response.writeHead(500).end();
  await write();
  await chore(/positions/).run();
  await until(() => receiver.received.length === 1);
  t.is(receiver.received[0]!.event.source, 'https://hub.example/below/v1/audit');
  await until(() => [...reads[0]!()][1]![1] === 1);
  t.deepEqual(values(), [outcomes(0, 1), [[{}, 0]]], 'not counted yet');
  await chore(/counted/).run();
  t.deepEqual(values(), [outcomes(0, 1), [[{}, 1]]]);
  receiver.answer = (response) => response.writeHead(204).end();
  clock.now += 5000;
  await open.tick();
  await until(() => [...reads[0]!()][0]![1] === 1);
  await chore(/counted/).run();
  t.deepEqual(values(), [outcomes(1, 1), [[{}, 0]]]);

  const test1 = await open.test(1, 'team', webhook.id);
  const test2 = await open.test(1, 'team', webhook.id);
  t.regex(test1.id, /^test-[\da-f-]{36}$/);
  t.not(test1.id, test2.id);
  t.like(test1.attempt, { status: 204, failure: null, at: clock.now });
  t.is(receiver.received.at(-1)!.event.data.account, 'team');
  await t.throwsAsync(open.test(2, 'other', webhook.id), { name: 'NotFound' });

  const count = async () => (await database.select('SELECT id FROM webhook_deliveries')).length;
  clock.now += 30 * 86_400_000;
  await chore(/deleted/).run();
  t.is(await count(), 1);
  clock.deletion += 15 * 86_400_000;
  await open.close(1000);
  await open.deleteOld();
  t.is(await count(), 1, 'a server that closes deletes nothing more');
});

test('without an address of the server, an event has a path as its source', async (t) => {
  const { open, receiver, write } = await setUp(t);
  await open.webhooks.create(1, { url: receiver.url, events: ['package.*'], operate: false });
  await write();
  await open.tick();
  await until(() => receiver.received.length === 1);
  t.is(receiver.received[0]!.event.source, '/v1/audit');
});

test('without their key webhooks are disabled, unless others have it, and enabled when it is back', async (t) => {
  const { data, open, receiver, chore, logged } = await setUp(t);
  await open.useKey(false);
  t.is(await open.keyProblem(), undefined);
  await t.notThrowsAsync(open.checkKey());
  const { webhook } = await open.webhooks.create(1, { url: receiver.url, events: ['*'], operate: false });
  const isEnabled = async () => (await open.webhooks.get(1, webhook.id)).enabled;
  await open.useKey(false);
  t.deepEqual([await isEnabled(), logged()], [true, []]);
  const file = join(data, 'secret-key');
  const key = await readFile(file, 'utf8');
  await rm(file);
  const check = chore(/key/);
  await check.run();
  t.true(await isEnabled(), 'only a start looks for a key that is missing');
  await open.useKey(true);
  t.deepEqual([await isEnabled(), logged()], [true, []], 'the others can send');
  await open.useKey(false);
  t.false(await isEnabled());
  const problem = (await open.keyProblem())!;
  t.deepEqual(logged(), [
    [40, undefined, `all webhooks are disabled, and events of this time will not be delivered: ${problem}`],
  ]);
  await check.run();
  t.deepEqual([await isEnabled(), logged()], [false, []]);
  await writeFile(file, key);
  await check.run();
  t.true(await isEnabled());
  t.deepEqual(logged(), [
    [30, 1, 'webhooks are enabled again, because their key is back; events of the time between are not delivered'],
  ]);
  await check.run();
  t.deepEqual(logged(), []);
});
