import { createHash, randomBytes } from 'node:crypto';
import test from 'ava';
import type { PageCall } from '../../src/console/framework/page.ts';
import { pages } from '../../src/console/pages/index.ts';
import { auditOf } from '../support/audit.ts';
import { dialects } from '../support/databases.ts';
import { createToken, databaseOf, flushEvents } from '../support/inside.ts';
import { instancesOf } from '../support/instances.ts';
import { startTestServer } from '../support/server.ts';
import { Visitor } from '../support/visitor.ts';

const minute = 60_000;
const hour = 60 * minute;

const isOpen = async (visitor: Visitor) => (await visitor.fetch('/console/connect')).status === 200;

test('a browser at / is led to the console, and a visitor without a session to the sign-in page and back', async (t) => {
  const server = await startTestServer(t);
  const root = await server.fetch('/', { headers: { accept: 'text/html,*/*' }, token: null });
  t.is(root.headers.get('location'), '/console/');
  t.is((await server.fetch('/', { token: null })).status, 404, 'a program gets no page');
  const visitor = new Visitor(server);
  const refused = await visitor.fetch('/console/connect?a=1');
  t.is(refused.status, 303);
  t.is(refused.headers.get('location'), '/console/sign-in?next=%2Fconsole%2Fconnect%3Fa%3D1');
  t.regex(await visitor.page('/console/sign-in?next=%2Fconsole%2Fconnect'), /name="next" value="\/console\/connect"/);
  const signedIn = await visitor.send('/console/sign-in', { token: server.token, next: '/console/connect' });
  t.is(signedIn.status, 303);
  t.is(signedIn.headers.get('location'), '/console/connect');
  t.regex(await visitor.page('/console/connect'), /dotnet nuget add source/);
});

test('a wrong token is refused beside its field, and nothing is a session', async (t) => {
  const server = await startTestServer(t);
  const visitor = new Visitor(server);
  for (const token of ['', 'wrong', 'anonymous']) {
    const response = await visitor.send('/console/sign-in', { token });
    t.is(response.status, 422, token);
    const [, said] = /id="token-error"[^>]*>([^<]*)/.exec(await response.text())!;
    t.regex(said!, /^Paste an API token\.$|^The API token is not valid\. It may have expired, or have been revoked\.$/);
    t.is(visitor.cookie, undefined);
  }
});

test('a session ends when its visitor signs out, when its token is revoked, and by time', async (t) => {
  const server = await startTestServer(t, { signIn: { session: { idle: '2h', absolute: '5h' } } });
  server.clock.now = Date.now();
  const advance = (time: number) => (server.clock.now! += time);

  const leaving = await Visitor.signedIn(server);
  const { cookie } = leaving;
  const left = await leaving.send('/console/sign-out', {});
  t.is(left.status, 303);
  t.is(left.headers.getSetCookie()[0], 'entrepot-session=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0');
  t.is(leaving.cookie, undefined);
  leaving.cookie = cookie;
  t.false(await isOpen(leaving), 'the old cookie is worth nothing');

  const made = await server.fetch('/v1/tokens', {
    method: 'POST',
    body: JSON.stringify({ name: 'short', scopes: ['read'] }),
    headers: { 'content-type': 'application/json' },
  });
  const { id, token } = (await made.json()) as { id: string; token: string };
  const revoked = await Visitor.signedIn(server, token);
  t.true(await isOpen(revoked));
  await server.fetch(`/v1/tokens/${id}`, { method: 'DELETE' });
  t.false(await isOpen(revoked));

  const idle = await Visitor.signedIn(server);
  const used = await Visitor.signedIn(server);
  advance(90 * minute);
  t.true(await isOpen(used));
  advance(90 * minute);
  t.false(await isOpen(idle));
  t.true(await isOpen(used));
  advance(90 * minute);
  t.true(await isOpen(used));
  advance(hour);
  t.false(await isOpen(used), 'after the absolute time, although it was used');
});

