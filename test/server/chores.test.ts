import { join } from 'node:path';
import test from 'ava';
import { choresOf } from '../../src/server/chores.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { openQuota } from '../../src/server/quota.ts';
import { openUntilEnd } from '../support/databases.ts';
import { rowsOf, tokenOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';
import { until } from '../support/until.ts';
import { UpstreamFeed } from '../support/upstreams/upstream-feed.ts';
import { Visitor } from '../support/visitor.ts';
import { sendJson } from '../identity/support.ts';

const day = 86_400_000;

test('the repeated work of a server writes what is counted in memory, and deletes what is old', async (t) => {
  const up = await UpstreamFeed.start(t);
  await up.offer({ id: 'Theirs', versions: [{ version: '1.0.0' }] });
  const server = await startTestServer(t, { upstreams: [up.as('feed.test')] });
  server.clock.now = Date.now();
  const { installation } = server;
  const chores = choresOf(installation, openQuota(installation), undefined);
  const run = async () => {
    for (const each of chores) await each.run();
  };
  const has = async (table: string, condition = '1 = 1') =>
    (await rowsOf(server, `SELECT 1 AS one FROM ${table} WHERE ${condition} LIMIT 1`)).length === 1;

  const theirs = '/v3/package/theirs/1.0.0/theirs.1.0.0.nupkg';
  const used = async () =>
    (await rowsOf<{ at: number }>(server, 'SELECT MAX(used_at) AS at FROM mirror_entries'))[0]!.at;
  t.is((await server.fetch(theirs)).status, 200);
  server.clock.now += 2 * day;
  t.is((await server.fetch(theirs)).status, 200);
  t.is((await server.fetch('/v3/package/nothing/index.json')).status, 404);
  t.is((await server.fetch('/v2/', { token: 'ent_wrong' })).status, 401);
  t.is((await sendJson(server, 'POST', '/v1/client-checks', { client: 'dotnet' })).status, 201);
  const visitor = await Visitor.signedIn(server);
  await visitor.send('/console/tokens/new', { name: ' ', scope: 'read' });
  // A request is counted a moment after its client has the answer.
  await until(async () => {
    await run();
    return (await has('usage_counts')) && (await used()) >= server.clock.now! && (await has('failed_requests'));
  });
  for (const [table, condition] of [
    ['tokens', 'last_used_at IS NOT NULL'],
    ['token_uses', '1 = 1'],
    ['client_checks', '1 = 1'],
    ['sessions', '1 = 1'],
    ['refused_forms', '1 = 1'],
  ] as const)
    t.true(await has(table, condition), table);

  await tokenOf(server, ['read']);
  const gone = `INSERT INTO tokens (id, account_id, name, token_prefix, hash, scopes, created_at, expires_at, publisher_id)
    SELECT 'given', account_id, 'given', '', 'given', 'read', 1, 2, 'rule' FROM tokens LIMIT 1`;
  await installation.core.database.transaction((tx) => tx.run(gone));
  server.clock.now += 91 * day;
  await run();
  t.true(await has('events', "type = 'sign_in.failed'"), 'at the end of its period');
  t.false(await has('tokens', "id = 'given'"), 'an expired token of a rule');
  for (const table of ['failed_requests', 'token_uses', 'client_checks', 'sessions', 'refused_forms'])
    t.false(await has(table), table);

  t.is((await server.fetch(theirs)).status, 200);
  await server.close();
  const database = await openUntilEnd(t, `sqlite:${join(server.data, 'entrepot.db')}`);
  const last = await database.get<{ at: number }>('SELECT MAX(used_at) AS at FROM mirror_entries', []);
  t.is(last!.at, server.clock.now, 'the last use before a server ends is written at its end');
});

test('the repeated work reads files and limits again, and starts the job for predecessors when an inventory is due', async (t) => {
  const { installation } = await startTestServer(t);
  const done: string[] = [];
  const noted = (what: string) => () => Promise.resolve(void done.push(what));
  const launched = { result: Promise.resolve(), scheduled: ['gc', 'takeover'], isDue: true };
  const parts = {
    ...installation,
    bills: { run: noted('bills') },
    takeover: { isDue: () => Promise.resolve(launched.isDue) },
    jobs: {
      get scheduled() {
        return launched.scheduled;
      },
      launch: (job: string) => {
        done.push(job);
        return launched.result;
      },
    },
  };
  const others = [{ review: noted('limits') }, { refresh: noted('certificate') }];
  const chores = choresOf(parts as never, others[0] as never, others[1] as never);
  for (const each of chores) await each.run();
  t.deepEqual(done.toSorted(), ['bills', 'certificate', 'limits', 'takeover']);

  const inventories = chores.find(({ failure }) => failure.includes('inventories'))!;
  const starts = async () => {
    done.length = 0;
    await inventories.run();
    return done;
  };
  launched.result = Promise.reject(new DomainError('Invalid', 'It runs already.'));
  t.deepEqual(await starts(), ['takeover']);
  launched.result = Promise.reject(new Error('no database'));
  await t.throwsAsync(starts(), { message: 'no database' });
  launched.isDue = false;
  t.deepEqual(await starts(), []);
  launched.isDue = true;
  launched.scheduled = ['gc'];
  t.deepEqual(await starts(), [], 'its schedule is off');
});
