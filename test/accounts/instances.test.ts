import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../src/database/database.ts';
import { CommandLine } from '../support/processes/command.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { startTestServer } from '../support/server.ts';
import { redisUrl } from '../support/processes/services.ts';
import { until } from '../support/until.ts';
import { flushTokens } from '../support/inside.ts';

/** Two servers in processes of their own, with one database, and what each answers to a token. */
async function twoInstances(t: ExecutionContext, dialect: Dialect, settings: Record<string, string> = {}) {
  const operator = 'bootstrap-token-of-a-test';
  const shared = {
    ENTREPOT_DATABASE_URL: await temporaryDatabase(t, dialect),
    ENTREPOT_BOOTSTRAP_TOKEN: operator,
    ...settings,
  };
  const start = async () => {
    const { url } = await (await CommandLine.create(t, shared)).serve();
    const ask = (path: string, token: string, init: RequestInit = {}) =>
      fetch(url + path, { ...init, headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' } });
    return {
      statusOf: async (token: string) => (await ask('/v1/account', token)).status,
      create: async () => {
        const body = JSON.stringify({ name: 'shared', scopes: ['read'] });
        const created = await ask('/v1/tokens', operator, { method: 'POST', body });
        return (await created.json()) as { id: string; token: string };
      },
      revoke: async (id: string) => (await ask(`/v1/tokens/${id}`, operator, { method: 'DELETE' })).status,
    };
  };
  return Promise.all([start(), start()]);
}

for (const dialect of dialects) {
  test(`${dialect}: two instances on one database agree about tokens within a second`, async (t) => {
    const [one, two] = await twoInstances(t, dialect);
    // More than once: an instance forgets what it remembers whenever it writes, which it does every five seconds.
    for (let round = 0; round < 3; round += 1) {
      const { id, token } = await one.create();
      t.is(await two.statusOf(token), 200, 'known to the other at once');
      t.is(await one.revoke(id), 204);
      t.is(await one.statusOf(token), 401);
      // Twice as long as is promised: the machine has other work.
      await until(async () => (await two.statusOf(token)) === 401, 2000);
      t.is(await two.statusOf(token), 401, 'for good');
    }
  });
}

for (const [what, dialect, settings] of [
  ['SQLite, by its file', 'sqlite', () => ({})],
  ['MySQL with Redis', 'mysql', () => ({ ENTREPOT_REDIS_URL: redisUrl() })],
] as const) {
  test(`${what}: a revoked token is refused by the other instance at its very next request`, async (t) => {
    const [one, two] = await twoInstances(t, dialect, settings());
    // Once could be luck: what an instance remembers lasts for a fifth of a second at most, even if it is told nothing.
    for (let round = 0; round < 10; round += 1) {
      const { id, token } = await one.create();
      t.is(await two.statusOf(token), 200);
      t.is(await one.revoke(id), 204);
      t.is(await two.statusOf(token), 401);
    }
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
  await flushTokens(server);
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