for (const dialect of dialects) {
  test(`${dialect}: a session that ends at one instance is refused by the others at their next request`, async (t) => {
    const start = await instancesOf(t, dialect);
    const [a, b] = [await start(), await start()];
    const ends: Record<string, (made: { visitor: Visitor; tokenId: string; sessionId: string }) => Promise<Response>> =
      {
        'sign-out': ({ visitor }) => visitor.send('/console/sign-out', {}),
        'the token is revoked': ({ tokenId }) => a.fetch(`/v1/tokens/${tokenId}`, { method: 'DELETE' }),
        'an administrator ends it': ({ sessionId }) => a.fetch(`/v1/sessions/${sessionId}`, { method: 'DELETE' }),
      };
    for (const [how, end] of Object.entries(ends)) {
      const { token, value } = await createToken(a, ['read']);
      const visitor = await Visitor.signedIn(a, value);
      const there = new Visitor(b);
      there.cookie = visitor.cookie;
      const { cookie } = there;
      for (let count = 0; count < 3; count += 1) t.true(await isOpen(there), how);
      const { items } = (await (await b.fetch('/v1/sessions')).json()) as { items: { id: string; token_id: string }[] };
      const session = items.find((each) => each.token_id === token.id)!;
      const { status } = await end({ visitor, tokenId: token.id, sessionId: session.id });
      t.true(status === 303 || status === 204, `${how}: ${status}`);
      t.false(await isOpen(there), how);
      there.cookie = cookie;
      t.false(await isOpen(there), `${how}: again`);
    }
  });
}

test('a session ends exactly at its times, and a use counts once in a minute', async (t) => {
  const server = await startTestServer(t, { signIn: { session: { idle: '2h', absolute: '3h' } } });
  const begun = Date.now();
  server.clock.now = begun;
  const listed = async () => ((await (await server.fetch('/v1/sessions')).json()) as { items: object[] }).items.length;
  const [idle, used] = [await Visitor.signedIn(server), await Visitor.signedIn(server)];
  for (const [visitor, time, open, sessions] of [
    [idle, minute - 1, true, 2],
    [used, minute, true, 2],
    [idle, 2 * hour, false, 1],
    [used, 2 * hour + minute - 1, true, 1],
    [used, 3 * hour - 1, true, 1],
    [used, 3 * hour, false, 0],
  ] as const) {
    server.clock.now = begun + time;
    t.deepEqual([await isOpen(visitor), await listed()], [open, sessions], `after ${time} ms`);
    await server.installation.core.sessions.deleteEnded();
    t.is((await databaseOf(server).select('SELECT id FROM sessions')).length, sessions, `rows after ${time} ms`);
  }
});

test('sessions that began at one time are each on one page of the list', async (t) => {
  const server = await startTestServer(t);
  server.clock.now = Date.now();
  for (let count = 0; count < 3; count += 1) await Visitor.signedIn(server);
  const pages = async (order: string) => {
    const seen: string[] = [];
    for (let cursor: string | null = ''; cursor !== null && seen.length < 10;) {
      const response = await server.fetch(`/v1/sessions?limit=1&total=1${order}${cursor && `&cursor=${cursor}`}`);
      const page = (await response.json()) as { items: { id: string }[]; next_cursor: string | null; total: object };
      t.deepEqual(page.total, { count: 3 });
      seen.push(...page.items.map(({ id }) => id));
      cursor = page.next_cursor;
    }
    return seen;
  };
  const seen = await pages('');
  t.deepEqual([seen.length, new Set(seen).size], [3, 3]);
  t.deepEqual(await pages('&sort=oldest'), seen.toReversed());

  const visitors = await Promise.all([1, 2].map(() => Visitor.signedIn(server)));
  const shown = async (path: string) =>
    [...(await visitors[0]!.page(path)).matchAll(/href="\/console\/sessions\/[\w-]+"/g)].length;
  t.is(await shown('/console/sessions'), 5);
  t.notRegex(await visitors[0]!.page('/console/tokens'), /All sessions/);
  for (let count = 0; count < 16; count += 1) await Visitor.signedIn(server);
  t.regex(await visitors[0]!.page('/console/tokens'), /<a href="\/console\/sessions">All sessions/);
  t.is(await shown('/console/tokens'), 20);
  t.is(await shown('/console/sessions'), 21);
  t.is(await shown('/console/sessions?q=FIRST'), 21);
  t.regex(await visitors[0]!.page('/console/sessions?sort=oldest'), /21 sessions[^]*aria-sort="ascending"[^]*>Began/);
  t.is(await shown('/console/sessions?q=second'), 0);
});

