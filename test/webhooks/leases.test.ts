import test, { type ExecutionContext } from 'ava';
import { openDatabase } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { Events } from '../../src/events/events.ts';
import { recordEvent } from '../../src/events/record.ts';
import { Deliveries } from '../../src/webhooks/deliveries.ts';
import type { DeliveryAttempt } from '../../src/webhooks/delivery.ts';
import { temporaryDatabase } from '../support/databases.ts';

// Which sender a delivery belongs to, and what an attempt changes.

const url = 'https://receiver.example/hook';
const start = 1_000_000;

async function setUp(t: ExecutionContext, count = 1) {
  const database = await openDatabase(await temporaryDatabase(t, 'sqlite'));
  t.teardown(() => database.close());
  await migrate(database);
  const events = new Events(database, () => Promise.resolve('default'));
  const clock = { now: start };
  const deliveries = new Deliveries({ database, events, now: () => clock.now, source: 'https://feed.example' });
  await database.transaction(async (tx) => {
    await tx.insert('webhooks', {
      id: 'w',
      account_id: 1,
      url,
      events: '["package.*"]',
      operate: 0,
      enabled: 1,
      secret: '',
      created_at: 0,
      since_position: 0,
      paused_until: 0,
    });
    await tx.insertNew('webhook_cursor', [{ id: 1, position: 0 }]);
    const event = { type: 'package.published', accountId: 1, subject: { kind: 'package', name: 'a' } } as const;
    for (let each = 0; each < count; each += 1) await recordEvent(tx, event, start);
  });
  await events.dispatch();
  await deliveries.make();
  const claim = async () => deliveries.claim([{ webhookId: 'w', count: 10 }]);
  return {
    database,
    deliveries,
    clock,
    claim,
    /** The end of an attempt, which succeeds or gets `status`. */
    attempt: (status = 204, retryAfter?: string): DeliveryAttempt => ({
      at: clock.now,
      duration: 1,
      status,
      answer: '',
      failure: status === 204 ? null : `answered ${status}`,
      retryAfter,
    }),
    row: async () => (await deliveries.list('w', 1))[0]!,
    webhook: async () =>
      (await database.get<{ enabled: number; paused_until: number; failing_since: number | null }>(
        "SELECT enabled, paused_until, failing_since FROM webhooks WHERE id = 'w'",
      ))!,
  };
}

test('a delivery is taken by one sender, and by another one when its lease has ended', async (t) => {
  const { clock, claim, deliveries } = await setUp(t);
  const both = await Promise.all([claim(), claim()]);
  t.is(both.flat().length, 1);
  t.deepEqual(await deliveries.due(), []);
  clock.now += 59_999;
  t.deepEqual(await claim(), []);
  clock.now += 1;
  t.is((await deliveries.due())[0]?.since, start + 60_000);
  const [again] = await claim();
  t.is(again?.id, both.flat()[0]!.id);
  t.not(again?.lease, both.flat()[0]!.lease);
});

test('a sender whose lease has ended changes nothing about the delivery', async (t) => {
  const { clock, claim, deliveries, attempt, row } = await setUp(t);
  const [late] = await claim();
  clock.now += 60_000;
  const [current] = await claim();
  const before = await row();
  await deliveries.release([late!]);
  t.deepEqual(await row(), before);
  await deliveries.finish(late!, url, attempt(500));
  t.deepEqual(await row(), before);
  await deliveries.finish(current!, url, attempt());
  t.like(await row(), { state: 'delivered', attempts: 1, status: 204, lease: null });
  await deliveries.finish(late!, url, attempt(500));
  t.like(await row(), { state: 'delivered', attempts: 1, status: 204 });
});

test('a delivery that is released is due at once, and loses no attempt', async (t) => {
  const { clock, claim, deliveries, row } = await setUp(t);
  const claimed = await claim();
  clock.now += 1000;
  await deliveries.release(claimed);
  t.like(await row(), { lease: null, next_at: start + 1000, attempts: 0, state: 'pending' });
  t.is((await claim())[0]?.id, claimed[0]!.id);
});

test('a delivery is not made due again while it is being sent', async (t) => {
  const { clock, claim, deliveries, attempt, row } = await setUp(t);
  const [claimed] = await claim();
  const before = await row();
  clock.now += 1000;
  await deliveries.repeat(before.number);
  t.is(await deliveries.repeatSince('w', 0), 0);
  t.deepEqual(await row(), before);
  await deliveries.finish(claimed!, url, attempt());
  t.is(await deliveries.repeatSince('w', start + 1), 0, 'it was made before');
  t.is(await deliveries.repeatSince('other', 0), 0);
  t.is(await deliveries.repeatSince('w', start), 1);
  t.like(await row(), { state: 'pending', attempts: 0, next_at: start + 1000 });
});

