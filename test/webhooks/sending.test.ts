import { createServer } from 'node:net';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import test from 'ava';
import type { Resolve } from '../../src/upstream/addresses.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { databaseOf, eventsOf, rowsOf, tokenOf } from '../support/inside.ts';
import {
  allowLoopback,
  api,
  ask,
  createWebhook,
  deliverUntil,
  deliveriesOf,
  startReceiver,
  testOf,
  verify,
} from '../support/receiver.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { until, within } from '../support/until.ts';

const second = 1000;
const minute = 60 * second;
const hour = 60 * minute;

async function publish(server: TestServer, ...ids: string[]): Promise<void> {
  await new TestFeed(server).publish(...ids.map((id) => ({ id })));
}

async function shown(server: TestServer, id: string): Promise<{ enabled: boolean; disabled_reason: string | null }> {
  return (await api(server, 'GET', `/${id}`)) as { enabled: boolean; disabled_reason: string | null };
}

test('a delivery has ten attempts at fixed intervals, and can be repeated', async (t) => {
  const server = await startTestServer(t, allowLoopback);
  const receiver = await startReceiver(t);
  receiver.answer = (response) => response.writeHead(500).end();
  const start = Date.now();
  server.clock.now = start;
  const { id } = await createWebhook(server, receiver.url, ['package.*']);
  await publish(server, 'Never');
  const delays = [0, 5 * second, 5 * minute, 30 * minute, ...[2, 5, 10, 14, 20, 24].map((hours) => hours * hour)];
  const attempts = async () => (await deliveriesOf(server, id))[0]?.attempts;
  for (const [index, delay] of delays.entries()) {
    if (delay > 0) {
      server.clock.now += delay - 1;
      await server.installation.webhooks.tick();
      await server.installation.webhooks.tick();
      t.is(receiver.received.length, index, 'not a moment too early');
      server.clock.now += 1;
    }
    await deliverUntil(server, async () => (await attempts()) === index + 1);
  }
  const [failed] = await deliveriesOf(server, id);
  t.like(failed, { state: 'failed', attempts: 10, next_attempt_at: null });
  t.like(failed!.last_attempt, { status: 500, error: 'answered 500' });
  server.clock.now += 100 * hour;
  await server.installation.webhooks.tick();
  t.is(receiver.received.length, 10);
  t.is(new Set(receiver.received.map(({ headers }) => headers['webhook-id'])).size, 1, 'one message');
  t.is(new Set(receiver.received.map(({ headers }) => headers['webhook-timestamp'])).size, 10);

  receiver.answer = (response) => response.writeHead(204).end();
  t.like(await api(server, 'POST', `/${id}/deliveries/${failed!.id}/redeliver`), { state: 'pending', attempts: 0 });
  await deliverUntil(server, async () => (await deliveriesOf(server, id))[0]!.state === 'delivered');
  t.is(receiver.received.at(-1)!.headers['webhook-id'], failed!.id);
  const since = (time: number) => api(server, 'POST', `/${id}/redeliver`, { since: new Date(time).toISOString() });
  t.deepEqual(await since(start + 1), { deliveries: 0 });
  t.deepEqual(await since(start), { deliveries: 1 });
  await deliverUntil(server, () => receiver.received.length === 12);
});

