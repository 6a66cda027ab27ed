import test from 'ava';
import { auditOf } from '../support/audit.ts';
import { createToken, databaseOf, defaultAccountOf, tokenOf } from '../support/inside.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { sendJson, type Json } from './support.ts';

async function grant(server: TestServer, body: Json, token?: string): Promise<string> {
  const answer = await sendJson(server, 'POST', '/v1/grants', body, token);
  if (answer.status !== 201) throw new Error(`${answer.status} ${await answer.text()}`);
  return ((await answer.json()) as { id: string }).id;
}

const toDefault = { subject: { kind: 'account', id: 'default' }, verbs: ['read'], packages: ['A.*'] };
const accept = (server: TestServer, id: string) => sendJson(server, 'POST', `/v1/grants/${id}/accept`, {});

/** Adds `count` grants to the table. */
async function insertGrants(server: TestServer, count: number, more: Json): Promise<void> {
  const row = { issuer: null, verbs: 'read', patterns: null, created_by: '{"kind":"system"}', created_at: 1 };
  await databaseOf(server).transaction(async (tx) => {
    for (let number = 0; number < count; number += 1)
      await tx.insert('grants', { id: `grant-${number}`, ...row, ...more });
  });
}

test('an account has at most 2,000 grants, with 5,000 patterns in all', async (t) => {
  const server = await startTestServer(t);
  const body = { subject: { kind: 'group', id: 'more' }, verbs: ['read'], packages: ['A'] };
  const subject = {
    account_id: defaultAccountOf(server),
    subject_kind: 'person',
    issuer: 'https://a',
    subject_id: 'x',
  };
  const person = { ...body, subject: { ...body.subject, issuer: 'https://a' } };
  const add = () => sendJson(server, 'POST', '/v1/grants', person);
  await insertGrants(server, 1999, subject);
  t.is((await add()).status, 201);
  const refused = await add();
  t.is(refused.status, 403);
  t.regex(await refused.text(), /at most 2000 grants, with 5000 patterns/);

  await databaseOf(server).transaction((tx) => tx.run('DELETE FROM grants'));
  const patterns = JSON.stringify({ packages: Array.from({ length: 50 }, (_, number) => `P${number}`) });
  await insertGrants(server, 99, { ...subject, patterns });
  const most = { ...person, packages: Array.from({ length: 49 }, (_, number) => `P${number}`) };
  t.is((await sendJson(server, 'POST', '/v1/grants', most)).status, 201);
  t.is((await add()).status, 201, 'the last of 5,000 patterns');
  t.is((await add()).status, 403);
});

test('an account accepts at most 200 grants of others, each of them once', async (t) => {
  const server = await startTestServer(t);
  const { token, value: from } = await createToken(server, ['admin'], 'from');
  const [first, second] = [await grant(server, toDefault, from), await grant(server, toDefault, from)];
  const [{ account_id: sharing }] = (await databaseOf(server).select<{ account_id: number }>(
    'SELECT account_id FROM tokens WHERE id = ?',
    [token.id],
  )) as [{ account_id: number }];
  const accepted = { subject_kind: 'account', subject_id: 'default', accepted_at: 1 };
  await insertGrants(server, 199, { account_id: sharing, ...accepted });
  t.is((await accept(server, first)).status, 200);
  t.is((await accept(server, first)).status, 200, 'it is accepted already');
  const own = await tokenOf(server, ['admin']);
  t.is((await auditOf(server, 'type=grant.accepted', own)).length, 1);
  t.is((await accept(server, second)).status, 403);
});

test('an account hears of what another one does with a grant from its acceptance on, and not who did it', async (t) => {
  const server = await startTestServer(t);
  const from = await tokenOf(server, ['admin'], 'from');
  const own = await tokenOf(server, ['admin']);
  const shown = async (token: string) =>
    (await auditOf(server, 'type=grant.*', token)).map(({ type, actor }) => [type, actor.kind]);
  const remove = (id: string) => server.fetch(`/v1/grants/${id}`, { method: 'DELETE', token: from });
  t.is((await remove(await grant(server, toDefault, from))).status, 204);
  t.deepEqual(await shown(own), [], 'one that this account has not accepted');
  const id = await grant(server, toDefault, from);
  await accept(server, id);
  await remove(id);
  const [accepted, removed] = ['grant.accepted', 'grant.removed'];
  t.deepEqual(await shown(own), [
    [accepted, 'token'],
    [removed, 'system'],
  ]);
  t.deepEqual(await shown(from), [
    ['grant.created', 'token'],
    [removed, 'token'],
    ['grant.created', 'token'],
    [accepted, 'system'],
    [removed, 'token'],
  ]);
  const unwanted = await grant(server, toDefault, from);
  t.is((await server.fetch(`/v1/grants/${unwanted}`, { method: 'DELETE', token: own })).status, 204);
  t.deepEqual((await shown(own)).at(-1), [removed, 'token'], 'this account ends one that it has not accepted');
  t.deepEqual((await shown(from)).at(-1), [removed, 'system']);
});

test('a grant is for a valid token of the account, and its texts have bounds', async (t) => {
  const server = await startTestServer(t);
  server.clock.now = Date.now();
  const status = async (subject: Json) =>
    (await sendJson(server, 'POST', '/v1/grants', { subject, verbs: ['read'] })).status;
  const ofToken = (id: string) => status({ kind: 'token', id });
  const { token: own } = await createToken(server, ['read']);
  const { token: other } = await createToken(server, ['read'], 'other');
  t.deepEqual([await ofToken(own.id), await ofToken(other.id)], [201, 400]);
  t.is((await server.fetch(`/v1/tokens/${own.id}`, { method: 'DELETE' })).status, 204);
  t.is(await ofToken(own.id), 400, 'it is revoked');
  const issuer = 'https://a';
  for (const [length, expected] of [
    [0, 400],
    [255, 201],
    [256, 400],
  ] as const)
    t.is(await status({ kind: 'person', issuer, id: 'x'.repeat(length) }), expected, `${length} characters`);
  const longest = `https://${'a'.repeat(247)}`;
  t.is(await status({ kind: 'person', issuer: longest, id: 'y' }), 201);
  t.is(await status({ kind: 'person', issuer: `${longest}a`, id: 'y' }), 400);

  // All of them were made at one time.
  const seen: string[] = [];
  for (let cursor: string | null = ''; cursor !== null && seen.length < 10;) {
    const page = await server.fetch(`/v1/grants?limit=1${cursor && `&cursor=${cursor}`}`);
    const { items, next_cursor: next } = (await page.json()) as { items: { id: string }[]; next_cursor: string | null };
    seen.push(...items.map(({ id }) => id));
    cursor = next;
  }
  t.deepEqual([seen.length, new Set(seen).size], [3, 3], 'each is on one page');
});

test('a token works again after its grants could not be read once', async (t) => {
  const server = await startTestServer(t);
  const { token, value } = await createToken(server, ['read']);
  await grant(server, { subject: { kind: 'token', id: token.id }, verbs: ['write'] });
  const database = databaseOf(server);
  const select = database.select.bind(database);
  database.select = (sql, values) => {
    if (!sql.includes('FROM grants')) return select(sql, values);
    database.select = select;
    return Promise.reject(new Error('the connection is lost'));
  };
  const status = async () => (await server.fetch('/v1/packages', { token: value })).status;
  t.deepEqual([await status(), await status()], [500, 200]);
});