test('a shorter pause does not replace a longer one', async (t) => {
  const { clock, claim, deliveries, attempt, webhook } = await setUp(t, 3);
  const [first, second, third] = await claim();
  await deliveries.finish(first!, url, attempt(503, '600'));
  await deliveries.finish(second!, url, attempt(503, '60'));
  t.is((await webhook()).paused_until, start + 600_000);
  await deliveries.finish(third!, url, attempt(503, '900'));
  t.is((await webhook()).paused_until, start + 900_000);
  clock.now += 899_999;
  t.deepEqual(await deliveries.due(), [], 'deliveries are due, and the webhook is paused');
  clock.now += 1;
  t.is((await deliveries.due()).length, 1);
});

test('a webhook fails since its first failure after a success', async (t) => {
  const { clock, claim, deliveries, attempt, webhook } = await setUp(t, 4);
  const [first, second, third, fourth] = await claim();
  const since = async () => (await webhook()).failing_since;
  await deliveries.finish(first!, url, attempt(500));
  clock.now += 1000;
  await deliveries.finish(second!, url, attempt(500));
  t.is(await since(), start);
  await deliveries.finish(third!, url, attempt());
  t.is(await since(), null);
  clock.now += 1000;
  await deliveries.finish(fourth!, url, attempt(500));
  t.is(await since(), start + 2000);
});

test('a receiver that is gone disables the webhook only if it still has its address', async (t) => {
  const { claim, deliveries, attempt, webhook, row } = await setUp(t, 2);
  const [first, second] = await claim();
  await deliveries.finish(first!, 'https://former.example/hook', attempt(410));
  t.is((await webhook()).enabled, 1);
  await deliveries.finish(second!, url, attempt(410));
  t.is((await webhook()).enabled, 0);
  t.like(await row(), { state: 'failed', attempts: 1 });
  await deliveries.repeatSince('w', 0);
  t.deepEqual(await deliveries.due(), [], 'a disabled webhook sends nothing');
});

test('an attempt at the address before a change says nothing of the new one', async (t) => {
  const { claim, database, deliveries, attempt, row, webhook } = await setUp(t, 3);
  const [first, second, third] = await claim();
  const change = (failingSince: number | null) =>
    database.transaction((tx) =>
      tx.run("UPDATE webhooks SET url = 'https://new.example/', failing_since = ?, paused_until = 0", [failingSince]),
    );
  await change(null);
  await deliveries.finish(first!, url, attempt(503, '86400'));
  t.like(await webhook(), { paused_until: 0, failing_since: null });
  const { next_at: next } = (await deliveries.get('w', first!.id))!;
  t.is(next, start + 5000, 'the next attempt is at the new address, so it does not wait for the old receiver');
  await change(7);
  await deliveries.finish(second!, url, attempt());
  t.is((await webhook()).failing_since, 7, 'the new receiver still fails');
  await deliveries.finish(third!, 'https://new.example/', attempt(503, '60'));
  t.like(await webhook(), { paused_until: start + 60_000, failing_since: 7 });
  t.is((await row()).next_at, start + 60_000);
});

test('a long list of events becomes deliveries at once, in order, and in transactions of a bounded size', async (t) => {
  const { database, deliveries } = await setUp(t, 401);
  const rows = () =>
    database.select<{ position: number; bytes: number }>(
      'SELECT event_position AS position, LENGTH(body) + 300 AS bytes FROM webhook_deliveries ORDER BY number',
    );
  const made = await rows();
  t.deepEqual(
    made.map(({ position }) => position),
    Array.from({ length: 401 }, (_, at) => at + 1),
  );
  t.is(await deliveries.pending(), 401);
  t.is((await deliveries.list('w', 1000)).length, 401);
  const numbers = (await deliveries.list('w', 3)).map(({ number }) => number);
  t.deepEqual(numbers, [401, 400, 399]);
  t.deepEqual(
    (await deliveries.list('w', 2, 399)).map(({ number }) => number),
    [398, 397],
  );

  const types = Array.from({ length: 60 }, () => ({
    type: 'package.published' as const,
    accountId: 1,
    subject: { kind: 'package' as const, name: 'long' },
    details: { text: 'x'.repeat(15_000) },
  }));
  await database.transaction(async (tx) => {
    for (const each of types) await recordEvent(tx, each, start);
  });
  const events = new Events(database, () => Promise.resolve('default'));
  await events.dispatch();
  const sizes: number[] = [];
  const transaction = database.transaction.bind(database);
  database.transaction = async (work, options) => {
    const before = (await rows()).length;
    const result = await transaction(work, options);
    sizes.push((await rows()).slice(before).reduce((sum, { bytes }) => sum + bytes, 0));
    return result;
  };
  await deliveries.make();
  t.is((await rows()).length, 461);
  t.true(sizes.length >= 2 && sizes.length <= 3, sizes.join());
  t.true(sizes.every((each) => each > 0 && each <= 500_000));
  t.true(sizes[0]! + sizes[1]! > 500_000);
  await deliveries.make();
  t.true(sizes.length <= 3, 'without events nothing is written');
});

