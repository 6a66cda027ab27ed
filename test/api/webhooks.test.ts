import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { TestFeed } from '../support/feed.ts';
import { afterRead, createToken, databaseOf, flushEvents, rowsOf, runJob, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
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
import { TestRepository } from '../support/registry.ts';
import { startTestServer } from '../support/server.ts';
import { auditOf } from '../support/audit.ts';

for (const dialect of dialects) {
  test(`${dialect}: an event is sent as a signed CloudEvent, and its delivery is shown`, async (t) => {
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      server: { baseUrl: 'https://hub.example' },
      ...allowLoopback,
    });
    const document = await OpenDocument.of(server);
    const receiver = await startReceiver(t);
    receiver.answer = (response) => response.writeHead(200).end('thanks'.padEnd(3000, '!'));
    const feed = new TestFeed(server);
    await feed.publish({ id: 'Before' });
    const made = await ask(server, 'POST', '', { url: receiver.url, events: ['package.*', 'tag.deleted'] });
    t.is(made.status, 201);
    const webhook = await document.read('POST /webhooks', made);
    t.deepEqual(Object.keys(webhook).sort(), [
      'created_at',
      'disabled_reason',
      'enabled',
      'events',
      'failing_since',
      'id',
      'name',
      'operate',
      'patterns',
      'secret',
      'url',
    ]);
    const secret = webhook['secret'] as string;
    t.regex(secret, /^whsec_[A-Za-z0-9+/]{43}=$/);
    t.like(webhook, { url: receiver.url, events: ['package.*', 'tag.deleted'], enabled: true });
    const id = webhook['id'] as string;
    await tokenOf(server, ['read']);
    await feed.publish({ id: 'After' });
    await deliverUntil(server, () => receiver.received.length > 0);
    const [event] = await auditOf(server, 'subject=after');
    const received = receiver.received[0]!;
    t.notThrows(() => verify(received, secret));
    t.throws(() => verify({ ...received, body: received.body.replace('After', 'Other') }, secret));
    t.is(received.headers['content-type'], 'application/cloudevents+json');
    t.deepEqual(received.event, {
      specversion: '1.0',
      id: event!.id,
      source: 'https://hub.example/v1/audit',
      type: 'entrepot.package.published',
      subject: 'After',
      time: event!.time,
      datacontenttype: 'application/json',
      data: event!,
    });
    await deliverUntil(server, async () => (await deliveriesOf(server, id))[0]?.state === 'delivered');
    const answer = await document.read('GET /webhooks/{id}/deliveries', await ask(server, 'GET', `/${id}/deliveries`));
    const items = answer['items'] as Awaited<ReturnType<typeof deliveriesOf>>;
    t.is(items.length, 1, 'neither events of before nor of other types');
    t.like(items[0], { event_id: event!.id, type: 'package.published', attempts: 1, next_attempt_at: null });
    const { answer: start, ...attempt } = items[0]!.last_attempt!;
    t.is(start, 'thanks'.padEnd(1024, '!'));
    t.like(attempt, { status: 200, error: null });
    const { 'webhook-signature': _signature, 'webhook-id': messageId, ...sent } = received.headers;
    t.is(items[0]!.id, messageId as string);
    t.deepEqual(attempt.request_headers, {
      'content-type': 'application/cloudevents+json',
      'user-agent': 'entrepot',
      'webhook-id': items[0]!.id,
      'webhook-timestamp': sent['webhook-timestamp'] as string,
    });
    const { secret: _secret, ...withoutSecret } = webhook;
    t.deepEqual(await document.read('GET /webhooks/{id}', await ask(server, 'GET', `/${id}`)), withoutSecret);
    const metrics = await (await server.fetch('/metrics')).text();
    t.regex(metrics, /^entrepot_webhook_deliveries_total\{outcome="delivered"\} 1$/m);
    t.regex(metrics, /^entrepot_webhook_pending \d+$/m);

    // Secrets are nowhere else.
    const raw = Buffer.from(secret.slice(6), 'base64').toString('base64');
    const shown = [
      JSON.stringify(await rowsOf(server, 'SELECT * FROM webhooks')),
      JSON.stringify(await rowsOf(server, 'SELECT * FROM webhook_deliveries')),
      JSON.stringify(await api(server, 'GET')),
      JSON.stringify(items),
      server.lines.join(''),
    ];
    for (const each of shown) t.false(each.includes(raw));
  });

  test(`${dialect}: a webhook is changed, tested, rotated and deleted`, async (t) => {
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      ...allowLoopback,
    });
    const document = await OpenDocument.of(server);
    const receiver = await startReceiver(t);
    const { id, secret } = await createWebhook(server, `${receiver.url}/old`, ['image.pushed']);
    const change = (body: unknown) => ask(server, 'PATCH', `/${id}`, body);
    const changed = await document.read(
      'PATCH /webhooks/{id}',
      await change({ url: receiver.url, events: ['package.published'] }),
    );
    t.like(changed, { url: receiver.url, events: ['package.published'], enabled: true });
    t.false('secret' in changed);
    t.like(await api(server, 'PATCH', `/${id}`, { name: `${' '.repeat(100)}CI ` }), { name: 'CI' });
    const result = await document.read('POST /webhooks/{id}/test', await ask(server, 'POST', `/${id}/test`));
    t.like(result, { status: 204, error: null });
    t.is(receiver.received[0]!.event.type, 'entrepot.webhook.test');
    t.like(receiver.received[0]!.event.data, { account: 'default', type: 'webhook.test' });
    t.notThrows(() => verify(receiver.received[0]!, secret));

    const rotated = (await document.read('PATCH /webhooks/{id}', await change({ rotate_secret: true })))[
      'secret'
    ] as string;
    t.not(rotated, secret);
    server.clock.now = Date.now();
    await testOf(server, id);
    const both = receiver.received.at(-1)!;
    t.is((both.headers['webhook-signature'] as string).split(' ').length, 2);
    for (const each of [secret, rotated]) t.notThrows(() => verify(both, each));
    server.clock.now += 86_400_000;
    await testOf(server, id);
    t.is((receiver.received.at(-1)!.headers['webhook-signature'] as string).split(' ').length, 1, 'after a day');
    server.clock.now = undefined;
    await testOf(server, id);
    await api(server, 'PATCH', `/${id}`, { rotate_secret: true });
    await testOf(server, id);
    t.throws(() => verify(receiver.received.at(-1)!, secret), undefined, 'only the last two secrets');

    t.like(await api(server, 'PATCH', `/${id}`, { enabled: false }), { enabled: false, disabled_reason: null });
    const feed = new TestFeed(server);
    await feed.publish({ id: 'Missed' });
    await server.installation.webhooks.tick();
    t.deepEqual(await deliveriesOf(server, id), [], 'a disabled webhook misses events');
    await api(server, 'PATCH', `/${id}`, { enabled: true });
    await feed.publish({ id: 'Seen' });
    await deliverUntil(server, async () => (await deliveriesOf(server, id)).some(({ state }) => state === 'delivered'));
    t.is(receiver.received.at(-1)!.event.subject, 'Seen');

    t.is((await ask(server, 'DELETE', `/${id}`)).status, 204);
    for (const [method, path, body] of [
      ['GET', '', undefined],
      ['PATCH', '', { enabled: true }],
      ['PATCH', '', { rotate_secret: true }],
      ['DELETE', '', undefined],
      ['POST', '/test', undefined],
      ['GET', '/deliveries', undefined],
      ['POST', '/redeliver', { since: '2020-01-01T00:00:00Z' }],
    ] as const) {
      t.is((await ask(server, method, `/${id}${path}`, body)).status, 404, `${method} ${path}`);
    }
    t.deepEqual(await api(server, 'GET'), { items: [], next_cursor: null });
    await server.installation.webhooks.deleteOld();
    t.deepEqual(await rowsOf(server, 'SELECT id FROM webhook_deliveries'), []);
    t.deepEqual(await rowsOf(server, 'SELECT id FROM webhooks'), []);
  });

  test(`${dialect}: accounts have their own webhooks and events`, async (t) => {
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      ...allowLoopback,
    });
    const receiver = await startReceiver(t);
    const url = (name: string) => `${receiver.url}/${name}`;
    const theirs = await tokenOf(server, ['admin', 'write'], 'other');
    const adminOnly = await tokenOf(server, ['admin']);
    const ours = await createWebhook(server, url('ours'));
    t.true(ours.operate);
    const plain = await createWebhook(server, url('plain'), ['*'], adminOnly);
    t.false(plain.operate);
    const other = await createWebhook(server, url('other'), ['package.*', 'sign_in.*'], theirs);

    for (const [method, path, body] of [
      ['GET', '', undefined],
      ['PATCH', '', { enabled: false }],
      ['PATCH', '', { rotate_secret: true }],
      ['DELETE', '', undefined],
      ['POST', '/test', undefined],
      ['GET', '/deliveries', undefined],
      ['POST', '/redeliver', { since: '2020-01-01T00:00:00Z' }],
    ] as const) {
      t.is((await ask(server, method, `/${ours.id}${path}`, body, theirs)).status, 404, `${method} ${path}`);
    }
    const list = (await api(server, 'GET', '', undefined, theirs)) as { items: { id: string }[] };
    t.deepEqual(
      list.items.map(({ id }) => id),
      [other.id],
    );
    const reader = await tokenOf(server, ['read', 'write', 'delete', 'operate']);
    t.is((await ask(server, 'GET', '', undefined, reader)).status, 403);
    const limited = await createToken(server, ['admin'], 'default', { packages: ['Contoso.*'] });
    const refused = await ask(server, 'GET', '', undefined, limited.value);
    t.is(refused.status, 403);
    t.like(await refused.json(), { code: 'NameDenied' });
    t.is((await server.fetch('/v1/webhooks', { token: null })).status, 401);

    await server.fetch('/v1/account', { token: 'ent_wrong' });
    await flushEvents(server, true);
    await new TestFeed(server).publish({ id: 'Ours' });
    await new TestFeed(server, theirs).publish({ id: 'Theirs' });
    const subjects = (id: string, token?: string) =>
      api(server, 'GET', `/${id}/deliveries`, undefined, token).then((answer) =>
        (answer as { items: { type: string }[] }).items
          .map(({ type }) => type)
          .filter((type) => !['token.created', 'webhook.created'].includes(type)),
      );
    await deliverUntil(
      server,
      () => receiver.received.filter(({ event }) => /published/.test(event.type)).length === 3,
    );
    t.deepEqual(await subjects(ours.id), ['package.published', 'sign_in.failed']);
    t.deepEqual(await subjects(plain.id, adminOnly), ['package.published']);
    t.deepEqual(await subjects(other.id, theirs), ['package.published']);
    const theirEvents = receiver.received.filter(({ event }) => event.data.account === 'other');
    t.deepEqual(
      theirEvents.map(({ event }) => event.subject),
      ['Theirs'],
    );

    // An administrator without operate cannot lead the events of no account elsewhere.
    for (const body of [{ url: url('stolen') }, { rotate_secret: true }]) {
      const response = await ask(server, 'PATCH', `/${ours.id}`, body, adminOnly);
      t.is(response.status, 403);
      t.like(await response.json(), { scope: 'operate' });
    }
    const { items } = (await api(server, 'GET', `/${other.id}/deliveries`, undefined, theirs)) as {
      items: { id: string }[];
    };
    const foreign = `/${plain.id}/deliveries/${items[0]!.id}/redeliver`;
    t.is((await ask(server, 'POST', foreign)).status, 404, 'a delivery of another webhook');
    t.is((await ask(server, 'POST', `/${other.id}/deliveries/${items[0]!.id}/redeliver`)).status, 404);
  });

  test(`${dialect}: deliveries survive the deletion of events, and are deleted after 14 days`, async (t) => {
    const server = await startTestServer(t, {
      database: { url: await temporaryDatabase(t, dialect) },
      audit: { keep: '1h' },
      ...allowLoopback,
    });
    const receiver = await startReceiver(t);
    await receiver.stop();
    const { id } = await createWebhook(server, receiver.url, ['package.*']);
    await new TestFeed(server).publish({ id: 'Kept' });
    // Gives the event its position.
    await auditOf(server);
    server.clock.now = Date.now() + 7_200_000;
    // As if no instance had run since: the events have no deliveries yet.
    await databaseOf(server).transaction(async (tx) => {
      // First, because it waits for an instance that makes deliveries at this moment.
      await tx.run(
        `UPDATE webhook_cursor SET position = (SELECT position - 1 FROM events WHERE type = 'package.published')`,
      );
      await tx.run('DELETE FROM webhook_deliveries');
    });
    await runJob(server, 'audit');
    await deliverUntil(server, async () => (await deliveriesOf(server, id)).length === 1);
    // The time of the next attempt is set at the end of this one.
    await deliverUntil(server, async () => (await deliveriesOf(server, id))[0]!.attempts === 1);
    await runJob(server, 'audit');
    t.deepEqual(
      (await auditOf(server)).filter(({ type }) => type !== 'job.started'),
      [],
    );
    await receiver.start();
    server.clock.now += 10_000;
    await deliverUntil(server, () => receiver.received.length > 0);
    t.is(receiver.received[0]!.event.subject, 'Kept');
    server.clock.now += 13.9 * 86_400_000;
    await server.installation.webhooks.deleteOld();
    t.is((await deliveriesOf(server, id)).length, 1);
    server.clock.now += 86_400_000;
    await server.installation.webhooks.deleteOld();
    t.is((await deliveriesOf(server, id)).length, 0);
  });
}

