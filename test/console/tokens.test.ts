import test from 'ava';
import { Tokens } from '../../src/accounts/tokens.ts';
import { TestFeed } from '../support/feed.ts';
import { createToken, databaseOf, defaultAccountOf, usesOf } from '../support/inside.ts';
import { OpenDocument } from '../support/open-document.ts';
import { startTestServer } from '../support/server.ts';
import { leadsTo, Visitor } from '../support/visitor.ts';

test('a token is created by a form, shown once, works, and is revoked on a page of its own', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  const created = await visitor.send('/console/tokens/new', [
    ['name', 'ci <b>'],
    ['scope', 'read'],
    ['scope', 'write'],
    ['days', '30'],
    ['packages', 'Contoso.* Fabrikam'],
  ]);
  t.is(created.status, 201);
  const [value] = /ent_[0-9A-Za-z]{36}/.exec(await created.text())!;
  t.is((await server.fetch('/v1/account', { token: value })).status, 200);

  const list = await visitor.page('/console/tokens');
  t.regex(list, /<th scope="row"[^>]*>\s*<a href="\/console\/tokens\/[0-9a-f-]{36}">ci &lt;b&gt;<\/a/);
  t.regex(list, /Contoso\.\*, Fabrikam/);
  t.regex(list, /in 29 days|in 30 days/);
  t.false(list.includes(value), 'the list never shows a value');
  const { items } = (await (await server.fetch('/v1/tokens')).json()) as { items: { id: string; name: string }[] };
  const { id } = items.find(({ name }) => name.startsWith('ci'))!;
  const confirm = await visitor.page(`/console/tokens/revoke?id=${id}`);
  t.regex(confirm, /ci &lt;b&gt;.*just now/s);
  t.is((await server.fetch('/v1/account', { token: value })).status, 200, 'showing the page revokes nothing');
  const revoked = await visitor.send('/console/tokens/revoke', { id });
  t.is(leadsTo(revoked), '/console/tokens (tokens-revoked)');
  t.is((await server.fetch('/v1/account', { token: value })).status, 401);
  t.regex(await visitor.page('/console/tokens'), /role="status">[^<]*Revoked/);
});

test('the form for a token says when the own token of the visitor expires', async (t) => {
  const server = await startTestServer(t);
  const make = async (name: string, more: object) => {
    const body = JSON.stringify({ name, scopes: ['read', 'admin'], ...more });
    const headers = { 'content-type': 'application/json' };
    const response = await server.fetch('/v1/tokens', { method: 'POST', headers, body });
    return Visitor.signedIn(server, ((await response.json()) as { token: string }).token);
  };
  const expires = new Date(Date.now() + 86_400_000).toISOString();
  const page = await (await make('for a day', { expires_at: expires })).page('/console/tokens/new');
  t.true(page.includes(`Your own token expires at ${expires}.`));
  t.notRegex(await (await make('without an end', {})).page('/console/tokens/new'), /Your own token expires/);
});

test('a wrong form shows its errors beside the fields, and keeps the input', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  const page = await visitor.refused('/console/tokens/new', { name: ' ', days: '7', packages: 'My.*' });
  t.regex(page, /id="name-error"[^>]*>must not be empty</);
  t.regex(page, /id="scopes-error"/);
  for (const days of ['x', '1e20', '-1', '']) {
    const wrong = await visitor.refused('/console/tokens/new', { name: 'ci', scope: 'read', days });
    t.regex(wrong, /id="(?:expires_at-error|form-error)"/, `${days} days`);
  }
  t.regex(page, /value="My\.\*"/);
  t.regex(page, /<option value="7" selected/);
  t.regex(
    await visitor.refused('/console/tokens/new', { name: 'a', scope: 'read', packages: 'a'.repeat(300) }),
    /field-error/,
  );
  t.regex(
    await visitor.refused('/console/tokens/new', { name: 'a'.repeat(201), scope: 'read' }),
    /id="name-error"[^>]*>expected at most 200 characters</,
  );
  t.is((await visitor.send('/console/tokens/new', { name: 'a'.repeat(70_000) })).status, 413);
});