test('sessions and events of others are not told from the lists of an account', async (t) => {
  const server = await startTestServer(t);
  server.clock.now = Date.now();
  const database = databaseOf(server);
  const visitor = await Visitor.signedIn(server);
  const [row] = await database.select('SELECT * FROM sessions');
  const person = JSON.stringify({ issuer: 'https://a.test', subject: 'p', name: 'P', claims: [] });
  await database.transaction(async (tx) => {
    await tx.insertNew('people', [{ id: 'p', person, signed_in_at: server.clock.now! }]);
    const account = await tx.insert('accounts', { name: 'other', created_at: 1 });
    const rows = Array.from({ length: 1000 }, (_, index) => ({
      ...row!,
      id: `${index}`,
      hash: `${index}`,
      token_id: null,
      account_id: account,
      person_id: 'p',
      person,
      created_at: server.clock.now! + 1,
    }));
    for (let from = 0; from < rows.length; from += 200) await tx.insertNew('sessions', rows.slice(from, from + 200));
  });
  const tokens = await visitor.page('/console/tokens');
  t.regex(tokens, /Nothing on this page\.[^]*All sessions/);
  t.notRegex(tokens, /Nobody is signed in/);
  const sessions = await visitor.page('/console/sessions');
  t.regex(sessions, /Not counted, because that would take too long\.[^]*Nothing on this page\.[^]*rel="next"/);
  t.notRegex(sessions, /1,000/);
});

test('a filtered page of the audit that is empty and not the last one does not say that nothing matches', async (t) => {
  const auditOfNobody = pages.find(({ path }) => path === '/audit')!;
  const shown = async (next: string | null) => {
    const api = { call: () => Promise.resolve({ items: [], next_cursor: next }) };
    const call = { query: { actor: 'nobody' }, api, now: 0 } as unknown as PageCall;
    return (await auditOfNobody.show(call)).body.text;
  };
  t.regex(await shown('more'), /Nothing on this page\.[^]*rel="next"/);
  t.regex(await shown(null), /Nothing matches\. <a href="\/console\/audit">Clear the filter/);
});

test('a token has at most 50 sessions: one more ends its oldest, and none of another token', async (t) => {
  const server = await startTestServer(t);
  server.clock.now = Date.now();
  const { token, value } = await createToken(server, ['read']);
  const [other, oldest] = [await Visitor.signedIn(server), await Visitor.signedIn(server, value)];
  const database = databaseOf(server);
  const [row] = await database.select('SELECT * FROM sessions WHERE token_id = ?', [token.id]);
  await database.transaction(async (tx) => {
    for (let number = 0; number < 49; number += 1)
      await tx.insert('sessions', { ...row!, id: `${number}`, hash: `${number}`, created_at: server.clock.now! + 1 });
  });
  t.true(await isOpen(oldest));
  server.clock.now += 2;
  const latest = await Visitor.signedIn(server, value);
  t.deepEqual(await Promise.all([other, oldest, latest].map(isOpen)), [true, false, true]);
});