test('redirects are not followed, 410 disables, and Retry-After is heeded', async (t) => {
  const server = await startTestServer(t, allowLoopback);
  const elsewhere = await startReceiver(t);
  const receiver = await startReceiver(t);
  const start = Date.now();
  server.clock.now = start;
  const { id } = await createWebhook(server, receiver.url, ['package.*']);
  receiver.answer = (response) => response.writeHead(307, { location: elsewhere.url }).end();
  await publish(server, 'One');
  const state = async () => (await deliveriesOf(server, id)).at(-1);
  await deliverUntil(server, async () => (await state())?.attempts === 1);
  t.like((await state())!.last_attempt, { status: 307, error: 'answered 307; redirects are not followed' });
  t.is(elsewhere.received.length, 0);

  for (const header of ['3600', new Date(start + 5 * second + hour).toUTCString()]) {
    receiver.answer = (response) => response.writeHead(429, { 'retry-after': header }).end();
    const before = (await state())!.attempts;
    server.clock.now = start + 5 * second;
    if (before > 1) await api(server, 'POST', `/${id}/deliveries/${(await state())!.id}/redeliver`);
    await deliverUntil(
      server,
      async () => (await state())!.last_attempt!.status === 429 && (await state())!.attempts !== before,
    );
    const next = Date.parse((await state())!.next_attempt_at!);
    t.true(Math.abs(next - (start + 5 * second + hour)) <= second, header);
  }
  await publish(server, 'Two');
  const requests = receiver.received.length;
  await deliverUntil(server, async () => (await deliveriesOf(server, id)).length === 2);
  await server.installation.webhooks.tick();
  t.is(receiver.received.length, requests, 'a pause concerns all deliveries of the webhook');
  receiver.answer = (response) => response.writeHead(503, { 'retry-after': '999999999' }).end();
  server.clock.now += hour + second;
  await deliverUntil(server, async () =>
    (await deliveriesOf(server, id)).some(({ last_attempt: last }) => last?.status === 503),
  );
  for (const each of await deliveriesOf(server, id)) {
    t.true(Date.parse(each.next_attempt_at!) <= server.clock.now + 24 * hour, 'at most a day');
  }

  receiver.answer = (response) => response.writeHead(410).end();
  server.clock.now += 25 * hour;
  await deliverUntil(server, async () => !(await shown(server, id)).enabled);
  t.is((await shown(server, id)).disabled_reason, 'the receiver answered 410 Gone');
  const gone = (await deliveriesOf(server, id)).filter(({ state: each }) => each === 'failed');
  t.true(gone.length > 0);
  const last = receiver.received.length;
  await server.installation.webhooks.tick();
  server.clock.now += 25 * hour;
  await server.installation.webhooks.tick();
  t.true(receiver.received.length <= last + 1);
  t.like(await api(server, 'PATCH', `/${id}`, { enabled: true }), { enabled: true, disabled_reason: null });
});

test('an attempt ends after its time, also if the answer or its body does not end', async (t) => {
  const server = await startTestServer(t, allowLoopback, { receivers: { timeout: 2000 } });
  const receiver = await startReceiver(t);
  const { id } = await createWebhook(server, receiver.url);
  receiver.answer = () => undefined;
  t.like(await testOf(server, id), { status: null, error: 'did not answer in time' });
  receiver.answer = (response) => response.writeHead(200).write('begun');
  t.like(await testOf(server, id), { status: 200, answer: 'begun', error: null });
  for (const [status, error] of [
    [299, null],
    [300, 'answered 300; redirects are not followed'],
    [399, 'answered 399; redirects are not followed'],
    [400, 'answered 400'],
  ] as const) {
    receiver.answer = (response) => response.writeHead(status).end('a\0b');
    t.like(await testOf(server, id), { status, answer: 'a\uFFFDb', error });
  }
  receiver.answer = (response) => {
    const drip = setInterval(() => response.writeInformation(103, {}), 20);
    response.on('close', () => clearInterval(drip));
  };
  t.like(await testOf(server, id), { status: null, error: 'did not answer in time' });
  await receiver.stop();
  t.like(await testOf(server, id), { status: null, error: 'cannot be reached: ECONNREFUSED' });
});

test('an account sends two tests at a time', async (t) => {
  const server = await startTestServer(t, allowLoopback);
  const receiver = await startReceiver(t);
  const { id } = await createWebhook(server, receiver.url);
  const theirs = await tokenOf(server, ['admin'], 'other');
  const other = await createWebhook(server, receiver.url, ['*'], theirs);
  const waiting: (() => void)[] = [];
  receiver.answer = (response) => waiting.push(() => response.writeHead(204).end());
  const tests = [ask(server, 'POST', `/${id}/test`), ask(server, 'POST', `/${id}/test`)];
  await until(() => waiting.length === 2);
  t.is((await ask(server, 'POST', `/${id}/test`)).status, 429);
  tests.push(ask(server, 'POST', `/${other.id}/test`, undefined, theirs));
  await until(() => waiting.length === 3);
  for (const end of waiting) end();
  for (const answer of await Promise.all(tests)) t.is(answer.status, 200);
  receiver.answer = (response) => response.writeHead(204).end();
  t.is((await testOf(server, id)).status, 204);
});

test('an address that is allowed no more gets nothing', async (t) => {
  const data = await folderUntilEnd(t);
  const receiver = await startReceiver(t);
  const before = await startTestServer(t, { data, ...allowLoopback });
  const { id } = await createWebhook(before, receiver.url, ['package.*']);
  await before.close();
  const server = await startTestServer(t, { data });
  t.regex((await testOf(server, id)).error!, /webhooks\.allow/);
  await publish(server, 'Refused');
  await deliverUntil(server, async () => (await deliveriesOf(server, id))[0]?.attempts === 1);
  t.is(receiver.received.length, 0);
});