test('a visitor without admin sees no tokens, and cannot create or revoke one', async (t) => {
  const server = await startTestServer(t);
  const { value } = await createToken(server, ['read', 'write']);
  const visitor = await Visitor.signedIn(server, value);
  t.notRegex(await visitor.page('/console/connect'), />Tokens<\/a>/);
  for (const path of ['/console/tokens', '/console/tokens/new', '/console/tokens/revoke?id=x', '/console/sessions/x']) {
    const response = await visitor.fetch(path);
    t.is(response.status, 403, path);
    t.regex(await response.text(), /scope &quot;admin&quot;/);
    t.is(
      (await visitor.send(path.split('?')[0]!, { name: 'x', scope: 'read', id: 'x' })).status,
      path.endsWith('tokens') ? 404 : 403,
    );
  }
});

test('nobody gives operate without having it', async (t) => {
  const server = await startTestServer(t);
  const { value } = await createToken(server, ['read', 'admin']);
  const visitor = await Visitor.signedIn(server, value);
  t.notRegex(await visitor.page('/console/tokens/new'), /value="operate"/);
  const response = await visitor.send('/console/tokens/new', { name: 'x', scope: 'operate' });
  t.is(response.status, 403);
});

test('a token that may not be revoked keeps no other one valid, and the page says what was refused', async (t) => {
  const server = await startTestServer(t);
  const made = [
    await createToken(server, ['read']),
    await createToken(server, ['operate']),
    await createToken(server, ['write']),
  ];
  const visitor = await Visitor.signedIn(server, (await createToken(server, ['read', 'admin'])).value);
  const sent = await visitor.send(
    '/console/tokens/revoke',
    made.map(({ token }): [string, string] => ['id', token.id]),
  );
  t.is(sent.status, 403);
  const page = await sent.text();
  t.regex(wordsOf(page), /Done: 2 of 3\. Not done: a test : This token lacks the scope &quot;operate&quot;\./);
  const valid = await Promise.all(
    made.map(async ({ value }) => (await server.fetch('/v1/me', { token: value })).status === 200),
  );
  t.deepEqual(valid, [false, true, false]);
});

