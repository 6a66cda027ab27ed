import test from 'ava';
import { createToken } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { Visitor } from '../support/visitor.ts';

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
  t.regex(list, /<th scope="row">ci &lt;b&gt;<\/th>/);
  t.regex(list, /Contoso\.\*, Fabrikam/);
  t.regex(list, /in 29 days|in 30 days/);
  t.false(list.includes(value), 'the list never shows a value');
  const { items } = (await (await server.fetch('/v1/tokens')).json()) as { items: { id: string; name: string }[] };
  const { id } = items.find(({ name }) => name.startsWith('ci'))!;
  const confirm = await visitor.page(`/console/tokens/revoke?id=${id}`);
  t.regex(confirm, /ci &lt;b&gt;.*just now/s);
  t.is((await server.fetch('/v1/account', { token: value })).status, 200, 'showing the page revokes nothing');
  const revoked = await visitor.send('/console/tokens/revoke', { id });
  t.is(revoked.headers.get('location'), '/console/tokens?done=tokens-revoked');
  t.is((await server.fetch('/v1/account', { token: value })).status, 401);
  t.regex(await visitor.page('/console/tokens?done=tokens-revoked'), /role="status">[^<]*Revoked/);
});

test('a wrong form shows its errors beside the fields, and keeps the input', async (t) => {
  const server = await startTestServer(t);
  const visitor = await Visitor.signedIn(server);
  const response = await visitor.send('/console/tokens/new', { name: ' ', days: '7', packages: 'My.*' });
  t.is(response.status, 422);
  const page = await response.text();
  t.regex(page, /id="name-error"/);
  t.regex(page, /id="scopes-error"/);
  t.regex(page, /value="My\.\*"/);
  t.regex(page, /<option value="7" selected/);
  const tooLong = await visitor.send('/console/tokens/new', { name: 'a', scope: 'read', packages: 'a'.repeat(300) });
  t.is(tooLong.status, 422);
  t.regex(await tooLong.text(), /field-error/);
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
  t.deepEqual(await sessions(token), []);
  t.is((await server.fetch(`/v1/sessions/${all[0]!.id}`, { method: 'DELETE', token })).status, 404);
  const [own] = /\/console\/sessions\/([\w-]+)(?="[^]*?this one)/.exec(await first.page('/console/tokens')) ?? [];
  t.truthy(own);
  for (const { id } of all) t.is((await first.send(`/console/sessions/${id}`, {})).status, 303);
  t.is((await second.fetch('/console/connect')).status, 303, 'ended');
  t.is((await first.fetch('/console/connect')).status, 303);
});
