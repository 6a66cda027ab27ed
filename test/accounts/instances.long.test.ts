import { DatabaseSync } from 'node:sqlite';
import { join } from 'node:path';
import test, { type ExecutionContext } from 'ava';
import type { Dialect } from '../../src/database/database.ts';
import { CommandLine } from '../support/processes/command.ts';
import { dialects, temporaryDatabase } from '../support/databases.ts';
import { folderUntilEnd } from '../support/folder.ts';
import { startTestServer } from '../support/server.ts';
import { redisUrl } from '../support/processes/services.ts';
import { until } from '../support/until.ts';
import { flushTokens } from '../support/inside.ts';

/** Two servers in separate processes with one database, and the status that each answers to a token. */
async function twoInstances(t: ExecutionContext, dialect: Dialect, settings: Record<string, string> = {}) {
  const operator = 'bootstrap-token-of-a-test-server';
  const shared = {
    ENTREPOT_DATA: await folderUntilEnd(t),
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
  test(`${dialect}: two instances on one database agree on tokens within a second`, async (t) => {
    const [one, two] = await twoInstances(t, dialect);
    // Several rounds: an instance drops its cached rows when it writes, which it does every five seconds.
    for (let round = 0; round < 3; round += 1) {
      const { id, token } = await one.create();
      t.is(await two.statusOf(token), 200, 'valid at once on the other instance');
      t.is(await one.revoke(id), 204);
      t.is(await one.statusOf(token), 401);
      // Twice the promised time, because the machine is busy.
      await until(async () => (await two.statusOf(token)) === 401, 2000);
      t.is(await two.statusOf(token), 401, 'refused permanently');
    }
  });
}

for (const [what, dialect, settings] of [
  ['SQLite, by its file', 'sqlite', () => ({})],
  ['MySQL with Redis', 'mysql', () => ({ ENTREPOT_REDIS_URL: redisUrl() })],
] as const) {
  test(`${what}: the other instance refuses a revoked token at its next request`, async (t) => {
    const [one, two] = await twoInstances(t, dialect, settings());
    // Several rounds: a cached row expires after a fifth of a second even without an announced write.
    for (let round = 0; round < 10; round += 1) {
      const { id, token } = await one.create();
      t.is(await two.statusOf(token), 200);
      t.is(await one.revoke(id), 204);
      t.is(await two.statusOf(token), 401);
    }
  });
}

test('requests cause no write to the database', async (t) => {
  const server = await startTestServer(t);
  const watch = new DatabaseSync(join(server.data, 'entrepot.db'));
  t.teardown(() => watch.close());
  const version = () => watch.prepare('PRAGMA data_version').get()!['data_version'];
  // The instance writes from time to time; what a request writes is written in each round.
  let before = version();
  await until(async () => {
    before = version();
    for (let index = 0; index < 20; index += 1) {
      t.is((await server.fetch('/v1/account')).status, 200);
      t.is((await server.fetch('/v1/account', { token: 'wrong' })).status, 401);
    }
    return version() === before;
  });
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