test('a webhook with name patterns gets no events about other packages and images', async (t) => {
  const server = await startTestServer(t, allowLoopback);
  const receiver = await startReceiver(t);
  const given = { url: receiver.url, events: ['*'], patterns: { packages: ['Contoso.*'] } };
  const made = (await (await ask(server, 'POST', '', given)).json()) as { id: string; patterns: unknown };
  t.deepEqual(made.patterns, { packages: ['Contoso.*'], containers: [] });
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Other' }, { id: 'Contoso.Core' });
  await new TestRepository(server, 'contoso.app').image('v1');
  await tokenOf(server, ['read']);
  const got = () => receiver.received.map(({ event }) => `${event.type} ${event.subject}`);
  await deliverUntil(server, () => got().some((each) => each.includes('token.created')));
  t.deepEqual(
    got().filter((each) => /package|image/.test(each)),
    ['entrepot.package.published Contoso.Core'],
  );
  const all = (await (await ask(server, 'PATCH', `/${made.id}`, { patterns: null })).json()) as typeof made;
  t.is(all.patterns, null);
  await feed.publish({ id: 'Other', version: '2.0.0' });
  await deliverUntil(server, () => got().some((each) => each.endsWith('published Other')));
  t.is((await ask(server, 'PATCH', `/${made.id}`, { patterns: { packages: ['a b'] } })).status, 400);
});

