import test from 'ava';
import { OpenDocument } from '../support/open-document.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { createToken } from '../support/inside.ts';

interface Made {
  id: string;
  token: string;
}

async function make(server: TestServer, scopes: string[], more: object = {}): Promise<Made> {
  const response = await post(server, { name: `for ${scopes.join()}`, scopes, ...more });
  if (response.status !== 201) throw new Error(await response.text());
  return (await response.json()) as Made;
}

function post(server: TestServer, body: unknown, headers: Record<string, string> = {}, token?: string) {
  return server.fetch('/v1/tokens', {
    method: 'POST',
    body: typeof body === 'string' ? body : JSON.stringify(body),
    headers: { 'content-type': 'application/json', ...headers },
    ...(token !== undefined && { token }),
  });
}

test('a token can be created, used, listed without its value, and revoked', async (t) => {
  const server = await startTestServer(t);
  const document = await OpenDocument.of(server);
  const expires = new Date(Date.now() + 3_600_000).toISOString();
  const created = await document.read(
    'POST /tokens',
    await post(server, { name: ' ci ', scopes: ['write', 'read'], expires_at: expires }),
  );
  t.like(created, { name: 'ci', scopes: ['read', 'write'], expires_at: expires, last_used_at: null, revoked_at: null });
  const { id, token, token_prefix } = created as Record<string, string>;
  t.regex(token!, /^ent_[0-9A-Za-z]{36}$/);
  t.true(token!.startsWith(token_prefix!) && token_prefix!.length <= 8);

  t.is((await server.fetch('/v1/account', { token: token! })).status, 200);
  const listed = await server.fetch('/v1/tokens');
  const text = await listed.clone().text();
  t.false(text.includes(token!), 'no value in the list');
  t.false(text.includes('hash'));
  const { items } = (await document.read('GET /tokens', listed)) as { items: { id: string; last_used_at: string }[] };
  t.is(items.length, 2);
  const inList = items.find((each) => each.id === id)!;
  t.not(inList.last_used_at, null);
  t.deepEqual(await document.read('GET /tokens/{id}', await server.fetch(`/v1/tokens/${id}`)), inList);

  const revoked = await server.fetch(`/v1/tokens/${id}`, { method: 'DELETE' });
  await document.read('DELETE /tokens/{id}', revoked.clone());
  t.is(revoked.status, 204);
  t.is((await server.fetch('/v1/account', { token: token! })).status, 401, 'refused at once');
  t.is((await server.fetch(`/v1/tokens/${id}`, { method: 'DELETE' })).status, 204, 'revoking twice is not an error');
  const after = (await (await server.fetch('/v1/tokens')).json()) as { items: { id: string; revoked_at: string }[] };
  t.not(after.items.find((each) => each.id === id)!.revoked_at, null);
});

test('cursor and Link lead through all pages of tokens, with each token once', async (t) => {
  const server = await startTestServer(t);
  server.clock.now = Date.now();
  for (let index = 0; index < 6; index += 1) await make(server, ['read'], { name: `t${index}` });
  const seen: string[] = [];
  let path: string | undefined = '/v1/tokens?limit=3';
  let pages = 0;
  while (path !== undefined) {
    const response: Response = await server.fetch(path);
    const body = (await response.json()) as { items: { id: string }[]; next_cursor: string | null };
    seen.push(...body.items.map((each) => each.id));
    pages += 1;
    const link = response.headers.get('link');
    t.is(link === null, body.next_cursor === null);
    const next = link && new URL(/^<([^>]+)>; rel="next"$/.exec(link)![1]!);
    if (next) {
      t.is(next.origin, server.url);
      t.is(next.searchParams.get('limit'), '3');
      t.is(next.searchParams.get('cursor'), body.next_cursor);
    }
    path = next ? next.pathname + next.search : undefined;
  }
  t.is(pages, 3);
  t.is(seen.length, 7, 'no entry is on two pages');
  t.is(new Set(seen).size, 7, 'with the same creation time, no entry is repeated or missing');
  server.clock.now += 1000;
  const { id } = await make(server, ['read'], { name: 'last' });
  const { items } = (await (await server.fetch('/v1/tokens?limit=1')).json()) as { items: { id: string }[] };
  t.deepEqual(
    items.map((each) => each.id),
    [id],
    'the latest is the first',
  );
});

test('a bad limit or cursor is 400 and names the field', async (t) => {
  const server = await startTestServer(t);
  await make(server, ['read']);
  const { next_cursor: good } = (await (await server.fetch('/v1/tokens?limit=1')).json()) as { next_cursor: string };
  t.is((await server.fetch(`/v1/tokens?limit=200&cursor=${good}`)).status, 200);
  const foreign = Buffer.from(JSON.stringify(['packages', 'a'])).toString('base64url');
  const wrongKey = Buffer.from(JSON.stringify(['tokens', 'a', 'b'])).toString('base64url');
  const bad = [
    ...['0', '201', '-1', '1.5', 'ten', '', '1&limit=2', '0x10'].map((each) => `limit=${each}`),
    ...['', 'x', '%00', foreign, wrongKey, `${good}x`, 'a'.repeat(1001), 'bnVsbA'].map((each) => `cursor=${each}`),
  ];
  for (const query of bad) {
    const response = await server.fetch(`/v1/tokens?${query}`);
    const body = (await response.json()) as { detail: string };
    t.is(response.status, 400, query);
    t.is(response.headers.get('content-type'), 'application/problem+json', query);
    t.regex(body.detail, query.startsWith('limit') ? /limit/ : /cursor/, query);
  }
});

