import test from 'ava';
import { TestFeed } from '../support/feed.ts';
import { createToken, tokenOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { allowLoopback, createWebhook, startReceiver } from '../support/receiver.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { Visitor } from '../support/visitor.ts';

// Objects with the rights of `operate`: an administrator of the account without that scope has no right to them.

const ownScopes = ['read', 'write', 'delete', 'admin'];

/** A request for `operation`, such as `PATCH /webhooks/{id}`, that its schemas accept. */
function send(server: TestServer, operation: string, path: string, token: string): Promise<Response> {
  const bodies: Record<string, unknown> = {
    'PATCH /webhooks/{id}': { enabled: false },
    'POST /webhooks/{id}/redeliver': { since: '2020-01-01T00:00:00Z' },
  };
  const { [operation]: body } = bodies;
  return server.fetch(`/v1${path}`, {
    method: operation.split(' ', 1)[0]!,
    token,
    ...(body !== undefined && { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
  });
}

test('each operation of a webhook that gets events of no account needs operate', async (t) => {
  const server = await startTestServer(t, allowLoopback);
  const receiver = await startReceiver(t);
  const { id } = await createWebhook(server, receiver.url, ['package.*']);
  const { id: plain } = await createWebhook(server, receiver.url, ['package.*'], await tokenOf(server, ['admin']));
  const admin = await tokenOf(server, ownScopes);
  const operations = (await OpenDocument.of(server)).operations.filter((each) => each.includes(' /webhooks/{id}'));
  t.true(operations.length >= 8);
  // The deletion is the last one, and no request may succeed.
  for (const operation of operations) {
    const path = operation.split(' ')[1]!.replace('{id}', id).replace('{delivery}', 'x');
    const refused = await send(server, operation, path, admin);
    t.is(refused.status, 403, operation);
    t.like(await refused.json(), { code: 'ScopeMissing', scope: 'operate' }, operation);
  }
  const { items } = (await (await server.fetch('/v1/webhooks', { token: admin })).json()) as { items: object[] };
  t.deepEqual(
    items.map((each) => (each as { id: string }).id),
    [plain],
    'its address may contain a secret',
  );
  t.is((await server.fetch(`/v1/webhooks/${plain}`, { token: admin })).status, 200);
  const visitor = await Visitor.signedIn(server, admin);
  for (const path of ['', '/delete', '/secret', '/deliveries/x']) {
    t.is((await visitor.fetch(`/console/webhooks/${id}${path}`)).status, 403, path);
    t.is((await visitor.send(`/console/webhooks/${id}${path}`, { act: 'disable' })).status, 403, path);
  }
  t.false((await visitor.page('/console/webhooks')).includes(id));
  t.is(receiver.received.length, 0, 'no test was sent');
  t.is((await server.fetch(`/v1/webhooks/${id}`, { method: 'DELETE' })).status, 204);
});

test('a token, a rule and a session that have operate are ended only with operate', async (t) => {
  const trusted = { name: 'ci', issuer: 'https://ci.example', audience: 'here' };
  const server = await startTestServer(t, { trustedIssuers: [trusted] });
  const { token: operator, value } = await createToken(server, ['read', 'operate']);
  const { token: plain } = await createToken(server, ownScopes);
  const admin = await tokenOf(server, ownScopes);
  const remove = (path: string, token = admin) => server.fetch(`/v1${path}`, { method: 'DELETE', token });
  const refused = await remove(`/tokens/${operator.id}`);
  t.is(refused.status, 403);
  t.like(await refused.json(), { code: 'ScopeMissing', scope: 'operate' });
  const made = await server.fetch('/v1/publishers', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'deploy', issuer: 'ci', claims: { sub: 'x' }, scopes: ['operate'] }),
  });
  const { id: rule } = (await made.json()) as { id: string };
  t.is((await remove(`/publishers/${rule}`)).status, 403);

  await Visitor.signedIn(server, value);
  const { items } = (await (await server.fetch('/v1/sessions')).json()) as { items: { id: string }[] };
  t.is((await remove(`/sessions/${items[0]!.id}`)).status, 403);
  const visitor = await Visitor.signedIn(server, admin);
  t.is((await visitor.send('/console/tokens/revoke', { id: operator.id })).status, 403);
  t.is((await visitor.send(`/console/publishers/${rule}/delete`, {})).status, 403);
  t.is((await visitor.send(`/console/sessions/${items[0]!.id}`, {})).status, 403);

  t.is((await server.fetch('/v1/account', { token: value })).status, 200, 'nothing was ended');
  t.is((await remove(`/tokens/${plain.id}`)).status, 204, 'a token of the account');
  t.is((await remove(`/tokens/${operator.id}`, value)).status, 204, 'a token may revoke itself');
  t.is((await remove(`/sessions/${items[0]!.id}`, server.token)).status, 204);
  t.is((await remove(`/publishers/${rule}`, server.token)).status, 204);
});

test('a token with name patterns cannot see or start jobs, which concern all names', async (t) => {
  const server = await startTestServer(t, { retention: { packages: { keepVersions: 1 } } });
  const feed = new TestFeed(server);
  await feed.publish({ id: 'Secret', version: '1.0.0' }, { id: 'Secret', version: '2.0.0' });
  const { value } = await createToken(server, [...ownScopes, 'operate'], 'default', { packages: ['Contoso.*'] });
  const operations = (await OpenDocument.of(server)).operations.filter((each) => each.includes(' /jobs'));
  t.is(operations.length, 4);
  for (const operation of operations) {
    const refused = await send(server, operation, operation.split(' ')[1]!.replace('{name}', 'retention'), value);
    t.is(refused.status, 403, operation);
    const text = await refused.text();
    t.like(JSON.parse(text), { code: 'NameDenied' });
    t.notRegex(text, /Secret/);
  }
  const visitor = await Visitor.signedIn(server, value);
  t.is((await visitor.fetch('/console/jobs')).status, 403);
  for (const act of ['preview', 'run']) {
    t.is((await visitor.send('/console/jobs/retention', { act })).status, 403, act);
  }
  t.is((await feed.json('/package/secret/index.json')).versions.length, 2);
});

test('a webhook gets events of no account only from who has operate for all names', async (t) => {
  const server = await startTestServer(t, allowLoopback);
  const receiver = await startReceiver(t);
  const { token, value } = await createToken(server, ['operate'], 'default', { packages: ['Contoso.*'] });
  const made = await server.fetch('/v1/grants', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ subject: { kind: 'token', id: token.id }, verbs: ['admin'] }),
  });
  t.is(made.status, 201);
  const { id } = await createWebhook(server, receiver.url, ['*'], value);
  const { id: ofOperator } = await createWebhook(server, receiver.url);
  const admin = await tokenOf(server, ['admin']);
  const status = async (webhook: string, by: string) =>
    (await server.fetch(`/v1/webhooks/${webhook}`, { token: by })).status;
  t.deepEqual([await status(id, admin), await status(ofOperator, admin)], [200, 403]);
  t.deepEqual([await status(id, value), await status(ofOperator, value)], [200, 403]);
});