test('each attempt has a connection of its own, also if the receiver would keep it', async (t) => {
  const server = await startTestServer(t, allowLoopback, { receivers: { timeout: 30_000 } });
  let connections = 0;
  // It answers one request of a connection, and then leaves it open without a word.
  const keeping = createServer((socket) => {
    connections += 1;
    socket.on('error', () => undefined);
    socket.once('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'));
  });
  keeping.listen(0, '127.0.0.1');
  await once(keeping, 'listening');
  t.teardown(() => keeping.close());
  const { id } = await createWebhook(server, `http://127.0.0.1:${(keeping.address() as AddressInfo).port}/`);
  for (let each = 1; each <= 3; each += 1) {
    t.like(await testOf(server, id), { status: 200, error: null });
    t.is(connections, each);
  }
});

test('only the start of a huge answer is read', async (t) => {
  const server = await startTestServer(t, allowLoopback);
  const chunk = Buffer.alloc(64 * 1024, 0x61);
  let sent = 0;
  const closed = Promise.withResolvers<void>();
  const huge = createServer((socket) => {
    socket.on('error', () => undefined).on('close', () => closed.resolve());
    socket.once('data', () => {
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n');
      const more = () => {
        while (!socket.destroyed && sent < 2 ** 30) {
          sent += chunk.length;
          if (socket.write(chunk)) continue;
          socket.once('drain', more);
          break;
        }
      };
      more();
    });
  });
  huge.listen(0, '127.0.0.1');
  await once(huge, 'listening');
  t.teardown(() => huge.close());
  const { id } = await createWebhook(server, `http://127.0.0.1:${(huge.address() as AddressInfo).port}/`);
  const result = await testOf(server, id);
  t.is(result.answer, 'a'.repeat(1024));
  t.is(result.status, 200);
  await closed.promise;
  t.true(sent < 64 * 2 ** 20, `${sent} bytes`);
});

test('a receiver that switches protocols fails at once, and its connection is closed', async (t) => {
  const server = await startTestServer(t, allowLoopback);
  const closed = Promise.withResolvers<void>();
  const receiver = createServer((socket) => {
    socket.on('error', () => undefined).on('close', () => closed.resolve());
    socket.once('data', () =>
      socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n'),
    );
  });
  receiver.listen(0, '127.0.0.1');
  await once(receiver, 'listening');
  t.teardown(() => receiver.close());
  const { id } = await createWebhook(server, `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`);
  t.regex(String((await within(testOf(server, id))).error), /switches protocols/);
  await closed.promise;
});

test('private addresses are refused when a delivery connects', async (t) => {
  const names: Record<string, string[]> = {
    'rebound.example': ['127.0.0.1'],
    'mixed.example': ['192.0.2.1', '127.0.0.1'],
    'mapped.example': ['::ffff:127.0.0.1'],
    'metadata.example': ['169.254.169.254'],
    'allowed.corp': ['127.0.0.1'],
    'allowed-metadata.corp': ['169.254.169.254'],
  };
  const resolve: Resolve = (hostname, _options, done) =>
    done(
      null,
      names[hostname]!.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
    );
  const allow = ['allowed.corp', 'allowed-metadata.corp', '10.0.0.0/8'];
  const server = await startTestServer(t, { webhooks: { allow } }, { receivers: { resolve } });
  const receiver = await startReceiver(t);
  const url = (host: string) => receiver.url.replace('127.0.0.1', host);
  const results = new Map<string, string | null>();
  for (const host of Object.keys(names)) {
    const { id } = await createWebhook(server, url(host));
    results.set(host, (await testOf(server, id)).error);
  }
  const refused =
    'the receiver has an address that is not allowed; the setting webhooks.allow can allow private receivers';
  t.deepEqual(Object.fromEntries(results), {
    'rebound.example': refused,
    'mixed.example': refused,
    'mapped.example': refused,
    'metadata.example': refused,
    'allowed.corp': null,
    'allowed-metadata.corp': refused,
  });
  // A receiver may get an event besides the test.
  t.deepEqual([...new Set(receiver.received.map(({ headers }) => headers.host!.split(':')[0]))], ['allowed.corp']);
});