test('an error about a new token names the wrong field', async (t) => {
  const server = await startTestServer(t);
  const cases: [unknown, number, RegExp][] = [
    [{ scopes: ['read'] }, 400, /name/],
    [{ name: '', scopes: ['read'] }, 400, /name/],
    [{ name: 'x'.repeat(201), scopes: ['read'] }, 400, /name/],
    [{ name: 'x', scopes: [] }, 400, /scopes/],
    [{ name: 'x', scopes: ['root'] }, 400, /scopes\.0/],
    [{ name: 'x', scopes: 'read' }, 400, /scopes/],
    [{ name: 'x', scopes: ['read'], expires_at: 'tomorrow' }, 400, /expires_at/],
    [{ name: 'x', scopes: ['read'], expires_at: '2001-01-01T00:00:00Z' }, 400, /in the future/],
    [{ name: 'x', scopes: ['read'], account: 'other' }, 400, /account/],
    [['read'], 400, /body/],
    ['{"name": ', 400, /JSON/],
    ['', 400, /JSON/],
    [`{"name":"${'x'.repeat(70_000)}"}`, 413, /larger/],
  ];
  for (const [body, status, message] of cases) {
    const response = await post(server, body);
    const said = (await response.json()) as { detail: string; status: number };
    t.is(response.status, status, JSON.stringify(body).slice(0, 80));
    t.is(said.status, status);
    t.regex(said.detail, message);
  }
  const form = await post(server, 'name=x', { 'content-type': 'application/x-www-form-urlencoded' });
  t.is(form.status, 415);
  const latin = await server.fetch('/v1/tokens', {
    method: 'POST',
    body: Buffer.from('{"name":"\xe9","scopes":["read"]}', 'latin1'),
    headers: { 'content-type': 'application/json' },
  });
  t.is(latin.status, 400);
  const chunked = await server.fetch('/v1/tokens', {
    method: 'POST',
    body: new Blob(['x'.repeat(70_000)]).stream(),
    duplex: 'half',
    headers: { 'content-type': 'application/json' },
  });
  t.is(chunked.status, 413, 'also without Content-Length');
  const { items } = (await (await server.fetch('/v1/tokens')).json()) as { items: unknown[] };
  t.is(items.length, 1, 'no token was created');
});

test('a missing scope is 403 and named; missing credentials are 401 with challenges', async (t) => {
  const server = await startTestServer(t);
  const document = await OpenDocument.of(server);
  const reader = await make(server, ['read']);
  const writer = await make(server, ['write', 'delete']);
  const refused: [string, string, string, string][] = [
    ['GET', '/tokens', reader.token, 'admin'],
    ['POST', '/tokens', reader.token, 'admin'],
    ['DELETE', `/tokens/${writer.id}`, reader.token, 'admin'],
    ['GET', '/account', writer.token, 'read'],
    ['GET', '/account/usage', writer.token, 'read'],
  ];
  for (const [method, path, token, scope] of refused) {
    const response = await server.fetch(`/v1${path}`, { method, token });
    const body = await document.read(`${method} ${path.replace(/[0-9a-f-]{36}/, '{id}')}`, response);
    t.is(response.status, 403, path);
    t.like(body, { code: 'ScopeMissing', scope });
    t.true((body['detail'] as string).includes(scope));
    t.regex(response.headers.get('www-authenticate')!, new RegExp(`insufficient_scope.*"${scope}"`));
  }
  for (const path of ['/tokens', '/account', '/account/usage']) {
    const response = await server.fetch(`/v1${path}`, { token: null });
    t.is(response.status, 401, path);
    t.is(response.headers.get('www-authenticate'), 'Basic realm="Entrepot", Bearer realm="Entrepot"');
    t.like(await response.json(), { status: 401, code: 'Unauthorized' });
  }
});

test('a token may revoke itself with any scopes, but no other token', async (t) => {
  const server = await startTestServer(t);
  const [one, other] = [await make(server, ['write']), await make(server, ['write'])];
  t.is((await server.fetch(`/v1/tokens/${other.id}`, { method: 'DELETE', token: one.token })).status, 403);
  t.is((await server.fetch(`/v1/tokens/${one.id}`, { method: 'DELETE', token: one.token })).status, 204);
  t.is((await server.fetch(`/v1/tokens/${one.id}`, { method: 'DELETE', token: one.token })).status, 401);
});

