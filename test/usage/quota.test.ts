import test from 'ava';
import { pino } from 'pino';
import { Quota } from '../../src/usage/quota.ts';
import type { StorageMeter } from '../../src/usage/stored.ts';
import { databaseOf, defaultAccountOf, tokenOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';

test('a review of all accounts tells once that a limit is used up, also without a push', async (t) => {
  const server = await startTestServer(t);
  await tokenOf(server, ['read'], 'team');
  const own = defaultAccountOf(server);
  const bytes = new Map([[own, 500]]);
  const stored = { recent: (id: number) => Promise.resolve({ hosted: bytes.get(id) ?? 0, mirrored: 5000 }) };
  const reached: object[] = [];
  const parts = {
    database: databaseOf(server),
    stored: stored as unknown as StorageMeter,
    unfinished: (id: number) => Promise.resolve(id === own ? 300 : 0),
    onReached: (each: object) => void reached.push(each),
    log: pino({ level: 'silent' }),
    now: Date.now,
  };
  const quota = new Quota({ ...parts, limits: { accountStorage: 1000, accountEgress: 10 } });
  const used = () =>
    [...quota.used]
      .map(({ account, limit, ratio }) => `${account} ${limit} ${ratio}`)
      .toSorted((a, b) => (a < b ? -1 : 1));
  await quota.review();
  t.deepEqual(used(), ['default egress 0', 'default storage 0.8', 'team egress 0', 'team storage 0']);
  t.deepEqual(reached, [], 'it is near its limit');
  bytes.set(own, 700);
  await quota.review();
  await quota.review();
  const full = { accountId: own, accountName: 'default', limit: 'storage', used: 1000, allowed: 1000 };
  t.deepEqual(reached, [full], 'once');
  bytes.set(own, 0);
  await quota.review();
  bytes.set(own, 900);
  await quota.review();
  t.deepEqual(reached, [full, { ...full, used: 1200 }], 'again, because it was below in between');
  const warnings: string[] = [];
  bytes.set(own, 699);
  await quota.review();
  reached.length = 0;
  await quota.requireRoom({ accountId: own, accountName: 'default' }, 1, (text) => warnings.push(text));
  t.deepEqual([warnings, reached], [['storage: 999 of 1000 bytes (99 %)'], []]);
  const unlimited = new Quota({ ...parts, limits: {} });
  await unlimited.review();
  t.deepEqual([...unlimited.used], []);
  const egress = new Quota({ ...parts, limits: { accountEgress: 0 } });
  await egress.review();
  t.deepEqual(
    [...egress.used].map(({ limit, ratio }) => [limit, ratio]),
    [
      ['egress', 1],
      ['egress', 1],
    ],
  );
});