test('the deliveries of a webhook since a time are repeated, also many, and those of others are not', async (t) => {
  const { database, deliveries, clock } = await setUp(t, 401);
  await database.transaction(async (tx) => {
    await tx.run("UPDATE webhook_deliveries SET state = 'failed', attempts = 10, next_at = 5, created_at = number");
    await tx.run("UPDATE webhook_deliveries SET webhook_id = 'other' WHERE number IN (7, 400)");
    await tx.run("UPDATE webhook_deliveries SET lease = 'taken' WHERE number = 300");
  });
  t.is(await deliveries.pending(), 0);
  clock.now += 9;
  t.is(await deliveries.repeatSince('w', 5), 394);
  t.is(await deliveries.pending(), 394);
  const left = await database.select<{ number: number }>(
    "SELECT number FROM webhook_deliveries WHERE state = 'failed' AND attempts = 10 AND next_at = 5 ORDER BY number",
  );
  t.deepEqual(
    left.map(({ number }) => number),
    [1, 2, 3, 4, 7, 300, 400],
  );
  t.deepEqual(
    await database.select("SELECT DISTINCT attempts, next_at FROM webhook_deliveries WHERE state = 'pending'"),
    [{ attempts: 0, next_at: start + 9 }],
  );
  t.is(await deliveries.repeatSince('w', 402), 0);
});

test('webhooks with due deliveries are told, the longest waiting first, and each gives as many as are wanted', async (t) => {
  const { database, deliveries, clock } = await setUp(t, 6);
  await database.transaction(async (tx) => {
    for (const id of ['early', 'off', 'paused', 'idle']) {
      const copied = `account_id, url, events, operate, secret, created_at, since_position`;
      await tx.run(
        `INSERT INTO webhooks (id, enabled, paused_until, ${copied}) SELECT ?, ?, ?, ${copied} FROM webhooks WHERE id = 'w'`,
        [id, id === 'off' ? 0 : 1, id === 'paused' ? start + 1 : 0],
      );
    }
    for (const [number, id, at] of [
      [1, 'w', start],
      [2, 'w', start - 5],
      [3, 'early', start - 7],
      [4, 'off', start - 9],
      [5, 'paused', start - 9],
      [6, 'w', start + 1],
    ] as const)
      await tx.run('UPDATE webhook_deliveries SET webhook_id = ?, next_at = ? WHERE number = ?', [id, at, number]);
  });
  const due = async () => (await deliveries.due()).map(({ webhook, since }) => `${webhook.id} ${since - start}`);
  t.deepEqual(await due(), ['early -7', 'w -5']);
  const [first] = await deliveries.claim([{ webhookId: 'w', count: 1 }]);
  t.deepEqual(
    { ...first, lease: '' },
    {
      number: 2,
      id: (await deliveries.list('w', 3)).at(1)!.id,
      webhookId: 'w',
      body: (await deliveries.withBody('w', first!.id))!.body,
      attempts: 0,
      lease: '',
    },
  );
  t.is((await deliveries.get('w', first!.id))!.lease, first!.lease);
  const claimed = await deliveries.claim([
    { webhookId: 'w', count: 5 },
    { webhookId: 'early', count: 1 },
  ]);
  t.deepEqual(
    claimed.map(({ number }) => number),
    [1, 3],
    'what is due later waits',
  );
  t.deepEqual(await deliveries.claim([{ webhookId: 'idle', count: 5 }]), []);
  t.deepEqual(await due(), []);
  clock.now += 1;
  t.deepEqual(await due(), ['paused -9', 'w 1']);
  t.is(await deliveries.get('early', first!.id), undefined);
  t.is(await deliveries.withBody('early', first!.id), undefined);
});
