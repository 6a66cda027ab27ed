import test from 'ava';
import { afterRead, databaseOf, tokenOf } from '../support/inside.ts';
import { instancesOf } from '../support/instances.ts';
import { startIssuer } from '../support/issuer.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { OpenDocument } from '../support/open-document.ts';
import { allowLoopback, ask, startReceiver } from '../support/receiver.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { Visitor } from '../support/visitor.ts';
import { createRule, exchange, fromRepository, refusalOf, sendJson, startPair, type Json } from './support.ts';

const minute = 60_000;
const day = 86_400_000;

const create = (server: TestServer, body: Json, token?: string) =>
  sendJson(server, 'POST', '/v1/tokens', { name: 'made', scopes: ['read'], ...body }, token);

/** The token that `server` makes; throws if it refuses. */
async function made(server: TestServer, body: Json, token?: string): Promise<Json> {
  const response = await create(server, body, token);
  if (response.status !== 201) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as Json;
}

test('what a token of a rule makes ends with it at the latest, and with the rule', async (t) => {
  const { server, issuer } = await startPair(t, allowLoopback);
  const receiver = await startReceiver(t);
  server.clock.now = Math.ceil(Date.now() / 1000) * 1000;
  const rule = await createRule(server, { scopes: ['read', 'admin'] });
  const other = await createRule(server, { name: 'other', claims: { repository_id: '7' } });
  const webhook = (await (await ask(server, 'POST', '', { url: receiver.url, events: ['package.*'] })).json()) as Json;
  const token = (await exchange(server, await issuer.sign(fromRepository))).body['access_token'] as string;
  const end = new Date(server.clock.now + 15 * minute).toISOString();
  server.clock.now += 10 * minute;

  const child = await made(server, { scopes: ['read', 'admin'] }, token);
  t.like(child, { expires_at: end, publisher_id: rule['id'], created_by: { kind: 'rule', name: 'main of app' } });
  const sooner = new Date(server.clock.now + minute).toISOString();
  t.is((await made(server, { expires_at: sooner }, token))['expires_at'], sooner);
  const value = child['token'] as string;
  for (const each of [token, value]) {
    const later = await create(server, { expires_at: new Date(server.clock.now + 6 * minute).toISOString() }, each);
    t.is(later.status, 400);
    t.true((await later.text()).includes(end), 'the message names the latest time');
    t.is((await made(server, {}, each))['expires_at'], end);
    const body = { name: 'r', issuer: 'github', claims: { repository_id: '1' }, scopes: ['read'] };
    for (const [method, path] of [
      ['POST', '/v1/publishers'],
      ['PUT', `/v1/publishers/${String(other['id'])}`],
    ] as const) {
      const refused = await sendJson(server, method, path, body, each);
      t.is(refused.status, 403, path);
      t.regex(await refused.text(), /ends soon/);
    }
    const hook = { url: receiver.url, events: ['*'] };
    t.is((await ask(server, 'POST', '', hook, each)).status, 403);
    const plain = await tokenOf(server, ['admin']);
    t.is((await ask(server, 'POST', '', hook, plain)).status, 201, 'a token without an end');
    t.is((await ask(server, 'PATCH', `/${String(webhook['id'])}`, { url: `${receiver.url}/x` }, each)).status, 403);
  }
  const visitor = await Visitor.signedIn(server, value);
  await visitor.refused('/console/tokens/new', { name: 'x', scope: 'read', days: '365' });
  t.is((await visitor.send('/console/tokens/new', { name: 'x', scope: 'read', days: '0' })).status, 201);

  const works = async () => (await server.fetch('/v1/account', { token: value })).status;
  t.is(await works(), 200);
  t.is((await server.fetch(`/v1/publishers/${String(rule['id'])}`, { method: 'DELETE' })).status, 204);
  t.is(await works(), 401, 'it was made by a token of the rule');
});

