import test from 'ava';
import { pino } from 'pino';
import type { DomainError } from '../../src/runtime/errors.ts';
import { Quota } from '../../src/usage/quota.ts';
import type { StorageMeter } from '../../src/usage/stored.ts';
import { databaseOf, defaultAccountOf, tokenOf } from '../support/inside.ts';
import { startTestServer } from '../support/server.ts';

const owner = { accountId: 7, accountName: 'team' };

test('a push needs room for what it announces, and an account that has not downloaded its limit', async (t) => {
  let [hosted, unfinished, downloaded] = [0, 0, 0];
  const reached: object[] = [];
  const lines: string[] = [];
  const parts = {
    database: { get: () => Promise.resolve({ egress_bytes: downloaded }) },
    stored: { recent: () => Promise.resolve({ hosted, mirrored: 5000 }) },
    unfinished: () => Promise.resolve(unfinished),
    onReached: (each: object) => void reached.push(each),
    log: pino({}, { write: (line: string) => void lines.push(line) }),
    now: () => Date.UTC(2027, 4, 15),
  };
  const limits = { accountStorage: 1000, accountEgress: 500 };
  const quota = new Quota({ ...parts, limits } as unknown as ConstructorParameters<typeof Quota>[0]);
  const push = async (announced: number) => {
    const warnings: string[] = [];
    reached.length = 0;
    lines.length = 0;
    const error = await quota
      .requireRoom(owner, announced, (text) => warnings.push(text))
      .then(
        () => undefined,
        (each: DomainError) => each,
      );
    const logged = lines.map((line) => JSON.parse(line).percent as number);
    return { refusal: error?.message, detail: error?.detail, warnings, reached: [...reached], logged };
  };
  const free = { refusal: undefined, detail: undefined, warnings: [], reached: [], logged: [] };
  t.deepEqual(await push(1000), free);
  [hosted, unfinished] = [600, 199];
  t.deepEqual(await push(201), free, 'all of the rest');
  const storage = { limit: 'storage', used: 799, allowed: 1000 };
  t.deepEqual(await push(202), {
    ...free,
    refusal:
      'Account "team" stores 799 bytes; its limit is 1000 bytes. Delete content, or ask the operator to raise the limit.',
    detail: storage,
    reached: [{ ...owner, ...storage }],
  });
  unfinished = 200;
  t.deepEqual(await push(0), { ...free, warnings: ['storage: 800 of 1000 bytes (80 %)'], logged: [80] });
  t.deepEqual(await push(0), { ...free, warnings: ['storage: 800 of 1000 bytes (80 %)'] }, 'logged once');
  unfinished = 355;
  t.deepEqual(await push(0), { ...free, warnings: ['storage: 955 of 1000 bytes (95 %)'], logged: [90] });
  unfinished = 400;
  const full = { ...free, warnings: ['storage: 1000 of 1000 bytes (100 %)'] };
  t.deepEqual(await push(0), { ...full, logged: [100] }, 'the last request of an upload brings no bytes');
  [hosted, unfinished] = [1000, 0];
  const used = { limit: 'storage', used: 1000, allowed: 1000 };
  t.like(await push(0), { detail: used, reached: [{ ...owner, ...used }] });
  [hosted, downloaded] = [0, 499];
  t.deepEqual(await push(0), { ...free, warnings: ['egress: 499 of 500 bytes (99 %)'], logged: [90] });
  downloaded = 500;
  const egress = { limit: 'egress', used: 500, allowed: 500 };
  t.deepEqual(await push(0), {
    refusal:
      'Account "team" has downloaded 500 bytes this month; its limit is 500 bytes. Push again after 2027-06-01T00:00:00.000Z, or ask the operator to raise the limit.',
    detail: egress,
    warnings: ['egress: 500 of 500 bytes (100 %)'],
    reached: [{ ...owner, ...egress }],
    logged: [100],
  });

  hosted = 300;
  reached.length = 0;
  const { bytes, refusal } = await quota.unfinishedOf(owner)!();
  t.is(bytes, 700);
  t.like(refusal(701), { name: 'QuotaExceeded', detail: { limit: 'storage', used: 1001, allowed: 1000 } });
  t.deepEqual(reached, [{ ...owner, limit: 'storage', used: 1001, allowed: 1000 }]);
  const unlimited = new Quota({ ...parts, limits: {} } as unknown as ConstructorParameters<typeof Quota>[0]);
  t.is(unlimited.unfinishedOf(owner), undefined);
});

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
