import test from 'ava';
import type { Patterns } from '../../src/accounts/names.ts';
import { TestFeed } from '../support/feed.ts';
import { createToken } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { startTestServer, type TestServer } from '../support/server.ts';

// Tokens that are limited to names, and the permission to create them.

type Made = Record<string, unknown> & { id: string; token: string };

function create(server: TestServer, body: object, token = server.token): Promise<Response> {
  return server.fetch('/v1/tokens', {
    method: 'POST',
    token,
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'x', scopes: ['read'], ...body }),
  });
}

async function made(server: TestServer, body: object, token?: string): Promise<Made> {
  const response = await create(server, body, token);
  if (response.status !== 201) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as Made;
}

test('a token is created with patterns, and listed with them', async (t) => {
  const server = await startTestServer(t);
  const document = await OpenDocument.of(server);
  const patterns = { packages: ['Contoso.*', 'Exact'], containers: ['team/*'] };
  const one = await document.read('POST /tokens', await create(server, { patterns }));
  t.deepEqual(one['patterns'], patterns);
  const half = await made(server, { patterns: { packages: ['Contoso.*'] } });
  t.deepEqual(half['patterns'], { packages: ['Contoso.*'], containers: [] });
  for (const none of [null, undefined]) t.is((await made(server, { patterns: none }))['patterns'], null);
  const listed = await document.read('GET /tokens', await server.fetch('/v1/tokens'));
  const shown = (listed['items'] as Made[]).map((each) => each['patterns']);
  t.deepEqual(shown, [null, null, { packages: ['Contoso.*'], containers: [] }, patterns, null]);
});

test('invalid patterns are refused', async (t) => {
  const server = await startTestServer(t);
  for (const patterns of [
    {},
    [],
    'Contoso.*',
    { packages: [] },
    { packages: [], containers: [] },
    { packages: 'Contoso.*' },
    { packages: [''] },
    { packages: ['a b'] },
    { packages: [7] },
    { symbols: ['*'] },
    { packages: ['x'.repeat(256)] },
    { containers: Array.from({ length: 51 }, (_, index) => `p${index}`) },
  ]) {
    const response = await create(server, { patterns });
    t.is(response.status, 400, JSON.stringify(patterns).slice(0, 60));
  }
  t.is((await create(server, { patterns: { containers: Array.from({ length: 50 }, (_, n) => `p${n}`) } })).status, 201);
});

test('a limited administrator cannot create a token with wider limits', async (t) => {
  const server = await startTestServer(t);
  const admin = await made(server, {
    scopes: ['read', 'admin'],
    patterns: { packages: ['Contoso.*'], containers: ['team/*', 'docker.io/library/alpine'] },
  });
  for (const wider of [
    {},
    { patterns: null },
    { patterns: { packages: ['*'] } },
    { patterns: { packages: ['Contoso*'] } },
    { patterns: { packages: ['Contoso'] } },
    { patterns: { packages: ['Contoso.*', 'Fabrikam.*'] } },
    { patterns: { packages: ['*Contoso.*'] } },
    { patterns: { packages: ['team/*'] } },
    { patterns: { packages: ['Contoso.*'], containers: ['*'] } },
    { patterns: { containers: ['docker.io/library/*'] } },
    { patterns: { containers: ['team*'] } },
  ]) {
    const response = await create(server, wider, admin.token);
    t.is(response.status, 403, JSON.stringify(wider));
    t.like(await response.json(), { code: 'NameDenied' });
  }
  const scope = await create(server, { scopes: ['write'], patterns: { packages: ['Contoso.*'] } }, admin.token);
  t.is(scope.status, 403, 'nor a token with more scopes');
  t.like(await scope.json(), { code: 'ScopeMissing', scope: 'write' });
  for (const within of [
    { patterns: { packages: ['Contoso.*'] } },
    { patterns: { packages: ['CONTOSO.Core'] } },
    { patterns: { packages: ['contoso.*.internal'], containers: ['team/app', 'docker.io/library/alpine'] } },
  ]) {
    t.is((await create(server, within, admin.token)).status, 201, JSON.stringify(within));
  }
});

test('a limited administrator cannot see or revoke a token with wider limits', async (t) => {
  const server = await startTestServer(t);
  const admin = await made(server, { scopes: ['read', 'admin'], patterns: { packages: ['Contoso.*'] } });
  const same = await made(server, { scopes: ['write'], patterns: { packages: ['Contoso.Core'] } });
  const other = await made(server, { patterns: { packages: ['Fabrikam.*'] } });
  const wide = await made(server, {});
  const { items } = (await (await server.fetch('/v1/tokens?limit=1', { token: admin.token })).json()) as {
    items: Made[];
  };
  t.deepEqual(
    items.map(({ id }) => id),
    [same.id],
  );
  const end = async ({ id }: { id: string }) =>
    (await server.fetch(`/v1/tokens/${id}`, { method: 'DELETE', token: admin.token })).status;
  t.is(await end(wide), 403);
  t.is(await end(other), 403);
  t.is((await server.fetch('/v1/packages', { token: wide.token })).status, 200, 'it still works');
  t.is(await end({ id: '00000000-0000-0000-0000-000000000000' }), 404);
  t.is(await end(same), 204);
  t.is(await end(admin), 204, 'a token may revoke itself');
});

