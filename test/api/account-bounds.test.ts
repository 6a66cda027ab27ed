import { randomUUID } from 'node:crypto';
import test from 'ava';
import type { Row } from '../../src/database/database.ts';
import { auditOf, said } from '../support/audit.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { createToken, databaseOf, defaultAccountOf, rowsOf, tokenOf } from '../support/inside.ts';
import { TestRepository } from '../support/registry.ts';
import { startTestServer, type TestServer } from '../support/server.ts';
import { untilStored } from '../support/stored-bytes.ts';
import { eventually } from '../support/until.ts';

async function addTokens(server: TestServer, count: number, more: Row = {}): Promise<void> {
  const rows = Array.from({ length: count }, (): Row => {
    const [id, account] = [randomUUID(), defaultAccountOf(server)];
    const row = { id, account_id: account, name: 'many', token_prefix: 'ent_many', hash: id, scopes: 'read' };
    return { ...row, created_at: 1, ...more };
  });
  await databaseOf(server).transaction(async (tx) => {
    for (let from = 0; from < count; from += 500) await tx.insertNew('tokens', rows.slice(from, from + 500));
  });
}

function make(server: TestServer): Promise<Response> {
  const body = JSON.stringify({ name: 'made', scopes: ['read'] });
  return server.fetch('/v1/tokens', { method: 'POST', body, headers: { 'content-type': 'application/json' } });
}

const madeBy = (kind: string) => JSON.stringify({ kind, id: null, name: null });

for (const dialect of dialects) {
  test(`${dialect}: an account has 1,000 valid tokens, and 2,000 rows of tokens`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    await addTokens(server, 998);
    await addTokens(server, 3, { revoked_at: 2 });
    await addTokens(server, 3, { expires_at: 2 });
    // Those of rules have a limit of their own.
    await addTokens(server, 3, { publisher_id: 'rule', expires_at: Date.now() + 60_000 });
    t.is((await make(server)).status, 201);
    const refused = await make(server);
    t.is(refused.status, 403);
    t.like(await refused.json(), { code: 'QuotaExceeded' });
    const entitled = await server.fetch('/v1/grants/entitled?verb=admin&kind=package&name=any');
    t.like(await entitled.json(), { is_complete: false }, 'it looks at 1,000 tokens');
    await databaseOf(server).transaction((tx) => tx.run("UPDATE tokens SET revoked_at = 3 WHERE name = 'made'"));
    await databaseOf(server).transaction((tx) => tx.run("UPDATE tokens SET revoked_at = 1 WHERE name = 'first token'"));
    await addTokens(server, 1000, { revoked_at: 2 });
    await createToken(server, ['read']);
    const numberOf = async (condition: string) => {
      const sql = `SELECT COUNT(*) AS n FROM tokens WHERE publisher_id IS NULL AND ${condition}`;
      return (await rowsOf<{ n: number }>(server, sql))[0]!.n;
    };
    t.is(await numberOf('1 = 1'), 2006 - 500 + 1, '500 that are valid no more are deleted');
    t.is(await numberOf('revoked_at IS NULL AND expires_at IS NULL'), 999);
    t.is(await numberOf("name = 'first token'"), 1, 'it would be made again at the next start');
  });

  test(`${dialect}: tokens that take the name of the first one are deleted as others are`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const ended = { name: 'first token', revoked_at: 2 };
    await addTokens(server, 2000, { ...ended, created_by: madeBy('token') });
    await addTokens(server, 1, { ...ended, created_by: madeBy('system') });
    // An older version did not store who made it.
    await addTokens(server, 1, ended);
    t.is((await make(server)).status, 201);
    const left = await rowsOf(server, "SELECT created_by FROM tokens WHERE name = 'first token' AND revoked_at = 2");
    t.deepEqual(
      [madeBy('token'), madeBy('system'), null].map((each) => left.filter((row) => row['created_by'] === each).length),
      [1500, 1, 1],
    );
  });

  test(`${dialect}: the same push again records no event, and each change does`, async (t) => {
    const server = await startTestServer(t, { database: { url: await temporaryDatabase(t, dialect) } });
    const app = new TestRepository(server, 'app');
    const { bytes, mediaType } = await app.image('v1');
    for (let each = 0; each < 3; each += 1) t.is((await app.put('v1', bytes, mediaType)).status, 201);
    t.is((await app.put('v2', bytes, mediaType)).status, 201);
    await app.image('v1', { annotations: { another: 'image' } });
    t.is((await app.put('v1', bytes, mediaType)).status, 201);
    t.is((await app.put('v1', bytes, mediaType)).status, 201);
    t.deepEqual((await auditOf(server, 'type=image.*')).map(said), [
      'image.pushed app v1',
      'image.pushed app v2',
      'image.pushed app v1',
      'image.pushed app v1',
    ]);
  });
}