test('another account neither sees nor ends the session of a token', async (t) => {
  const server = await startTestServer(t);
  server.clock.now = Date.UTC(2027, 0, 1);
  const visitor = new Visitor(server);
  const agent = `A browser ${'x'.repeat(300)}`;
  await visitor.send('/console/sign-in', { token: server.token }, { 'user-agent': agent });
  server.clock.now += minute;
  await visitor.page('/console/connect');
  const { items } = (await (await server.fetch('/v1/sessions')).json()) as { items: { id: string }[] };
  const [own] = ((await (await server.fetch('/v1/tokens')).json()) as { items: { id: string }[] }).items;
  t.deepEqual(items, [
    {
      id: items[0]!.id,
      token_id: own!.id,
      token_name: 'first token',
      person: null,
      agent: agent.slice(0, 255),
      address: '127.0.0.1',
      created_at: '2027-01-01T00:00:00.000Z',
      last_used_at: '2027-01-01T00:01:00.000Z',
    },
  ] as never);
  const { value: token } = await createToken(server, ['admin'], 'other');
  t.deepEqual(((await (await server.fetch('/v1/sessions', { token })).json()) as { items: [] }).items, []);
  t.is((await server.fetch(`/v1/sessions/${items[0]!.id}`, { method: 'DELETE', token })).status, 404);
  t.true(await isOpen(visitor));
});

test('signing in gives a new session, so that a cookie from before is worth nothing', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  const before = visitor.cookie;
  await visitor.send('/console/sign-in', { token: server.token });
  t.not(visitor.cookie, before);
  const thief = new Visitor(server);
  thief.cookie = before;
  t.is((await thief.fetch('/console/connect')).status, 303);
  thief.cookie = `entrepot-session=${'A'.repeat(43)}`;
  await thief.send('/console/sign-in', { token: server.token });
  t.not(thief.cookie, `entrepot-session=${'A'.repeat(43)}`, 'a chosen value never becomes a session');
});

test('a form of another site changes nothing', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  const origin = new URL(server.url).origin;
  for (const headers of [
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { 'sec-fetch-site': 'cross-site', origin },
  ]) {
    t.is((await visitor.send('/console/sign-out', {}, headers)).status, 403);
  }
  for (const other of ['http://evil.test', 'null', `${origin}0`]) {
    const response = await visitor.fetch('/console/sign-out', {
      method: 'POST',
      body: new URLSearchParams(),
      headers: { origin: other },
    });
    t.is(response.status, 403, other);
  }
  t.is((await visitor.fetch('/console/connect')).status, 200, 'still signed in');
  const own = await visitor.fetch('/console/sign-out', {
    method: 'POST',
    body: new URLSearchParams(),
    headers: { origin },
  });
  t.is(own.status, 303, 'plain HTTP without Sec-Fetch-Site');
});

test('names of JavaScript in a form are no acts', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  const created = await server.fetch('/v1/webhooks', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ url: 'https://hooks.example.com/x', events: ['*'] }),
  });
  t.is(created.status, 201);
  const { id } = (await created.json()) as { id: string };
  for (const name of ['constructor', 'toString', '__proto__', 'hasOwnProperty']) {
    t.is((await visitor.send(`/console/webhooks/${id}`, { act: name })).status, 200, name);
  }
});

test('sign-in never leads to another site', async (t) => {
  const server = await startTestServer(t);
  const visitor = new Visitor(server);
  for (const next of [
    'https://evil.test/',
    '//evil.test/console/',
    '/console//evil.test',
    '/console/../../evil',
    '/console/..//evil.test',
    '/console/\\evil.test',
    '/console/\r\nX-Evil: 1',
    '/v1/tokens',
    'javascript:alert(1)',
  ]) {
    const response = await visitor.send('/console/sign-in', { token: server.token, next });
    t.is(response.headers.get('location'), '/console/', next);
    t.is(response.headers.get('x-evil'), null);
  }
});

test('/v1, the feed and the registry take no cookie, and the console takes no Authorization header', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  for (const path of ['/v1/account', '/v3/index.json', '/v2/']) t.is((await visitor.fetch(path)).status, 401, path);
  t.is((await server.fetch('/console/connect')).status, 303);
});

test('pages allow nothing from other sites, and are not stored by caches', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  const { headers } = await visitor.fetch('/console/connect');
  t.regex(headers.get('content-security-policy')!, /default-src 'none'.*frame-ancestors 'none'.*trusted-types 'none'/);
  t.is(headers.get('cache-control'), 'no-store');
  t.is(headers.get('x-content-type-options'), 'nosniff');
  const page = await visitor.page('/console/connect');
  for (const [, address] of page.matchAll(/(?:src|href)="([^"]+)"/g)) t.regex(address!, /^(?:\/|#)/);
  const [, style] = /href="([^"]+\.css)"/.exec(page)!;
  const asset = await server.fetch(style!, { token: null });
  t.is(asset.headers.get('cache-control'), 'public, max-age=31536000, immutable');
  t.is((await visitor.fetch('/console/assets/0000000000000000/console.css')).status, 404);
});

