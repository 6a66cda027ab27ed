import { setImmediate as turn } from 'node:timers/promises';
import test from 'ava';
import { DomainError } from '../../src/runtime/errors.ts';
import { AddressRefused } from '../../src/upstream/addresses.ts';
import type { Claimed, Due } from '../../src/webhooks/deliveries.ts';
import type { DeliveryAttempt } from '../../src/webhooks/delivery.ts';
import { Sender } from '../../src/webhooks/sender.ts';
import type { WebhookRow } from '../../src/webhooks/webhook.ts';
import { testLog } from '../support/mirror.ts';
import { until } from '../support/until.ts';

// What a sender begins, and what it does with the outcome, without receivers and without a database.

function row(id: string, account: number, changes: Partial<WebhookRow> = {}): WebhookRow {
  const secrets = { secret: 'whsec_YQ==', old_secret: null, old_until: null };
  return { id, account_id: account, url: 'http://receiver.test/', ...secrets, ...changes } as WebhookRow;
}

/** A sender whose receivers answer when a test lets them. */
function setUp() {
  const { log, lines } = testLog();
  const posts: { headers: Record<string, string>; answer: (status: number) => void; fail: (error: Error) => void }[] =
    [];
  const state = {
    due: [] as Due[],
    dueReads: 0,
    claims: [] as { webhookId: string; count: number }[][],
    finished: [] as DeliveryAttempt[],
    released: [] as Claimed[],
    closed: 0,
    key: undefined as Error | undefined,
    release: (): Promise<unknown> => Promise.resolve(),
    finish: () => Promise.resolve<'delivered' | 'retry'>('delivered'),
  };
  const deliveries = {
    make: () => Promise.resolve(),
    due: () => {
      state.dueReads += 1;
      return Promise.resolve(state.due);
    },
    claim: (wanted: { webhookId: string; count: number }[]) => {
      state.claims.push(wanted);
      state.due = [];
      return Promise.resolve(
        wanted.flatMap(({ webhookId, count }) =>
          Array.from({ length: count }, (_, at) => ({ number: at, id: 'd', webhookId, body: '{}', attempts: 0 })),
        ),
      );
    },
    finish: (_claimed: Claimed, _url: string, attempt: DeliveryAttempt) => {
      state.finished.push(attempt);
      return state.finish();
    },
    release: (some: Claimed[]) => {
      state.released.push(...some);
      return state.release();
    },
  };
  const sender = new Sender({
    events: { dispatch: () => Promise.resolve() },
    deliveries,
    secrets: {
      ready: () => (state.key ? Promise.reject(state.key) : Promise.resolve()),
      decrypt: (_id: string, secret: string) => Promise.resolve(secret),
    },
    poster: {
      post: (_url: URL, headers: Record<string, string>, _body: Buffer, stop: AbortSignal) =>
        new Promise((resolve, reject) => {
          const answer = (status: number) => resolve({ status, retryAfter: undefined, start: Buffer.from('') });
          stop.addEventListener('abort', () => reject(stop.reason as Error));
          posts.push({ headers, answer, fail: reject });
        }),
      close: () => void (state.closed += 1),
    },
    source: '/v1/audit',
    log,
    now: () => 1000,
  } as unknown as ConstructorParameters<typeof Sender>[0]);
  const dueOf = (...webhooks: WebhookRow[]) => (state.due = webhooks.map((webhook) => ({ webhook, since: 1 })));
  return { sender, posts, state, dueOf, lines };
}

test('a process sends 32 tests at a time, two of each account', async (t) => {
  const { sender, posts } = setUp();
  const send = (account: number) => sender.test(row('w', account), 'team', 'm');
  const tests = Array.from({ length: 16 }, (_, account) => [send(account), send(account)]).flat();
  await until(() => posts.length === 32);
  const refusal = await t.throwsAsync<DomainError>(send(99), { instanceOf: DomainError, name: 'TooManyRequests' });
  t.is(refusal.detail?.['retryAfter'], 15);
  posts[0]!.answer(200);
  t.is((await tests[0]!).failure, null);
  await t.throwsAsync(send(1), { name: 'TooManyRequests' }, 'two of this account still run');
  tests.push(send(99));
  await until(() => posts.length === 33);
  for (const { answer } of posts) answer(204);
  for (const each of await Promise.all(tests)) t.is(each.failure, null);
});

