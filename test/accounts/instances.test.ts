import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import test from 'ava';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { startTestServer } from '../support/server.ts';

for (const dialect of dialects) {
  test(`${dialect}: two instances on one database agree about tokens within a second`, async (t) => {
    const settings = { database: { url: await temporaryDatabase(t, dialect) } };
    const [one, two] = await Promise.all([startTestServer(t, settings), startTestServer(t, settings)]);
    const created = await one.fetch('/v1/tokens', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ name: 'shared', scopes: ['read'] }),
    });
    const { id, token } = (await created.json()) as { id: string; token: string };
    t.is((await two.fetch('/v1/account', { token })).status, 200, 'known to the other at once');
    t.is((await one.fetch(`/v1/tokens/${id}`, { method: 'DELETE' })).status, 204);
    t.is((await one.fetch('/v1/account', { token })).status, 401);
    two.clock.now = Date.now() + 999;
    t.is((await two.fetch('/v1/account', { token })).status, 401);
  });
}

test('requests are answered without a write to the database', async (t) => {
  const server = await startTestServer(t);
  const watch = new DatabaseSync(join(server.data, 'entrepot.db'));
  t.teardown(() => watch.close());
  const version = () => watch.prepare('PRAGMA data_version').get()!['data_version'];
  const before = version();
  for (let index = 0; index < 20; index += 1) {
    t.is((await server.fetch('/v1/account')).status, 200);
    t.is((await server.fetch('/v1/account', { token: 'wrong' })).status, 401);
  }
  t.is(version(), before);
  await server.house.tokens.flush();
  t.not(version(), before);
});

test('the last use of a token is written when the server closes', async (t) => {
  const server = await startTestServer(t);
  server.clock.now = Date.UTC(2040, 0, 1);
  await server.fetch('/v1/account');
  await server.close();
  const database = new DatabaseSync(join(server.data, 'entrepot.db'));
  t.teardown(() => database.close());
  t.is(database.prepare('SELECT last_used_at FROM tokens').get()!['last_used_at'], server.clock.now);
});

test('no token, and no Authorization header, is written to the log', async (t) => {
  const server = await startTestServer(t, { log: { level: 'trace' } });
  const secret = 'a-secret-that-must-not-be-seen';
  const basic = `Basic ${Buffer.from(`api:${secret}`).toString('base64')}`;
  await server.fetch('/v1/account');
  await server.fetch(`/v1/account?api_key=${secret}`, { token: secret });
  await server.fetch('/v1/account', { headers: { authorization: basic, 'x-nuget-apikey': secret } });
  await server.close();
  const log = server.lines.join('');
  t.regex(log, /"path":"\/v1\/account"/);
  for (const each of [secret, server.token, basic]) t.false(log.includes(each));
});
