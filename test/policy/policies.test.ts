import test, { type ExecutionContext } from 'ava';
import type { Database } from '../../src/database/database.ts';
import { versionTest } from '../../src/nuget/format/range.ts';
import { Policies } from '../../src/policy/policies.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { day, now } from '../support/policy.ts';

// The policies of a database, without a server.

const hour = 3_600_000;
const team = 7;

async function openPolicies(t: ExecutionContext) {
  const url = await temporaryDatabase(t, 'sqlite');
  const clock = { now };
  const open = (database: Database) =>
    new Policies({
      database,
      readRange: versionTest,
      accountName: (id) => Promise.resolve(id === team ? 'team' : undefined),
      now: () => clock.now,
    });
  const database = await openUntilEnd(t, url);
  const events = async () =>
    (
      await database.select<{ type: string; account_id: number; subject_name: string | null; details: string }>(
        'SELECT type, time, account_id, subject_kind, subject_name, details FROM events ORDER BY id',
      )
    ).map(({ details, ...event }) => ({ ...event, details: JSON.parse(details) as object }));
  return { policies: open(database), elsewhere: open(await openUntilEnd(t, url)), database, clock, events };
}

/** The scope and the mode of each layer, and its age of packages in days. */
async function layersOf(policies: Policies, accountId: number) {
  return (await policies.layersOf(accountId)).map(
    ({ scope, isEnforced, age }) => `${scope} ${isEnforced ? 'enforce' : 'audit'} ${age.package / day}`,
  );
}

test('a policy that is put is stored and in force as it was written, with one event', async (t) => {
  const { policies, elsewhere, clock, events } = await openPolicies(t);
  t.is(await policies.get(0), undefined);
  t.deepEqual([await policies.layersOf(0), await policies.lists(), await policies.all(9)], [[], [], []]);
  const written = { minimumAge: { packages: '3d' } };
  const first = await policies.put(0, written, 'client');
  t.like(first.document, { mode: 'enforce', minimumAge: { packages: 3 * day } });
  t.deepEqual(first, {
    accountId: 0,
    written,
    document: first.document,
    revision: 1,
    regimes: [{ packages: 0, images: 0, unknownDate: undefined, until: now }],
    changedAt: now,
    suspendedUntil: 0,
  });
  const { unknownDate: _, ...regime } = first.regimes[0]!;
  t.deepEqual(await elsewhere.get(0), { ...first, regimes: [regime] });
  clock.now += hour;
  const own = { mode: 'audit', minimumAge: { packages: '1d' } };
  t.like(await policies.put(team, own, 'client'), { accountId: team, written: own, revision: 1 });
  t.deepEqual(await layersOf(elsewhere, 0), ['all enforce 3']);
  t.deepEqual(await layersOf(elsewhere, team), ['all enforce 3', 'account audit 1']);
  t.deepEqual(await layersOf(policies, 8), ['all enforce 3'], 'an account without one');
  t.deepEqual(
    (await policies.all(9)).map(({ accountId, written }) => [accountId, written]),
    [
      [0, written],
      [team, own],
    ],
  );
  t.is((await policies.all(1)).length, 1);

  clock.now += hour;
  const ended = await policies.put(0, {}, 'client');
  t.deepEqual(ended, {
    accountId: 0,
    written: null,
    document: null,
    revision: 2,
    regimes: [regime],
    changedAt: now + 2 * hour,
    suspendedUntil: 0,
  });
  t.deepEqual(await policies.get(0), ended);
  t.deepEqual(await layersOf(elsewhere, team), ['account audit 1']);
  t.deepEqual(
    (await policies.all(9)).map(({ accountId, document }) => [accountId, document.mode]),
    [[team, 'audit']],
  );
  const subject = { subject_kind: 'account', type: 'policy.changed' };
  const all = { ...subject, account_id: 0, subject_name: null };
  t.deepEqual(await events(), [
    { ...all, time: now, details: { layer: 'all', mode: 'enforce', revision: 1 } },
    {
      ...subject,
      account_id: team,
      subject_name: 'team',
      time: now + hour,
      details: { layer: 'account', mode: 'audit', revision: 1 },
    },
    { ...all, time: now + 2 * hour, details: { layer: 'all', mode: null, revision: 2 } },
  ]);
});