test('64 deliveries are sent at a time, of each account 16 and of each webhook four, and accounts take turns', async (t) => {
  const { sender, posts, state, dueOf } = setUp();
  const all = Array.from({ length: 6 }, (_, account) =>
    [1, 2, 3, 4, 5].map((each) => row(`${account}.${each}`, account)),
  );
  dueOf(...all[0]!, ...all[1]!);
  await sender.tick();
  const counts = () => new Map(state.claims.at(-1)!.map(({ webhookId, count }) => [webhookId, count]));
  t.deepEqual(
    [...counts().values()].toSorted((one, other) => one - other),
    [3, 3, 3, 3, 3, 3, 3, 3, 4, 4],
  );
  t.is(posts.length, 32);
  dueOf(...all.flat());
  await sender.tick();
  t.is(posts.length, 64);
  const accounts = Map.groupBy(counts(), ([id]) => id[0]!);
  t.deepEqual([...accounts.keys()], ['2', '3', '4', '5'], 'those that have no place yet');
  for (const some of accounts.values())
    t.is(
      some.reduce((sum, [, count]) => sum + count, 0),
      8,
    );
  const reads = state.dueReads;
  dueOf(row('7.1', 7));
  await sender.tick();
  t.is(state.dueReads, reads, 'nothing is read while no place is free');
  posts[0]!.answer(200);
  await until(() => posts.length === 65);
  t.deepEqual(state.claims.at(-1), [{ webhookId: '7.1', count: 1 }], 'at once when a place is free');
  await sender.close(10_000);
});

function webhooks(account: number, count: number): WebhookRow[] {
  return Array.from({ length: count }, (_, each) => row(`${account}.${each}`, account));
}

test('accounts get equal shares of few free places, however many webhooks they have', async (t) => {
  const { sender, posts, state, dueOf } = setUp();
  dueOf(...[4, 4, 4, 2].flatMap((count, at) => webhooks(10 + at, count)));
  await sender.tick();
  t.is(posts.length, 56);
  dueOf(...webhooks(1, 1), ...webhooks(2, 5));
  await sender.tick();
  const claimed = Object.fromEntries(state.claims.at(-1)!.map(({ webhookId, count }) => [webhookId, count]));
  t.deepEqual(claimed, { '1.0': 4, '2.0': 1, '2.1': 1, '2.2': 1, '2.3': 1 });
  await sender.close(10_000);
});

test('a webhook has four deliveries under way, and one while it fails', async (t) => {
  const { sender, posts, state, dueOf } = setUp();
  dueOf(row('w', 1));
  await sender.tick();
  t.deepEqual(state.claims, [[{ webhookId: 'w', count: 4 }]]);
  dueOf(row('w', 1));
  await sender.tick();
  t.is(state.claims.length, 1);
  dueOf(row('second', 1));
  await sender.tick();
  const end = async (status: number, finished: number) => {
    for (const { answer } of posts.splice(0)) answer(status);
    await until(() => state.finished.length === finished);
  };
  await end(500, 8);
  const claimed = async () => {
    dueOf(row('w', 1), row('second', 1), row('other', 1));
    await sender.tick();
    return Object.fromEntries(state.claims.at(-1)!.map(({ webhookId, count }) => [webhookId, count]));
  };
  t.deepEqual(await claimed(), { w: 1, second: 1, other: 4 });
  await end(200, 14);
  t.deepEqual(await claimed(), { w: 4, second: 4, other: 4 }, 'until one is accepted');
  await sender.close(10_000);
});