test('sessions are listed and ended; a limited token sees only its own', async (t) => {
  const server = await startTestServer(t);
  const first = await Visitor.signedIn(server);
  const second = await Visitor.signedIn(server);
  const made = await server.fetch('/v1/tokens', {
    method: 'POST',
    body: JSON.stringify({ name: 'limited', scopes: ['admin'], patterns: { packages: ['A.*'] } }),
    headers: { 'content-type': 'application/json' },
  });
  const { token } = (await made.json()) as { token: string };
  const sessions = async (asked?: string) => {
    const response = await server.fetch('/v1/sessions', asked === undefined ? {} : { token: asked });
    return ((await response.json()) as { items: { id: string }[] }).items;
  };
  const all = await sessions();
  t.is(all.length, 2);
  t.regex(await first.page('/console/tokens'), /<a href="\/console\/tokens\/[\w-]{36}">first token<\/a><\/td>/);
  t.deepEqual(await sessions(token), []);
  t.is((await server.fetch(`/v1/sessions/${all[0]!.id}`, { method: 'DELETE', token })).status, 404);
  const [own] = /\/console\/sessions\/([\w-]+)(?="[^]*?this one)/.exec(await first.page('/console/tokens')) ?? [];
  t.truthy(own);
  for (const { id } of all) t.is((await first.send(`/console/sessions/${id}`, {})).status, 303);
  t.is((await second.fetch('/console/connect')).status, 303, 'ended');
  t.is((await first.fetch('/console/connect')).status, 303);
});

const wordsOf = (page: string) => page.replace(/<[^>]+>/g, ' ').replace(/\s+/g, ' ');

test('a token that was found is traced: who made it, from where it was used, and what it did', async (t) => {
  const server = await startTestServer(t);
  const document = await OpenDocument.of(server);
  const { token, value } = await createToken(server, ['read', 'write']);
  const { value: other } = await createToken(server, ['read', 'admin'], 'other');
  const feed = new TestFeed(server, value);
  await feed.publish({ id: 'Traced', version: '1.0.0' });
  for (const agent of ['curl/8', 'NuGet/7', 'NuGet/7']) {
    const path = '/v3/package/traced/1.0.0/traced.1.0.0.nupkg';
    await (await server.fetch(path, { token: value, headers: { 'user-agent': agent } })).arrayBuffer();
  }
  t.is((await server.fetch('/v3/package/none/index.json', { token: value })).status, 404);
  const session = await Visitor.signedIn(server, value);
  const browser = { 'user-agent': 'a-browser/1' };
  t.is((await session.fetch('/console/', { headers: browser })).status, 200);
  await Visitor.signedIn(server);
  const opened = async (query: string) => {
    const answer = await server.fetch(`/v1/sessions${query}`);
    const list = await document.read('GET /sessions', answer);
    return (list as { items: { token_name: string }[] }).items.map(({ token_name: name }) => name);
  };
  t.deepEqual(await opened(`?token_id=${token.id}`), [token.name]);
  t.is((await opened('')).length, 2);

  const find = async (text: string, as = server.token) => {
    const init = { method: 'POST', body: JSON.stringify({ token: text }), token: as };
    const response = await server.fetch('/v1/tokens/find', {
      ...init,
      headers: { 'content-type': 'application/json' },
    });
    if (response.status !== 200) return response.status;
    const list = await document.read('POST /tokens/find', response);
    return (list as { items: { id: string }[] }).items.map(({ id }) => id);
  };
  t.deepEqual(await find(value), [token.id]);
  t.deepEqual(await find(value.slice(0, 8)), [token.id]);
  t.deepEqual(await find(` ${value.slice(0, 20)} `), [token.id]);
  t.deepEqual(await find(`${value.slice(0, 39)}${value.endsWith('0') ? '1' : '0'}`), [], 'another whole token');
  t.is(await find(value.slice(0, 7)), 400);
  t.deepEqual(await find(value, other), [], 'of another account');
  t.is(await find(value, value), 403);

  const uses = await document.read('GET /uses', await server.fetch(`/v1/uses?token_id=${token.id}&kind=package`));
  t.like((uses as { items: unknown[] }).items, [{ name: 'traced', downloads: 3, uploads: 1, token_name: token.name }]);
  t.is((await server.fetch('/v1/uses?kind=package')).status, 400);
  const asked = await (await Visitor.signedIn(server)).page(`/console/tokens/revoke?id=${token.id}`);
  t.regex(asked, /3 downloads and 1 upload so far, of 1 name used in the last 30 days/);
  const limited = (await createToken(server, ['read', 'admin'], 'default', { packages: ['Ours.*'] })).value;
  const seen = await server.fetch('/v1/uses?kind=package&name=TRACED', { token: limited });
  t.deepEqual(((await seen.json()) as { items: unknown[] }).items, []);
  const narrow = await createToken(server, ['read'], 'default', { packages: ['Traced'] });
  t.is((await server.fetch('/v3/package/traced/index.json', { token: narrow.value })).status, 200);
  const file = '/v3/package/traced/1.0.0/traced.1.0.0.nupkg';
  await (await server.fetch(file, { token: narrow.value })).arrayBuffer();
  const within = (await createToken(server, ['read', 'admin'], 'default', { packages: ['Trac*'] })).value;
  const usersFor = async (as: string, query: string) => {
    const list = await document.read('GET /uses', await server.fetch(`/v1/uses?${query}`, { token: as }));
    return (list as { items: { name: string; token_id: string }[] }).items.map(({ token_id: id }) => id);
  };
  const byName = 'kind=package&name=traced';
  t.deepEqual((await usersFor(server.token, byName)).toSorted(), [token.id, narrow.token.id].toSorted());
  t.deepEqual(await usersFor(within, byName), [narrow.token.id], 'a limited administrator sees limited tokens');
  for (const kind of ['package', 'client']) {
    t.deepEqual(await usersFor(within, `kind=${kind}&token_id=${narrow.token.id}`), [narrow.token.id], kind);
    t.deepEqual(await usersFor(within, `kind=${kind}&token_id=${token.id}`), [], kind);
    t.deepEqual(await usersFor(limited, `kind=${kind}&token_id=${narrow.token.id}`), [], kind);
  }
  t.is((await server.fetch(`/v1/uses?${byName}&token_id=${token.id}`)).status, 400, 'only one of both');

  const visitor = await Visitor.signedIn(server);
  const found = await visitor.send('/console/tokens/find', { token: value });
  t.is(found.headers.get('location'), `/console/tokens/${token.id}`);
  const page = wordsOf(await visitor.page(`/console/tokens/${token.id}`));
  t.regex(page, /State valid/);
  t.regex(page, /Who is signed in to the console with it .*127\.0\.0\.1/);
  t.regex(page, /From where, in the last 30 days[^]*127\.0\.0\.1 NuGet\/7/);
  t.regex(page, /127\.0\.0\.1 curl\/8/);
  t.notRegex(page, /a-browser/, 'sessions are listed by themselves');
  t.regex(page, /traced package 3 1 just now/);
  t.regex(page, /What it changed[^]*A version was published[^]*What happened to it[^]*A token was created/);
  t.notRegex(page, /the token that you use now/);
  t.regex(
    wordsOf(await visitor.page(`/console/failures?token_id=${token.id}`)),
    /none 404 The package none does not exist in this feed/,
  );
  const failures = await visitor.page(`/console/failures?token_id=${token.id}&code=NotFound`);
  t.true(failures.includes(`name="token_id" type="search" maxlength="100" value="${token.id}"`), 'the filter stays');
  t.regex(failures, /name="code" type="search" maxlength="100" value="NotFound"/);
  t.notRegex(await visitor.page('/console/failures'), /name="(?:token_id|code)"/);
  t.regex(await visitor.refused('/console/tokens/find', { token: 'ent_0000' }), /No token of this account/);
  t.regex(await visitor.refused('/console/tokens/find', { token: 'x' }), /id="token-error"/);
  t.is((await visitor.fetch('/console/tokens/00000000-0000-4000-8000-000000000000')).status, 404);

  const named = await server.fetch('/v1/tokens?name=FIRST&sort=used&total=1');
  const { items, total } = (await named.json()) as { items: { id: string }[]; total: object };
  t.deepEqual([items.length, total], [1, { count: 1 }]);
  const own = await visitor.page(`/console/tokens/revoke?id=${items[0]!.id}`);
  t.regex(own, /the token that you use now/);
  t.regex(own, /No other token of this account has the scope admin/, 'a limited administrator is none');
  for (const others of [{ personId: 'person-that-left' }, { publisherId: 'a-rule', expiresAt: Date.now() + 900_000 }]) {
    const name = Object.keys(others)[0]!;
    await new Tokens(databaseOf(server), Date.now).create(defaultAccountOf(server), {
      name,
      scopes: ['admin'],
      ...others,
    });
    const again = await visitor.page(`/console/tokens/revoke?id=${items[0]!.id}`);
    t.regex(again, /No other token of this account has the scope admin/, `a token with a ${name} is none`);
  }
  t.notRegex(await visitor.page(`/console/tokens/revoke?id=${token.id}`), /No other token|that you use now/);
  t.regex(await visitor.page('/console/tokens?name=nothing'), /Nothing matches/);
});

test('only the latest twenty clients of a token are kept, and its uses for 30 days', async (t) => {
  const server = await startTestServer(t);
  server.clock.now = Date.now();
  const ask = (agent: string) => server.fetch('/v1/account', { headers: { 'user-agent': agent } });
  const clients = async () => {
    const { items } = (await (await server.fetch('/v1/tokens?limit=1')).json()) as { items: { id: string }[] };
    const list = await server.fetch(`/v1/uses?kind=client&token_id=${items[0]!.id}`, {
      headers: { 'user-agent': 'x' },
    });
    return ((await list.json()) as { items: { name: string }[] }).items.map(({ name }) => name.split(' ')[1]!);
  };
  for (let number = 0; number < 30; number += 1) {
    server.clock.now += 1000;
    await (await ask(`agent-${number}`)).arrayBuffer();
    if (number % 10 === 0) await clients();
  }
  const kept = await clients();
  t.true(kept.length <= 21, String(kept));
  t.true(kept.includes('agent-29') && kept.includes('agent-15') && !kept.includes('agent-3'), String(kept));
  server.clock.now += 30 * 86_400_000;
  await usesOf(server).deleteOld();
  t.false((await clients()).includes('agent-29'));
});

test('what was counted a moment ago is in each of several answers at the same time', async (t) => {
  const server = await startTestServer(t);
  const { token, value } = await createToken(server, ['read', 'write']);
  await new TestFeed(server, value).publish({ id: 'Traced', version: '1.0.0' });
  const answers = await Promise.all(
    ['package', 'client', 'package'].map(async (kind) => {
      const response = await server.fetch(`/v1/uses?kind=${kind}&token_id=${token.id}`);
      return ((await response.json()) as { items: object[] }).items.length;
    }),
  );
  t.deepEqual(answers, [1, 1, 1]);
});