test('of two deletions of a webhook at the same time one says that there is none', async (t) => {
  const server = await startTestServer(t);
  const { id } = await createWebhook(server, 'https://a.example/');
  let first: number | undefined;
  afterRead(server, 'FROM webhooks WHERE id = ? AND account_id', async () => {
    first = (await ask(server, 'DELETE', `/${id}`)).status;
  });
  t.is((await ask(server, 'DELETE', `/${id}`)).status, 404);
  t.is(first, 204);
  t.is((await auditOf(server, 'type=webhook.deleted')).length, 1);
});

test('wrong webhooks are refused, and an account has at most 20', async (t) => {
  const server = await startTestServer(t, { webhooks: { allow: ['10.0.0.0/8', 'hooks.corp'] } });
  const refused = async (url: unknown, events: unknown = ['*']) => {
    const response = await ask(server, 'POST', '', { url, events });
    t.is(response.status, 400, String(url));
    return ((await response.json()) as { detail: string }).detail;
  };
  for (const url of ['ftp://a.example/', 'a.example', 'javascript:1', 7]) await refused(url);
  t.regex(await refused('https://user:secret@a.example/'), /user name or password is not allowed/);
  t.regex(await refused(`https://a.example/${'x'.repeat(2000)}`), /2000/);
  for (const host of ['127.0.0.1', '2130706433', '[::1]', '[::ffff:7f00:1]', '192.168.0.1', '169.254.169.254', '0'])
    t.regex(await refused(`http://${host}/`), /webhooks\.allow/);
  for (const events of [[], ['nothing'], ['package'], Array(21).fill('*'), '*', ['package.none']])
    await refused('https://a.example', events);
  const wrong = await ask(server, 'POST', '', { url: 'https://a.example', events: ['tag.*', 'tag.nothing', 'none'] });
  const wrongAnswer = (await wrong.json()) as { detail: string; errors: { field: string; message: string }[] };
  t.regex(wrongAnswer.detail, /^events: there is no type "tag\.nothing"\. Use types such as/);
  t.deepEqual(
    wrongAnswer.errors.map(({ field, message }) => `${field}: ${message}`),
    [wrongAnswer.detail],
  );
  t.regex(await refused('https://a.example', ['x'.repeat(51)]), /^events\.0: expected at most 50 characters$/);
  for (const name of ['x'.repeat(101), 7]) {
    const given = { name, url: 'https://a.example', events: ['*'] };
    t.is((await ask(server, 'POST', '', given)).status, 400, String(name));
  }
  for (const url of ['http://10.1.2.3/', 'http://hooks.corp/', 'https://a.example/path?token=1']) {
    t.is((await createWebhook(server, url, ['package.published', 'package.published'])).url, url);
  }
  const made = await Promise.all(
    Array.from({ length: 22 }, () => ask(server, 'POST', '', { url: 'https://a.example', events: ['*'] })),
  );
  t.is(made.filter(({ status }) => status === 201).length, 17);
  const last = made.find(({ status }) => status !== 201)!;
  t.is(last.status, 403);
  t.like(await last.json(), { code: 'QuotaExceeded' });
  const page = (await api(server, 'GET', '?limit=15')) as { items: { id: string }[]; next_cursor: string | null };
  const rest = (await api(server, 'GET', `?limit=15&cursor=${page.next_cursor}`)) as typeof page;
  t.is(new Set([...page.items, ...rest.items].map(({ id }) => id)).size, 20);
  t.is(rest.next_cursor, null);
});