test('a repository has at most 100,000 tags', async (t) => {
  const server = await startTestServer(t);
  const app = new TestRepository(server, 'app');
  const { bytes, mediaType } = await app.image('v1');
  // The number of tags is kept with the repository.
  await databaseOf(server).transaction((tx) => tx.run('UPDATE repositories SET tag_count = 99999'));
  t.is((await app.put('v2', bytes, mediaType)).status, 201);
  const refused = await app.put('v3', bytes, mediaType);
  t.is(refused.status, 403);
  t.regex(await refused.text(), /at most 100000 tags/);
  t.is((await app.fetch('manifests/v3')).status, 404, 'it is rolled back');
  t.is((await app.put('v2', bytes, mediaType)).status, 201, 'tags that exist can move');
  t.is((await app.image('v1', { annotations: { another: 'image' } })).mediaType, mediaType);
});

for (const dialect of dialects) {
  test(`${dialect}: many tags and lines of histories count for the storage of an account`, async (t) => {
    const database = { url: await temporaryDatabase(t, dialect) };
    const server = await startTestServer(t, { database, limits: { accountStorage: 2_000_000 } });
    const app = new TestRepository(server, 'app');
    const { bytes, mediaType } = await app.image('v1');
    const pushedAt = Date.now();
    const usage = async (token?: string) => {
      const response = await server.fetch('/v1/account', token === undefined ? {} : { token });
      const { usage } = (await response.json()) as { usage: { storage_bytes: number; storage_as_of: string | null } };
      // A busy server answers the sample of the hour, which was measured before the push.
      return Date.parse(usage.storage_as_of ?? '') > pushedAt ? usage.storage_bytes : undefined;
    };
    const before = (await eventually(usage, (bytes) => bytes !== undefined))!;
    t.true(before < 2000, 'a few rows do not count');
    const account = defaultAccountOf(server);
    const line = { upstream: '', name: 'app', kind: 'tag', reference: 'v1', digest: 'x', seen_at: 1 };
    await databaseOf(server).transaction(async (tx) => {
      await tx.run('UPDATE repositories SET tag_count = 1000');
      // Lines of mirrored content belong to no account.
      for (const id of [account, account, account, 0])
        await tx.insertNew(
          'history',
          Array.from({ length: 500 }, () => ({ account_id: id, ...line })),
        );
    });
    // 1,000 tags and the 2 lines of the push, and 1,500 more.
    const expected = before + 1502 * 500;
    t.is(await eventually(usage, (bytes) => bytes === expected), expected);
    const others = await tokenOf(server, ['read', 'admin'], 'other');
    const bytesOfOthers = () => usage(others);
    t.is(await eventually(bytesOfOthers, (bytes) => bytes !== undefined), 0);
    await databaseOf(server).transaction((tx) => tx.run('UPDATE repositories SET tag_count = 5000'));
    await untilStored(server, 2_000_000);
    t.is((await app.put('v2', bytes, mediaType)).status, 403);
  });
}

test('more tokens are not more quota', async (t) => {
  const server = await startTestServer(t, { limits: { delay: '0s', searchesPerMinute: 1 } });
  server.clock.now = Date.now();
  const statuses: number[] = [];
  for (let each = 0; each < 12; each += 1) {
    const token = await tokenOf(server, ['read']);
    statuses.push((await server.fetch('/v3/search?q=a', { token })).status);
  }
  t.deepEqual(statuses, [...Array<number>(10).fill(200), 429, 429]);
  t.is((await server.fetch('/v3/search?q=a', { token: await tokenOf(server, ['read'], 'other') })).status, 200);
});