test('what was open before a policy is kept as long as a later one holds more', async (t) => {
  const { policies, clock } = await openPolicies(t);
  const put = async (minimumAge: object | undefined, mode = 'enforce') => {
    clock.now += 1;
    const { regimes } = await policies.put(0, minimumAge && { mode, minimumAge }, 'client');
    return regimes.map(({ packages, images, unknownDate = '', until }) =>
      [packages / day, images / day, unknownDate, until - now].join(' ').replace('  ', ' '),
    );
  };
  t.deepEqual(await put({ packages: '1d', images: '1d' }), ['0 0 1'], 'all was open');
  t.deepEqual(await put({ packages: '2d', images: '2d' }), ['0 0 1', '1 1 firstSeen 2']);
  t.deepEqual(await put({ packages: '1d', images: '3d' }), ['0 0 1', '1 1 firstSeen 2', '2 2 firstSeen 3']);
  t.deepEqual(
    await put({ packages: '1d', images: '3d' }),
    ['0 0 1', '1 1 firstSeen 2', '2 2 firstSeen 3', '1 3 firstSeen 4'],
    'each earlier one was shorter for some kind',
  );
  t.deepEqual(await put({ packages: '1d', images: '1d', unknownDate: 'hold' }), [
    '0 0 1',
    '1 1 firstSeen 2',
    '2 2 firstSeen 3',
    '1 3 firstSeen 5',
  ]);
  t.deepEqual(await put({ packages: '1d', images: '1d', unknownDate: 'hold' }), [
    '0 0 1',
    '1 1 firstSeen 2',
    '2 2 firstSeen 3',
    '1 3 firstSeen 5',
    '1 1 hold 6',
  ]);
  t.deepEqual(
    await put({ packages: '1d' }, 'audit'),
    ['0 0 1', '1 1 firstSeen 2', '2 2 firstSeen 3', '1 3 firstSeen 5', '1 1 hold 7'],
    'of the same ages, the later time is kept',
  );
  t.deepEqual(await put(undefined), ['0 0 1', '1 1 firstSeen 2', '2 2 firstSeen 3', '1 3 firstSeen 5', '1 1 hold 7']);
  t.deepEqual(await put({ packages: '1d' }), ['0 0 9'], 'nothing was refused since it ended');
  await put({ packages: '1d' }, 'audit');
  t.deepEqual(await put({ packages: '1d' }), ['0 0 11'], 'nor while it only watched');
});

test('of a policy that was made longer very often, the last 50 times are kept', async (t) => {
  const { policies, clock } = await openPolicies(t);
  for (let hours = 1; hours <= 52; hours += 1) {
    clock.now += 1;
    await policies.put(0, { minimumAge: { packages: `${hours}h` } }, 'client');
  }
  const stored = await policies.get(0);
  t.deepEqual(
    stored!.regimes.map(({ packages, until }) => [packages / hour, until - now]),
    Array.from({ length: 50 }, (_, at) => [at + 2, at + 3]),
  );
});

test('a suspended policy only watches until its time, and is what it was afterwards', async (t) => {
  const { policies, elsewhere, clock, events } = await openPolicies(t);
  const refused = (accountId: number, duration: number, message: string) =>
    t.throwsAsync(policies.suspend(accountId, duration), { name: 'Invalid', message });
  const nothing = 'There is no policy that is enforced, so there is nothing to suspend.';
  await refused(0, 1, nothing);
  await policies.put(0, { mode: 'audit' }, 'client');
  await refused(0, 1, nothing);
  await policies.put(0, { minimumAge: { packages: '3d' } }, 'client');
  await policies.put(team, { minimumAge: { packages: '2d' } }, 'client');
  await refused(0, day + 1, 'A policy can be suspended for 24h at most.');
  await refused(0, 0, 'The policy is not suspended.');
  t.deepEqual(await layersOf(elsewhere, team), ['all enforce 3', 'account enforce 2']);
  const before = await policies.get(0);
  t.is(await policies.suspend(0, day), now + day);
  t.deepEqual(await layersOf(elsewhere, team), ['all audit 3', 'account enforce 2']);
  t.like((await elsewhere.layersOf(0))[0], { suspendedUntil: now + day });
  const suspended = { ...before!, revision: 3, regimes: [{ packages: 0, images: 0, until: now + day }] };
  t.deepEqual(await policies.get(0), { ...suspended, suspendedUntil: now + day });
  clock.now = now + day - 1;
  t.deepEqual(await layersOf(elsewhere, 0), ['all audit 3']);
  clock.now = now + day;
  t.deepEqual(await layersOf(elsewhere, 0), ['all enforce 3']);
  await refused(0, 0, 'The policy is not suspended.');

  t.is(await policies.suspend(team, hour), now + day + hour);
  clock.now += 1;
  t.is(await policies.suspend(team, 0), clock.now);
  t.deepEqual(await layersOf(elsewhere, team), ['all enforce 3', 'account enforce 2']);
  t.like(await policies.get(team), {
    regimes: [{ packages: 0, images: 0, until: clock.now }, undefined],
    suspendedUntil: 0,
    revision: 3,
  });
  const told = (await events()).filter(({ type }) => type !== 'policy.changed');
  const all = { account_id: 0, subject_kind: 'account', subject_name: null };
  const own = { account_id: team, subject_kind: 'account', subject_name: 'team' };
  t.deepEqual(told, [
    {
      ...all,
      type: 'policy.suspended',
      time: now,
      details: { layer: 'all', until: new Date(now + day).toISOString() },
    },
    {
      ...own,
      type: 'policy.suspended',
      time: now + day,
      details: { layer: 'account', until: new Date(now + day + hour).toISOString() },
    },
    { ...own, type: 'policy.resumed', time: now + day + 1, details: { layer: 'account' } },
  ]);

  for (const later of [hour - 1, hour]) {
    await policies.suspend(0, hour);
    clock.now += later;
    const open = { packages: 0, images: 0, until: clock.now };
    const closed = { packages: 3 * day, images: 0, unknownDate: 'firstSeen', until: clock.now };
    await policies.put(0, { minimumAge: { packages: '3d' } }, 'client');
    const { regimes, suspendedUntil } = (await policies.get(0))!;
    t.deepEqual([regimes, suspendedUntil] as unknown[], [later < hour ? [open] : [open, closed], 0]);
  }
});