test('without the key nothing is taken, which is logged once', async (t) => {
  const { sender, posts, state, dueOf, lines } = setUp();
  const logged = () => lines.splice(0).filter((line) => line.includes('cannot sign webhook deliveries')).length;
  for (const [key, expected] of [
    [new Error('no key'), 1],
    [new Error('no key'), 0],
    [undefined, 0],
    [new Error('no key'), 1],
  ] as const) {
    state.key = key;
    state.claims = [];
    dueOf(row('w', 1));
    await sender.tick();
    t.is(state.claims.length, key ? 0 : 1);
    t.is(logged(), expected);
    for (const { answer } of posts.splice(0)) answer(200);
    await until(() => key !== undefined || state.finished.length === 4);
  }
  t.is(sender.outcomes.get('delivered'), 4);
  t.is(sender.outcomes.get('failed'), 0);
});

test('a delivery that could not be recorded is told, and keeps no place', async (t) => {
  const { sender, posts, state, dueOf, lines } = setUp();
  state.finish = () => Promise.reject(new Error('no database'));
  dueOf(row('w', 1));
  await sender.tick();
  for (const { answer } of posts.splice(0)) answer(200);
  await until(() => lines.filter((line) => line.includes('was not recorded')).length === 4);
  t.true(lines.every((line) => line.includes('"webhook":"w"')));
  t.is(sender.outcomes.get('delivered'), 0);
  dueOf(row('w', 1));
  await sender.tick();
  t.is(posts.length, 4);
  await sender.close(10_000);
});

test('a sender that closes breaks off what it sends and makes it due again, or says that it could not', async (t) => {
  const quiet = setUp();
  quiet.state.release = () => Promise.reject(new Error('no database'));
  await quiet.sender.close(10_000);
  t.deepEqual([quiet.state.released, quiet.state.closed, quiet.lines], [[], 1, []]);
  for (const fails of [false, true]) {
    const { sender, state, dueOf, lines } = setUp();
    if (fails) state.release = () => Promise.reject(new Error('no database'));
    dueOf(row('w', 1));
    await sender.tick();
    await sender.close(10_000);
    t.is(state.released.length, 4);
    t.deepEqual(state.finished, [], 'an attempt that was broken off is none');
    t.is(state.closed, 1);
    t.is(lines.filter((line) => line.includes('they are repeated after a minute')).length, fails ? 1 : 0);
    dueOf(row('w', 1));
    const reads = state.dueReads;
    await sender.tick();
    t.is(state.dueReads, reads, 'it begins nothing more');
  }
});

test('a delivery that ends well while the sender closes is recorded', async (t) => {
  const { sender, posts, state, dueOf } = setUp();
  dueOf(row('w', 1));
  await sender.tick();
  for (const { answer } of posts) answer(200);
  let recorded = 0;
  state.finish = async () => {
    await turn();
    recorded += 1;
    return 'delivered';
  };
  state.release = () => Promise.resolve(t.is(recorded, 4, 'no lease ends before'));
  await sender.close(10_000);
  t.is(recorded, 4);
});

test('an attempt is signed with both secrets until the old one has ended', async (t) => {
  const { sender, posts } = setUp();
  for (const [oldUntil, signatures] of [
    [1001, 2],
    [1000, 1],
  ] as const) {
    const attempt = sender.test(row('w', 1, { old_secret: 'whsec_Yg==', old_until: oldUntil }), 'team', 'm');
    await until(() => posts.length === 1);
    const { headers, answer } = posts.pop()!;
    t.is(headers['webhook-signature']!.split(' ').length, signatures);
    answer(200);
    t.is((await attempt).at, 1000);
  }
});

test('the reason of a failure names no more than a reader needs', async (t) => {
  const { sender, posts } = setUp();
  const reasonOf = async (error: Error) => {
    const attempt = sender.test(row('w', 1), 'team', 'm');
    await until(() => posts.length === 1);
    posts.pop()!.fail(error);
    const { status, answer, failure } = await attempt;
    t.deepEqual([status, answer], [null, null]);
    return failure;
  };
  t.is(await reasonOf(new AddressRefused('not allowed')), 'not allowed');
  t.is(await reasonOf(new DOMException('late', 'TimeoutError')), 'did not answer in time');
  t.is(await reasonOf(Object.assign(new Error('text'), { code: 'ECONNRESET' })), 'cannot be reached: ECONNRESET');
  t.is(await reasonOf(new Error('x'.repeat(300))), `cannot be reached: ${'x'.repeat(236)}`);
});