for (const dialect of dialects) {
  test(`${dialect}: two instances send each delivery once`, async (t) => {
    const data = await folderUntilEnd(t);
    const settings = { data, database: { url: await temporaryDatabase(t, dialect) }, ...allowLoopback };
    const servers = [await startTestServer(t, settings), await startTestServer(t, settings)];
    const receiver = await startReceiver(t);
    receiver.answer = (response) => setTimeout(() => response.writeHead(200).end(), 20);
    const { id } = await createWebhook(servers[0]!, receiver.url, ['package.*']);
    const ids = Array.from({ length: 20 }, (_, index) => `Package.${index}`);
    await Promise.all([publish(servers[0]!, ...ids.slice(0, 10)), publish(servers[1]!, ...ids.slice(10))]);
    await until(async () => {
      await Promise.all(servers.map((server) => server.installation.webhooks.tick()));
      return (await deliveriesOf(servers[0]!, id)).filter(({ state }) => state === 'delivered').length === 20;
    });
    t.deepEqual(receiver.received.map(({ event }) => event.subject!).sort(), ids.toSorted());
  });

  test(`${dialect}: a delivery that an instance took with it is repeated after its lease, and a closed one at once`, async (t) => {
    const data = await folderUntilEnd(t);
    const settings = { data, database: { url: await temporaryDatabase(t, dialect) }, ...allowLoopback };
    const first = await startTestServer(t, settings);
    const receiver = await startReceiver(t);
    receiver.answer = () => undefined;
    const { id, secret } = await createWebhook(first, receiver.url, ['package.*']);
    await publish(first, 'Broken');
    await deliverUntil(first, () => receiver.received.length === 1);
    const [held] = await deliveriesOf(first, id);
    const lease = await rowsOf<{ lease: string }>(first, 'SELECT lease FROM webhook_deliveries');
    await first.close();
    receiver.answer = (response) => response.writeHead(200).end();

    const second = await startTestServer(t, settings);
    await deliverUntil(second, () => receiver.received.length === 2);
    t.notThrows(() => verify(receiver.received[1]!, secret));
    await until(async () => (await deliveriesOf(second, id))[0]!.state === 'delivered');
    t.like((await deliveriesOf(second, id))[0], { id: held!.id, attempts: 1 });

    second.clock.now = Date.now();
    await databaseOf(second).transaction((tx) =>
      tx.run("UPDATE webhook_deliveries SET state = 'pending', lease = ?, next_at = ?", [
        lease[0]!.lease,
        second.clock.now! + 60_000,
      ]),
    );
    second.clock.now += 59_000;
    await second.installation.webhooks.tick();
    t.is(receiver.received.length, 2);
    second.clock.now += 1000;
    await deliverUntil(second, () => receiver.received.length === 3);
  });
}

test('slow receivers delay no other ones, of the same or of another account', async (t) => {
  const server = await startTestServer(t, allowLoopback);
  const [slow, quick, other] = [await startReceiver(t), await startReceiver(t), await startReceiver(t)];
  let [open, most] = [0, 0];
  slow.answer = (response) => {
    open += 1;
    most = Math.max(most, open);
    response.on('close', () => (open -= 1));
  };
  for (let each = 0; each < 19; each += 1) await createWebhook(server, `${slow.url}/${each}`, ['package.*']);
  await createWebhook(server, quick.url, ['tag.*', 'token.created']);
  const theirs = await tokenOf(server, ['admin', 'write'], 'other');
  await createWebhook(server, other.url, ['package.*'], theirs);
  await publish(server, 'A', 'B', 'C', 'D', 'E', 'F');
  await deliverUntil(server, () => most >= 16);
  await new TestFeed(server, theirs).publish({ id: 'Theirs' });
  await deliverUntil(server, () => other.received.length === 1);
  await server.installation.webhooks.tick();
  t.is(most, 16, 'the share of an account');
  t.is(open, 16);
  const urls = await rowsOf<{ count: number }>(
    server,
    'SELECT COUNT(*) AS count FROM webhook_deliveries WHERE lease IS NOT NULL GROUP BY webhook_id',
  );
  t.true(urls.length >= 12, 'webhooks take turns');
});