test('a token with an end makes none that outlives it, and all tokens say who made them', async (t) => {
  const server = await startTestServer(t, {
    trustedIssuers: [{ name: 'ci', issuer: 'https://ci.example', audience: 'a' }],
  });
  server.clock.now = Math.ceil(Date.now() / 1000) * 1000;
  const end = new Date(server.clock.now + 30 * day).toISOString();
  const admin = await made(server, { name: 'admin', scopes: ['read', 'admin'], expires_at: end });
  const value = admin['token'] as string;
  const child = await made(server, {}, value);
  t.is(child['expires_at'], end);
  t.is((await made(server, { expires_at: end }, value))['expires_at'], end, 'at the same time');
  t.is((await create(server, { expires_at: new Date(server.clock.now + 31 * day).toISOString() }, value)).status, 400);
  t.is((await made(server, {}))['expires_at'], null);
  const rule = { name: 'r', issuer: 'ci', claims: { sub: 'x' }, scopes: ['read'] };
  t.is((await sendJson(server, 'POST', '/v1/publishers', rule, value)).status, 201, 'it does not end soon');
  const short = await made(server, { scopes: ['admin'], expires_at: new Date(server.clock.now + day).toISOString() });
  const again = await sendJson(server, 'POST', '/v1/publishers', { ...rule, name: 's' }, short['token'] as string);
  t.is(again.status, 403);

  const document = await OpenDocument.of(server);
  const shown = await document.read('GET /tokens/{id}', await server.fetch(`/v1/tokens/${String(child['id'])}`));
  t.deepEqual(shown['created_by'], { kind: 'token', id: admin['id'], name: 'admin' });
  const visitor = await Visitor.signedIn(server);
  t.regex(await visitor.page('/console/tokens'), /<td[^>]*>admin<\/td>/);
  await databaseOf(server).transaction((tx) => tx.run('UPDATE tokens SET created_by = NULL'));
  const list = await document.read('GET /tokens', await server.fetch('/v1/tokens'));
  t.true(
    (list['items'] as Json[]).every((each) => each['created_by'] === null),
    'of an older version',
  );
});

test('a rule trusts the address of its issuer, whatever the settings call it', async (t) => {
  const first = await startPair(t);
  const { issuer } = first;
  await createRule(first.server, { scopes: ['read'] });
  await createRule(first.server, { name: 'of before', claims: { repository_id: '200' } });
  await databaseOf(first.server).transaction((tx) =>
    tx.run("UPDATE publishers SET issuer_url = NULL WHERE name = 'of before'"),
  );
  const { data } = first.server;
  const restart = async (trustedIssuers: object[]) => {
    await running.close();
    running = await startTestServer(t, { data, trustedIssuers });
    return running;
  };
  let running = first.server;
  const rules = async () =>
    ((await (await running.fetch('/v1/publishers')).json()) as { items: Json[] }).items.map(
      ({ name, issuer: found, issuer_url, warnings }) => ({ name, issuer: found, issuer_url, warnings }),
    );
  await restart([issuer.trusted()]);
  t.deepEqual(
    (await rules()).map(({ issuer_url }) => issuer_url),
    [issuer.url, issuer.url],
    'the first start fills it in',
  );
  await restart([issuer.trusted({ name: 'renamed', kind: 'github' })]);
  t.like((await rules())[0], { issuer: 'renamed', issuer_url: issuer.url, warnings: [] });
  t.is((await exchange(running, await issuer.sign(fromRepository))).status, 200);
  t.is((await exchange(running, await issuer.sign({ ...fromRepository, repository_id: '200' }))).status, 200);

  const { issuer: stranger } = await startPair(t);
  await restart([stranger.trusted()]);
  t.is((await exchange(running, await stranger.sign(fromRepository))).status, 400, 'it only has the name');
  const [rule] = await rules();
  t.is(rule!.issuer, 'github');
  t.regex((rule!.warnings as string[]).join(), new RegExp(`no issuer with the address ${issuer.url} any more`));
});

for (const dialect of dialects) {
  test(`${dialect}: a rule that an older version gave another issuer trusts only that one`, async (t) => {
    const { issuer: other } = await startPair(t);
    const database = { url: await temporaryDatabase(t, dialect) };
    const { server, issuer } = await startPair(t, { database });
    const settings = [issuer.trusted(), other.trusted({ name: 'other', kind: 'github' })];
    const { data } = server;
    await createRule(server, { scopes: ['read'] });
    await createRule(server, { name: 'same', claims: { repository_id: '200' } });
    await server.close();
    let running = await startTestServer(t, { data, database, trustedIssuers: settings });
    const sql = "UPDATE publishers SET issuer = 'other', updated_at = updated_at + 1 WHERE name = 'main of app'";
    await databaseOf(running).transaction((tx) => tx.run(sql));
    for (const url of [null, other.url]) {
      const { items } = (await (await running.fetch('/v1/publishers')).json()) as { items: Json[] };
      t.like(items[0], { issuer: 'other', issuer_url: url, warnings: [] });
      t.like(items[1], { issuer: 'github', issuer_url: issuer.url });
      t.is((await exchange(running, await issuer.sign(fromRepository))).status, 400);
      t.is((await exchange(running, await other.sign(fromRepository))).status, 200);
      if (url !== null) continue;
      await running.close();
      running = await startTestServer(t, { data, database, trustedIssuers: settings });
    }
  });
}