test('without console.enabled there is no console', async (t) => {
  const server = await startTestServer(t, { console: { enabled: false } });
  t.is((await server.fetch('/console/', { token: null })).status, 404);
  t.is((await server.fetch('/', { headers: { accept: 'text/html' }, token: null })).status, 404);
});

test('invented cookies of sessions count as failed sign-ins, and a valid session is served beside them', async (t) => {
  const limits = { failedSignInsPerMinute: 3, delay: '1ms' };
  const server = await startTestServer(t, { limits, signIn: { session: { idle: '2h' } } });
  server.clock.now = Date.now();
  const [visitor, other] = [await Visitor.signedIn(server), await Visitor.signedIn(server)];
  const ended = other.cookie!;
  await other.send('/console/sign-out', {});
  const statuses: number[] = [];
  const show = (cookie: string) => server.fetch('/console/connect', { token: null, headers: { cookie } });
  const first = await show(ended);
  t.is(first.status, 303);
  t.regex(first.headers.get('set-cookie')!, /^entrepot-session=;.*Max-Age=0/, 'the browser forgets it');
  for (let count = 0; count < 5; count += 1) {
    const invented = randomBytes(32).toString('base64url');
    statuses.push((await show(`entrepot-session=${invented}`)).status);
  }
  t.deepEqual(statuses, [303, 303, 429, 429, 429]);
  t.is((await show(ended)).status, 429, 'one that has ended counts, too');
  t.true(await isOpen(visitor));
  t.is((await server.fetch('/console/sign-in', { token: null })).status, 200);
  await flushEvents(server, true);
  const [event] = await auditOf(server, 'type=sign_in.failed');
  t.is(event!.details['count'], 2, 'the others are events of the limit');
});

test('an invented cookie is not looked for in the database above the limit, and a session of an older version stays', async (t) => {
  const server = await startTestServer(t, { limits: { failedSignInsPerMinute: 1, delay: '1ms' } });
  const visitor = await Visitor.signedIn(server);
  const old = randomBytes(32).toString('base64url');
  const hash = createHash('sha256').update(old).digest('hex');
  await databaseOf(server).transaction((tx) => tx.run('UPDATE sessions SET hash = ?', [hash]));
  visitor.cookie = `entrepot-session=${old}`;
  for (let count = 0; count < 3; count += 1) t.true(await isOpen(visitor));
  const show = (value: string) =>
    server.fetch('/console/connect', { token: null, headers: { cookie: `entrepot-session=${value}` } });
  t.is((await show(randomBytes(32).toString('base64url'))).status, 303);
  t.is((await show(old)).status, 429, 'it is like an invented one');
});

test('a form that arrives after its session has ended changes nothing, and the visitor is told', async (t) => {
  const server = await startTestServer(t, {
    signIn: { session: { idle: '2h', absolute: '3h' } },
    anonymousRead: 'all',
  });
  server.clock.now = Date.now();
  const visitor = await Visitor.signedIn(server);
  const { cookie } = visitor;
  server.clock.now += 2 * hour;
  const fields = { name: 'late', scope: 'read' };
  for (const at of ['/console/tokens/new', '/console/tokens/new?shown_account=default', '/console/account']) {
    visitor.cookie = cookie;
    const answer = await visitor.send(at, fields);
    t.deepEqual([answer.status, answer.headers.get('location')], [303, '/console/sign-in'], at);
    t.regex(
      await visitor.page('/console/sign-in'),
      /role="status">You were signed out before[^<]*nothing was changed/,
      at,
    );
    t.notRegex(await visitor.page('/console/sign-in'), /role="status"/, 'once');
  }
  const again = await Visitor.signedIn(server);
  t.notRegex(await again.page('/console/tokens'), />late</);
});