const policyOf = (...lists: object[]) => ({ knownBad: { lists } });

test('lists are those of the policy of all accounts, and a client gives them no new reach', async (t) => {
  const { policies, elsewhere, events } = await openPolicies(t);
  const defaults = { refresh: 6 * hour, ids: ['MAL-*'], except: [], mode: 'enforce', allowPrivateNetwork: false };
  const [url, file, inside] = [
    { name: 'web', url: 'https://lists.test/a' },
    { name: 'local', file: '/lists/own' },
    { name: 'inside', url: 'http://lists.internal/a', allowPrivateNetwork: true },
  ];
  const refused = (accountId: number, written: object, message: string) =>
    t.throwsAsync(policies.put(accountId, written, 'client'), { name: 'Invalid', message });
  await policies.put(0, policyOf(url), 'client');
  const read = await elsewhere.lists();
  t.deepEqual(read as unknown, [{ ...defaults, ...url }]);
  t.is(await elsewhere.lists(), read, 'the same array until it changes');
  await refused(team, policyOf(url), 'knownBad.lists: only the policy of all accounts can name lists');
  await refused(0, policyOf(url, file), 'knownBad.lists.1.file: only "entrepot policy apply" can set this');
  await refused(0, policyOf(inside), 'knownBad.lists.0.allowPrivateNetwork: only "entrepot policy apply" can set this');
  await refused(0, { mode: 'of', ...policyOf(file) }, 'mode: expected enforce or audit');
  t.is(await elsewhere.lists(), read, 'nothing is changed');
  t.is((await events()).length, 1);

  await policies.put(0, policyOf(file, inside), 'command');
  t.deepEqual((await elsewhere.lists()) as unknown, [
    { ...defaults, ...file },
    { ...defaults, ...inside },
  ]);
  await policies.put(
    0,
    { mode: 'audit', ...policyOf(inside, { ...file, name: 'renamed', except: ['MAL-1'] }, url) },
    'client',
  );
  t.deepEqual(
    (await elsewhere.lists()).map(({ name, mode }) => `${name} ${mode}`),
    ['inside audit', 'renamed audit', 'web audit'],
    'a policy that only watches refuses nothing by its lists',
  );
  await refused(
    0,
    policyOf({ ...file, file: '/lists/other' }),
    'knownBad.lists.0.file: only "entrepot policy apply" can set this',
  );
  await refused(
    0,
    policyOf(file, { ...inside, url: 'http://other.internal/a' }),
    'knownBad.lists.1.allowPrivateNetwork: only "entrepot policy apply" can set this',
  );
  await policies.put(0, {}, 'client');
  t.deepEqual(await elsewhere.lists(), []);
});

test('a policy is checked without being stored', async (t) => {
  const { policies } = await openPolicies(t);
  t.deepEqual(policies.check({}), { refusesAll: false });
  t.deepEqual(policies.check({ minimumAge: { packages: '9d' } }), { refusesAll: false });
  t.deepEqual(policies.check({ rules: [{ name: 'no', packages: ['*'], verdict: 'deny' }] }), { refusesAll: true });
  t.is(policies.layerOf(0, {}), undefined);
  t.like(policies.layerOf(0, { mode: 'audit' }), { scope: 'all', isEnforced: false, regimes: [] });
  t.like(policies.layerOf(team, { minimumAge: { images: '1d' } }), {
    scope: 'account',
    age: { package: 0, image: day },
  });
  const wrong = { rules: [{ name: 'no', packages: ['*'], versions: '2', verdict: 'deny' }] };
  const message = 'rules.0.versions: expected a range of versions such as [2.0.0, 3.0.0), or [2.0.0] for one version';
  t.throws(() => policies.check(wrong), { name: 'Invalid', message });
  t.throws(() => policies.check(wrong, () => 'line 7: '), { name: 'Invalid', message: `line 7: ${message}` });
  t.throws(() => policies.check({ mode: 'of' }, () => 'line 8: '), {
    message: 'line 8: mode: expected enforce or audit',
  });
  await t.throwsAsync(policies.put(0, wrong, 'command'), { name: 'Invalid', message });
  t.is(await policies.get(0), undefined);
});