test('rules for GitLab that accept unprotected branches and pipelines of forks say so', async (t) => {
  const { server } = await startPair(t, {}, { name: 'gitlab', kind: 'gitlab' });
  const warnings = async (claims: Json) => {
    const rule = await createRule(server, { name: JSON.stringify(claims), issuer: 'gitlab', claims });
    return (rule['warnings'] as string[]).join('\n');
  };
  const open = /unprotected branch[^]*merge request from a fork[^]*ref_protected = true/;
  t.regex(await warnings({ project_id: '1' }), open);
  t.regex(await warnings({ project_id: '1', ref_protected: ['true', 'false'] }), open);
  t.is(await warnings({ project_id: '1', ref_protected: 'true' }), '');
  const wide = await warnings({ namespace_id: '1', ref_protected: true });
  t.regex(wide, /Every project of the namespace, also a new fork/);
});

for (const dialect of dialects) {
  test(`${dialect}: a rule that one instance changes or deletes gives nothing at the others, at once`, async (t) => {
    const issuer = await startIssuer(t);
    const start = await instancesOf(t, dialect);
    const settings = { trustedIssuers: [issuer.trusted()] };
    const [a, b] = [await start(settings), await start(settings)];
    const { id } = await createRule(a, { scopes: ['read', 'admin'] });
    const path = `/v1/publishers/${String(id)}`;
    const give = async (server: TestServer) => {
      const { status, body } = await exchange(server, await issuer.sign(fromRepository));
      t.is(status, 200);
      return body['access_token'] as string;
    };
    /** Tokens that both instances have in memory: of the rule, of such a token, and a session. */
    const holders = async () => {
      const token = await give(b);
      const child = (await made(a, { scopes: ['read'] }, token))['token'] as string;
      const visitor = await Visitor.signedIn(b, child);
      const statuses = async () => {
        const found: number[] = [];
        for (const each of [token, child])
          for (const server of [b, a]) found.push((await server.fetch('/v1/account', { token: each })).status);
        return [...found, (await visitor.fetch('/console/connect')).status];
      };
      t.deepEqual(await statuses(), [200, 200, 200, 200, 200]);
      return statuses;
    };
    const ended = [401, 401, 401, 401, 303];

    const first = await holders();
    const narrowed = { name: 'narrow', issuer: 'github', claims: { repository_id: '7' }, scopes: ['read'] };
    t.is((await sendJson(a, 'PUT', path, narrowed)).status, 200);
    t.deepEqual(await first(), ended);
    for (const server of [b, a]) t.regex(await refusalOf(server, await issuer.sign(fromRepository)), /^400 /);
    const wide = { ...narrowed, claims: { repository_id: '100' }, scopes: ['read', 'admin'] };
    t.is((await sendJson(a, 'PUT', path, wide)).status, 200);

    const second = await holders();
    t.is((await a.fetch(path, { method: 'DELETE' })).status, 204);
    t.deepEqual(await second(), ended);
    for (const server of [b, a]) t.regex(await refusalOf(server, await issuer.sign(fromRepository)), /No rule of this/);
  });

  test(`${dialect}: a rule that is changed or deleted while a token is exchanged gives none`, async (t) => {
    const { server, issuer } = await startPair(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const count = async () =>
      (await databaseOf(server).select('SELECT id FROM tokens WHERE publisher_id IS NOT NULL')).length;
    for (const method of ['PUT', 'DELETE']) {
      const { id } = await createRule(server);
      const path = `/v1/publishers/${String(id)}`;
      const rule = { name: 'narrow', issuer: 'github', claims: { repository_id: '7' }, scopes: ['read'] };
      let status: number | undefined;
      afterRead(server, 'FROM publishers WHERE id IN', async () => {
        ({ status } = await (method === 'PUT' ? sendJson(server, method, path, rule) : server.fetch(path, { method })));
      });
      t.not((await exchange(server, await issuer.sign(fromRepository))).status, 200, method);
      t.is(status, method === 'PUT' ? 200 : 204);
      t.is(await count(), 0, method);
    }
  });
}