test('tokens of another account are not found', async (t) => {
  const server = await startTestServer(t);
  const { token, value } = await createToken(server, ['read', 'admin'], 'other');
  t.is((await server.fetch(`/v1/tokens/${token.id}`, { method: 'DELETE' })).status, 404);
  t.is((await server.fetch(`/v1/tokens/${token.id}`)).status, 404);
  t.is((await server.fetch('/v1/account', { token: value })).status, 200, 'and it still works');
  const { items } = (await (await server.fetch('/v1/tokens', { token: value })).json()) as { items: { id: string }[] };
  t.deepEqual(
    items.map((each) => each.id),
    [token.id],
  );
  for (const id of ['nope', '..%2f..', '%27%20OR%201=1', '00000000-0000-0000-0000-000000000000']) {
    t.is((await server.fetch(`/v1/tokens/${id}`, { method: 'DELETE' })).status, 404, id);
  }
  t.is((await server.fetch('/v1/tokens/%E0%A4%A', { method: 'DELETE' })).status, 400);
});

test('expired, revoked and unknown tokens get the same answer, byte for byte', async (t) => {
  const server = await startTestServer(t);
  server.clock.now = Date.now();
  const revoked = await make(server, ['read']);
  const expired = await make(server, ['read'], { expires_at: new Date(server.clock.now + 60_000).toISOString() });
  await server.fetch(`/v1/tokens/${revoked.id}`, { method: 'DELETE' });
  t.is((await server.fetch('/v1/account', { token: expired.token })).status, 200);
  server.clock.now += 60_000;
  const unknown = 'no-token-of-this-server';
  const answers = await Promise.all(
    [revoked.token, expired.token, unknown].map(async (token) => {
      const response = await server.fetch('/v1/account', { token });
      const headers = [...response.headers].filter(([name]) => !['x-request-id', 'date'].includes(name));
      return JSON.stringify([response.status, headers, await response.text()]);
    }),
  );
  t.is(new Set(answers).size, 1, answers.join('\n'));
  t.true(answers[0]!.startsWith('[401'));
});

test('Basic accepts only the user name "api"; the answer to a mistyped token says so', async (t) => {
  const server = await startTestServer(t);
  const basic = (user: string, password: string) =>
    server.fetch('/v1/account', {
      headers: { authorization: `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}` },
    });
  t.is((await basic('api', server.token)).status, 200);
  t.is((await basic('API', server.token)).status, 401);
  t.is((await basic('', server.token)).status, 401);
  t.is((await basic(server.token, '')).status, 401);
  const { token } = await make(server, ['read']);
  const mistyped = token.slice(0, -1) + (token.endsWith('a') ? 'b' : 'a');
  const response = await server.fetch('/v1/account', { token: mistyped });
  t.is(response.status, 401);
  t.regex(((await response.json()) as { detail: string }).detail, /checksum/);
  for (const authorization of ['Bearer', 'Bearer ', 'Basic !!!', 'Digest x', server.token]) {
    t.is((await server.fetch('/v1/account', { headers: { authorization } })).status, 401, authorization);
  }
  const key = { 'x-nuget-apikey': server.token };
  t.is(
    (await server.fetch('/v1/account', { headers: key, token: null })).status,
    401,
    'only the feed accepts an API key',
  );
});

test('a token asks who it is and what it may do', async (t) => {
  const server = await startTestServer(t);
  const document = await OpenDocument.of(server);
  const me = async (token: string) => document.read('GET /me', await server.fetch('/v1/me', { token }));
  const none = await server.fetch('/v1/me', { token: null });
  t.is(none.status, 401);
  t.is((await server.fetch('/v1/me', { token: 'ent_wrong' })).status, 401);
  const expires = new Date(Date.now() + 3_600_000).toISOString();
  const made = await make(server, ['write', 'read'], { expires_at: expires });
  t.deepEqual(await me(made.token), {
    kind: 'token',
    id: made.id,
    name: 'for write,read',
    account: 'default',
    accounts: ['default'],
    scopes: ['read', 'write'],
    limited: false,
    person_id: null,
    expires_at: expires,
  });
  const { token, value } = await createToken(server, ['read'], 'other');
  t.like(await me(value), { id: token.id, account: 'other', accounts: ['other'], scopes: ['read'], expires_at: null });
  const { value: some } = await createToken(server, ['read'], 'default', { packages: ['Contoso.*'] });
  t.like(await me(some), { limited: true });
  const { token: granted, value: both } = await createToken(server, ['read']);
  const subject = { kind: 'token', id: granted.id };
  const grant = JSON.stringify({ subject, verbs: ['write'], packages: ['Contoso.*'] });
  const json = { 'content-type': 'application/json' };
  t.is((await server.fetch('/v1/grants', { method: 'POST', headers: json, body: grant })).status, 201);
  t.like(await me(both), { scopes: ['read', 'write'], limited: true }, 'it reads all names, and writes some');
});
