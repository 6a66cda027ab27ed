import test from 'ava';
import { TestFeed } from '../support/feed.ts';
import { createToken, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import {
  allowLoopback,
  api,
  createWebhook,
  deliverUntil,
  deliveriesOf,
  startReceiver,
  verify,
} from '../support/receiver.ts';
import { startTestServer } from '../support/server.ts';
import { until } from '../support/until.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';

test('a webhook is created, tested, changed, disabled, and deleted after a confirmation; its secret is shown once', async (t) => {
  const receiver = await startReceiver(t);
  const server = await startTestServer(t, allowLoopback);
  const visitor = await Visitor.signedIn(server);
  t.regex(await visitor.page('/console/webhooks'), /There are no webhooks\. Create one/);
  const form = await visitor.page('/console/webhooks/new');
  t.regex(form, /value="package\.\*"/);
  const created = await visitor.send('/console/webhooks/new', [
    ['url', ` ${receiver.url} `],
    ['event', 'package.*'],
    ['event', 'tag.deleted'],
  ]);
  t.is(created.status, 201);
  const text = await created.text();
  const secret = /whsec_[A-Za-z0-9+/]{43}=/.exec(text)![0];
  const [, path] = /href="(\/console\/webhooks\/[\w-]{36})"/.exec(text)!;
  const shown = await visitor.page(path!);
  t.false(shown.includes('whsec_'), 'no page shows the secret again');
  t.true(shown.includes(`<title>Webhook ${new URL(receiver.url).host} ${path!.slice(-36, -28)} `));
  t.regex(shown, /name="event" value="package\.\*" checked/);
  t.regex(shown, /all about packages\s*<span class="quiet">package\.\*<[^]*a tag was deleted\s*<span/);
  const folds = [...shown.matchAll(/<details class="members"\s*(open)?[^>]*>\s*<summary>Only some about ([^<]*)</g)];
  t.deepEqual(
    folds.filter(([, isOpen]) => isOpen).map(([, , about]) => about),
    ['tags'],
    'only the group of which a member is chosen',
  );
  t.true(folds.length > 15);
  t.notRegex(shown, /name="event" value="\*" checked/);

  receiver.answer = (response) => response.writeHead(418).end('<b>no</b>');
  const tested = await visitor.send(path!, { act: 'test' });
  t.is(tested.status, 200);
  t.regex(await tested.text(), /it failed[^]*status 418[^]*webhook-id: test-[^]*&lt;b&gt;no&lt;\/b&gt;/);
  t.notThrows(() => verify(receiver.received[0]!, secret));

  const changed = await visitor.send(path!, {
    act: 'change',
    name: ' chat <b> ',
    url: `${receiver.url}2`,
    event: '*',
    packages: 'Contoso.* Other',
  });
  t.is(leadsTo(changed), `${path} (webhook-changed)`);
  t.regex(await visitor.page(path!), /hook2[^]*The webhook is changed|is changed[^]*hook2/);
  t.regex(await visitor.page(path!), /Contoso\.\*, Other[^]*name="packages"[^>]*value="Contoso\.\* Other"/);
  t.is(leadsTo(await visitor.send(path!, { act: 'disable' })), `${path} (webhook-disabled)`);
  const list = await visitor.page('/console/webhooks');
  t.regex(list, /class="state warn">disabled/);
  t.regex(list, />chat &lt;b&gt;<\/a>/);
  t.is(leadsTo(await visitor.send(path!, { act: 'enable' })), `${path} (webhook-enabled)`);

  t.regex(await visitor.page(`${path}/secret`), /24 hours/);
  const rotated = await (await visitor.send(`${path}/secret`, {})).text();
  const next = /whsec_[A-Za-z0-9+/]{43}=/.exec(rotated)![0];
  t.not(next, secret);
  t.true(rotated.includes(`<a href="${path}">`));
  t.false(rotated.includes(`/console/webhooks/${next}`));
  await visitor.send(path!, { act: 'test' });
  t.notThrows(() => verify(receiver.received.at(-1)!, next));

  t.regex(await visitor.page(`${path}/delete`), /gets no more events/);
  t.is((await visitor.fetch(path!)).status, 200, 'showing the page deletes nothing');
  t.is(leadsTo(await visitor.send(`${path}/delete`, {})), '/console/webhooks (webhook-deleted)');
  t.is((await visitor.fetch(path!)).status, 404);
});

test('wrong fields keep the input and show their errors, and the limit of webhooks is said', async (t) => {
  const receiver = await startReceiver(t);
  const server = await startTestServer(t, allowLoopback);
  const visitor = await Visitor.signedIn(server);
  t.regex(
    await visitor.refused('/console/webhooks/new', { url: 'ftp://x"y', event: '*' }),
    /value="ftp:\/\/x&quot;y"[^]*id="url-error"[^]*expected an http/,
  );
  t.regex(
    await visitor.refused('/console/webhooks/new', { url: receiver.url }),
    /id="events-error"[^>]*>Choose one or more types of events, or all\.</,
  );
  const { id } = await createWebhook(server, receiver.url);
  const path = `/console/webhooks/${id}`;
  t.regex(
    await visitor.refused(path, { act: 'change', url: 'http://10.0.0.1/', event: 'tag.deleted' }),
    /value="http:\/\/10\.0\.0\.1\/"[^]*id="url-error"[^]*value="tag\.deleted" checked/,
  );
  for (let count = 1; count < 20; count += 1) await createWebhook(server, receiver.url);
  t.regex(await visitor.refused('/console/webhooks/new', { url: receiver.url, event: '*' }), /at most 20 webhooks/);
});

test('deliveries show request, answer and timing, and are repeated one, selected, or since a time', async (t) => {
  const receiver = await startReceiver(t);
  const server = await startTestServer(t, allowLoopback);
  const { id } = await createWebhook(server, receiver.url, ['package.*']);
  const visitor = await Visitor.signedIn(server);
  const path = `/console/webhooks/${id}`;
  t.regex(await visitor.page(path), /Nothing was delivered yet/);
  t.notRegex(await visitor.page(path), /data-refresh/);
  const feed = new TestFeed(server);
  for (const name of ['One', 'Two', 'Three']) await feed.publish({ id: name });
  await deliverUntil(server, async () => {
    const items = await deliveriesOf(server, id);
    return items.length === 3 && items.every(({ state }) => state === 'delivered');
  });
  const page = await visitor.page(path);
  t.regex(page, /a version was published\s*<span class="quiet">package\.published</);
  t.notRegex(page, /data-refresh/);
  t.regex(page, /class="state good">delivered[^]*204 after/);
  const ids = [...page.matchAll(/name="delivery" value="([\w-]+)"/g)].map(([, each]) => each!);
  t.is(ids.length, 3);
  const one = await visitor.page(`${path}/deliveries/${ids[2]}`);
  t.regex(one, /took [\d,]+ ms[^]*status 204[^]*content-type: application\/cloudevents\+json[^]*&quot;subject&quot;/);
  t.regex(one, /entrepot\.package\.published[^]*One/);
  const document = await OpenDocument.of(server);
  const details = await document.read(
    'GET /webhooks/{id}/deliveries/{delivery}',
    await server.fetch(`/v1/webhooks/${id}/deliveries/${ids[2]}`),
  );
  t.is(details['request_body'], receiver.received[0]!.body);

  const again = `${path} (redelivered)`;
  receiver.answer = (response) => response.writeHead(503).end();
  t.is(leadsTo(await visitor.send(`${path}/deliveries/${ids[2]}`, {})), again);
  await deliverUntil(server, () => receiver.received.length === 4);
  t.regex(await visitor.page(path), /data-refresh="5000" data-version="1\/\d+">\s*1 delivery waits\./);
  receiver.answer = (response) => response.writeHead(204).end();
  receiver.received.pop();
  t.is(leadsTo(await visitor.send(`${path}/deliveries/${ids[2]}`, {})), again);
  await deliverUntil(server, () => receiver.received.length === 4);
  t.regex(await visitor.refused(path, { act: 'redeliver' }), /Select at least one delivery/);
  const chosen = [ids[0]!, ids[1]!, ids[1]!].map((each): [string, string] => ['delivery', each]);
  t.is(leadsTo(await visitor.send(path, [['act', 'redeliver'], ...chosen])), again);
  await deliverUntil(server, () => receiver.received.length === 6);
  const mixed = [ids[0]!, 'gone', ids[2]!].map((each): [string, string] => ['delivery', each]);
  const partly = await visitor.send(path, [['act', 'redeliver'], ...mixed]);
  t.is(partly.status, 404);
  t.regex(await partly.text(), /Done: 2 of 3\.[^]*<strong>gone<\/strong>: /);
  await deliverUntil(server, () => receiver.received.length === 8);
  const since = await visitor.send(path, { act: 'since', since: '2020-01-31T12:30' });
  t.is(leadsTo(since), again);
  await deliverUntil(server, () => receiver.received.length === 11);
  const later = await visitor.send(path, { act: 'since', since: '2999-01-31T12:30:01' });
  t.is(leadsTo(later), again);
  t.regex(await visitor.refused(path, { act: 'since', since: 'yesterday' }), /value="yesterday"[^]*id="since-error"/);
  t.is(receiver.received.length, 11);
});

test('webhooks of another account do not exist, and a token without admin or with name patterns sees none', async (t) => {
  const receiver = await startReceiver(t);
  const server = await startTestServer(t, allowLoopback);
  const { id } = await createWebhook(server, receiver.url);
  await new TestFeed(server).publish({ id: 'One' });
  await deliverUntil(server, () => receiver.received.length > 0);
  const [delivery] = await deliveriesOf(server, id);
  const paths = [`/console/webhooks/${id}`, `/console/webhooks/${id}/secret`, `/console/webhooks/${id}/delete`];
  paths.push(`/console/webhooks/${id}/deliveries/${delivery!.id}`);
  const other = await Visitor.signedIn(server, await tokenOf(server, ['read', 'admin'], 'other'));
  t.notRegex(await other.page('/console/webhooks'), /hook"/);
  for (const path of paths) {
    t.is((await other.fetch(path)).status, 404, path);
    t.is((await other.send(path, { act: 'disable' })).status, 404, path);
  }
  const own = await createWebhook(server, receiver.url);
  const foreign = await server.fetch(`/v1/webhooks/${own.id}/deliveries/${delivery!.id}`);
  t.is(foreign.status, 404, 'a delivery of another webhook');
  const { value: limited } = await createToken(server, ['read', 'admin'], 'default', { packages: ['One'] });
  for (const token of [limited, await tokenOf(server, ['read', 'write'])]) {
    const visitor = await Visitor.signedIn(server, token);
    for (const path of ['/console/webhooks', ...paths]) t.is((await visitor.fetch(path)).status, 403, path);
  }
  t.is((await server.fetch(`/v1/webhooks/${id}`)).status, 200);
});

test('a webhook whose receiver fails is not green, in the list and on its page, until an attempt succeeds', async (t) => {
  const receiver = await startReceiver(t);
  receiver.answer = (response) => response.writeHead(500).end();
  const server = await startTestServer(t, allowLoopback);
  server.clock.now = Date.now();
  const { id } = await createWebhook(server, receiver.url, ['package.*']);
  const visitor = await Visitor.signedIn(server);
  const pages = async () => Promise.all([visitor.page('/console/webhooks'), visitor.page(`/console/webhooks/${id}`)]);
  for (const page of await pages()) t.regex(page, /class="state good">enabled/);
  await new TestFeed(server).publish({ id: 'One' });
  await deliverUntil(server, () => receiver.received.length === 1);
  const item = async () =>
    (await (await server.fetch(`/v1/webhooks/${id}`)).json()) as { failing_since: string | null };
  await until(async () => (await item()).failing_since !== null);
  const since = (await item()).failing_since;
  for (const page of await pages()) {
    t.regex(page, /class="state bad">failing<\/span>\s*the receiver has accepted nothing since/);
    t.notRegex(page, /class="state good">enabled/);
  }
  server.clock.now += 3_600_000;
  await deliverUntil(server, () => receiver.received.length === 2);
  t.is((await item()).failing_since, since, 'the first failure counts');
  receiver.answer = (response) => response.writeHead(204).end();
  server.clock.now += 3_600_000;
  await deliverUntil(server, () => receiver.received.length === 3);
  await until(async () => (await item()).failing_since === null);
  for (const page of await pages()) t.regex(page, /class="state good">enabled/);
});

test('the list of webhooks is filtered by text and state, sorted by its heads, and says how many it finds', async (t) => {
  const receiver = await startReceiver(t);
  const server = await startTestServer(t, allowLoopback);
  server.clock.now = Date.now();
  const visitor = await Visitor.signedIn(server);
  const ids: string[] = [];
  for (const name of ['chat', 'builds', 'Chat of the team']) {
    server.clock.now += 1000;
    const made = await api(server, 'POST', '', { name, url: receiver.url, events: ['tag.*'] });
    ids.push((made as { id: string }).id);
  }
  await api(server, 'PATCH', `/${ids[2]}`, { enabled: false });
  const shown = async (query: string) => {
    const page = await visitor.page(`/console/webhooks?${query}`);
    return {
      page,
      order: [...page.matchAll(/href="\/console\/webhooks\/([\w-]{36})"/g)].map(([, id]) => ids.indexOf(id!)),
    };
  };
  const all = await shown('');
  t.deepEqual(all.order, [0, 1, 2]);
  t.regex(all.page, /3 webhooks/);
  t.regex(all.page, /aria-sort="ascending"[^>]*>\s*<a href="\/console\/webhooks\?sort=created">Created/);
  t.deepEqual((await shown('sort=name')).order, [1, 0, 2]);
  const latest = await shown('sort=created&q=CHAT');
  t.deepEqual(latest.order, [2, 0]);
  t.regex(latest.page, /2 webhooks/);
  t.regex(latest.page, /name="q"[^>]*value="CHAT"/);
  t.regex(latest.page, /type="hidden" name="sort" value="created"/);
  t.regex(latest.page, /aria-sort="descending"[^>]*>\s*<a href="\/console\/webhooks\?q=CHAT">Created/);
  const disabled = await shown('state=disabled');
  t.deepEqual(disabled.order, [2]);
  t.regex(disabled.page, /1 webhook</);
  t.regex(disabled.page, /<option value="disabled" selected>/);
  const none = await shown('state=failing');
  t.regex(none.page, /Nothing matches\. <a href="\/console\/webhooks">Clear the filter/);
  t.notRegex(none.page, /0 webhooks|There are no webhooks/);
});

test('the list of webhooks shows those that get a type of events, also by its group or by all', async (t) => {
  const receiver = await startReceiver(t);
  const server = await startTestServer(t, allowLoopback);
  const visitor = await Visitor.signedIn(server);
  const ids: string[] = [];
  for (const pattern of ['*', 'package.*', 'package.deleted', 'tag.deleted'])
    ids.push((await createWebhook(server, receiver.url, [pattern])).id);
  const shown = async (event: string) => {
    const page = await visitor.page(`/console/webhooks?event=${event}`);
    return [...page.matchAll(/href="\/console\/webhooks\/([\w-]{36})"/g)].map(([, id]) => ids.indexOf(id!));
  };
  t.deepEqual(await shown('package.deleted'), [0, 1, 2]);
  t.deepEqual(await shown('package.published'), [0, 1]);
  t.deepEqual(await shown('tag.deleted'), [0, 3]);
  t.deepEqual(await shown('image.pushed&sort=created'), [0]);
  t.regex(await visitor.page('/console/webhooks?event=tag.deleted'), /<option value="tag\.deleted" selected>/);
  t.is((await visitor.fetch('/console/webhooks?event=package.*')).status, 400);
});