test('a limited token sees and releases only claims of names within its patterns', async (t) => {
  const server = await startTestServer(t);
  const feed = new TestFeed(server);
  for (const id of ['Own.Lib', 'Else.Lib']) {
    await feed.publish({ id, version: '1.0.0' });
    t.is((await server.fetch(`/v1/packages/${id}/1.0.0`, { method: 'DELETE' })).status, 204);
  }
  const { value: token } = await createToken(server, ['admin'], 'default', { packages: ['own.*'] });
  const names = async (init: { token?: string }) => {
    const list = (await (await server.fetch('/v1/claims', init)).json()) as { items: { name: string }[] };
    return list.items.map(({ name }) => name.toLowerCase());
  };
  t.deepEqual(await names({}), ['else.lib', 'own.lib']);
  t.deepEqual(await names({ token }), ['own.lib']);
  const release = (id: string) => server.fetch(`/v1/claims/package/${id}`, { method: 'DELETE', token });
  t.is((await release('Else.Lib')).status, 403);
  t.is((await release('OWN.lib')).status, 204);
  t.deepEqual(await names({}), ['else.lib']);
});

/** A token whose scopes have other names: a grant adds `verbs` for the packages, or for all names. */
async function widened(
  server: TestServer,
  [scopes, patterns]: [string[], Patterns?],
  ...grants: [verbs: string[], packages?: string[]][]
): Promise<string> {
  const { token, value } = await createToken(server, scopes, 'default', patterns);
  for (const [verbs, packages] of grants) {
    const body = { subject: { kind: 'token', id: token.id }, verbs, ...(packages && { packages }) };
    const response = await server.fetch('/v1/grants', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (response.status !== 201) throw new Error(`${response.status} ${await response.text()}`);
  }
  return value;
}

test('who may read all names administers only those of the right to administer, and the other way round', async (t) => {
  const server = await startTestServer(t);
  await new TestFeed(server).publish({ id: 'Contoso.Web' }, { id: 'Secret.Plans' });
  for (const id of ['contoso.gone', 'secret.gone']) {
    t.is((await server.fetch(`/v3/package/${id}/index.json`)).status, 404);
  }
  const { token: unlimited } = await createToken(server, ['read']);
  const requests: [method: string, path: string, body?: string][] = [
    ['PUT', '/v1/policy', '{}'],
    ['GET', '/v1/people'],
    ['GET', '/v1/exposed?what=Secret.Plans@1.0.0'],
    ['DELETE', `/v1/tokens/${unlimited.id}`],
  ];
  const send = ([method, path, body]: (typeof requests)[number], token: string) =>
    server.fetch(path, { method, token, ...(body && { body, headers: { 'content-type': 'application/json' } }) });
  const shown = async (path: string, token: string) => {
    const response = await server.fetch(path, { token });
    return response.status === 200 ? /secret\./i.test(await response.text()) : response.status;
  };
  const lists = ['/v1/audit', '/v1/failed-requests'];

  const readsAll = await widened(server, [['read', 'admin'], { packages: ['Contoso.*'] }], [['read']]);
  t.is(await shown('/v1/packages', readsAll), true);
  for (const each of requests) {
    const response = await send(each, readsAll);
    t.is(response.status, 403, each[1]);
    t.like(await response.json(), { code: 'NameDenied' }, each[1]);
  }
  for (const path of lists) {
    t.regex(await (await server.fetch(path, { token: readsAll })).text(), /contoso\./i, path);
    t.is(await shown(path, readsAll), false, path);
  }

  const administersAll = await widened(server, [['admin']], [['read'], ['Contoso.*']]);
  t.is(await shown('/v1/packages', administersAll), false);
  for (const path of lists) t.is(await shown(path, administersAll), true, path);
  for (const each of requests) t.true((await send(each, administersAll)).ok, each[1]);
});

test('a limited administrator gives each scope only for names for which it has that scope', async (t) => {
  const server = await startTestServer(t);
  const token = await widened(server, [['admin'], { packages: ['Contoso.*'] }], [['write'], ['Contoso.Web', 'Other']]);
  const make = (scopes: string[], ...packages: string[]) => create(server, { scopes, patterns: { packages } }, token);
  for (const packages of [['Contoso.*'], ['Contoso.Core'], ['Contoso.Web', 'Contoso.Core'], ['Other']]) {
    const response = await make(['write'], ...packages);
    t.is(response.status, 403, packages.join());
    t.like(await response.json(), { code: 'NameDenied' });
  }
  t.is((await make(['admin', 'write'], 'Contoso.*')).status, 403);
  t.is((await make(['write'], 'Contoso.Web')).status, 201);
  t.is((await make(['admin'], 'Contoso.*')).status, 201);
});