test('a slow receiver alone leaves the rest of its account free', async (t) => {
  const server = await startTestServer(t, allowLoopback);
  const [slow, quick] = [await startReceiver(t), await startReceiver(t)];
  let [open, most] = [0, 0];
  slow.answer = (response) => {
    open += 1;
    most = Math.max(most, open);
    response.on('close', () => (open -= 1));
  };
  await createWebhook(server, slow.url, ['package.*']);
  await createWebhook(server, quick.url, ['package.*']);
  const ids = Array.from({ length: 10 }, (_, index) => `P${index}`);
  await publish(server, ...ids);
  await deliverUntil(server, () => quick.received.length >= 10 && most === 4);
  await server.installation.webhooks.tick();
  t.is(most, 4);
});

test('a webhook with too many deliveries is disabled', async (t) => {
  const server = await startTestServer(t, allowLoopback);
  const receiver = await startReceiver(t);
  const { id } = await createWebhook(server, receiver.url, ['package.*']);
  const far = Date.now() + 10 * 24 * hour;
  await databaseOf(server).transaction((tx) =>
    tx.run(
      `WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 100000)
       INSERT INTO webhook_deliveries (id, webhook_id, event_position, type, body, state, attempts, next_at, created_at)
       SELECT n, ?, 0, 'package.published', '', 'pending', 1, ?, ? FROM numbers`,
      [id, far, far],
    ),
  );
  await publish(server, 'Last');
  await deliverUntil(server, async () => !(await shown(server, id)).enabled);
  t.is((await shown(server, id)).disabled_reason, 'more than 100000 deliveries waited');
});

test('a body has at most 20 kB', async (t) => {
  const server = await startTestServer(t, allowLoopback);
  const receiver = await startReceiver(t);
  const { id } = await createWebhook(server, receiver.url, ['package.*']);
  await databaseOf(server).transaction((tx) =>
    tx.insert('events', {
      time: Date.now(),
      type: 'package.published',
      account_id: 1,
      actor_kind: 'system',
      subject_kind: 'package',
      subject_name: 'Long',
      details: JSON.stringify({ long: 'ä'.repeat(15_000) }),
    }),
  );
  await deliverUntil(server, () => receiver.received.length === 1);
  const { body, event } = receiver.received[0]!;
  t.true(Buffer.byteLength(body) <= 20_000);
  t.deepEqual(event.data.details, { truncated: true });
  t.is((await deliveriesOf(server, id)).length, 1);
});

test('a webhook that is paused by its receiver sends again at once when a user lets it', async (t) => {
  const server = await startTestServer(t, allowLoopback);
  server.clock.now = Date.now();
  const receiver = await startReceiver(t);
  const ways: [string, (id: string, delivery: string) => Promise<unknown>][] = [
    ['enabled', (id) => api(server, 'PATCH', `/${id}`, { enabled: true })],
    ['another address', (id) => api(server, 'PATCH', `/${id}`, { url: `${receiver.url}/2` })],
    ['one delivery again', (id, delivery) => api(server, 'POST', `/${id}/deliveries/${delivery}/redeliver`)],
    [
      'deliveries again',
      (id) => api(server, 'POST', `/${id}/redeliver`, { since: new Date(server.clock.now! + 1).toISOString() }),
    ],
  ];
  for (const [index, [way, resume]] of ways.entries()) {
    const { id } = await createWebhook(server, receiver.url, ['package.*']);
    receiver.answer = (response) => response.writeHead(503, { 'retry-after': '3600' }).end();
    await publish(server, `First${index}`);
    await deliverUntil(server, async () => (await deliveriesOf(server, id))[0]?.attempts === 1);
    receiver.answer = (response) => response.writeHead(204).end();
    await publish(server, `Second${index}`);
    await deliverUntil(server, async () => (await deliveriesOf(server, id)).length === 2);
    const [first, second] = await deliveriesOf(server, id);
    t.is(second!.attempts, 0, `${way}: paused`);
    await resume(id, first!.id);
    await deliverUntil(server, async () => (await deliveriesOf(server, id))[1]!.state === 'delivered');
    await api(server, 'DELETE', `/${id}`);
  }
  t.is(receiver.received.filter(({ event }) => event.subject?.startsWith('Second')).length, ways.length);
});

test('a server gives events their positions once a second', async (t) => {
  const server = await startTestServer(t);
  const events = eventsOf(server);
  const calls: number[] = [];
  const dispatch = events.dispatch.bind(events);
  events.dispatch = () => {
    calls.push(performance.now());
    return dispatch();
  };
  await until(() => calls.length >= 5);
  // Four pauses of a second; on a busy machine they are longer.
  t.true(calls[4]! - calls[0]! > 3000, calls.join(' '));
});
