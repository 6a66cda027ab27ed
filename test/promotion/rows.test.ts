import test, { type ExecutionContext } from 'ava';
import { batches } from '../../src/database/batches.ts';
import { PromotionRules } from '../../src/promotion/rules.ts';
import { Promotions } from '../../src/promotion/promotions.ts';
import type { PreparedPromotion, PromotedPlaces } from '../../src/promotion/promotable.ts';
import type { Actor } from '../../src/runtime/caller.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { asActor } from '../support/as-actor.ts';

// What is stored and told of promotions, without a server: a protocol that only notes what it is asked.

const now = Date.UTC(2026, 10, 25, 12);
const [dev, prod] = [
  { id: 1, name: 'dev' },
  { id: 2, name: 'prod' },
];
const ann: Actor = { kind: 'person', id: 'a', name: 'ann' };
const bob: Actor = { kind: 'token', id: 'b', name: 'bob' };

function as<T>(actor: Actor, work: () => T): T {
  return asActor(actor, work, {
    address: `192.0.2.${actor.id === 'a' ? 1 : 2}`,
    requestId: `request of ${actor.name!}`,
  });
}

async function open(t: ExecutionContext) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const clock = { now };
  const calls: string[] = [];
  const protocol = {
    digest: 'sha256:one',
    write: (): Promise<boolean> => Promise.resolve(true),
    admit: (): Promise<void> => Promise.resolve(),
  };
  const prepare = async ({ from, to, reference, digest, fromAccount }: PromotedPlaces): Promise<PreparedPromotion> => {
    calls.push(
      `prepare ${from.accountId} ${fromAccount} ${from.name} ${reference} ${digest} to ${to.accountId} ${to.name}`,
    );
    return {
      bytes: 7,
      write: async () => {
        await new Promise(setImmediate);
        calls.push('write');
        return protocol.write();
      },
    };
  };
  const rules = new PromotionRules(database, () => clock.now);
  const accounts = {
    named: (name: string) => Promise.resolve([dev, prod].find((each) => each.name === name)),
    nameOf: (id: number) => Promise.resolve([dev, prod].find((each) => each.id === id)?.name),
  };
  const promotable = {
    bind: async (accountId: number, name: string, reference: string) => {
      calls.push(`bind ${accountId} ${name} ${reference}`);
      return { name: name.toLowerCase(), reference: reference.trim(), digest: protocol.digest as 'sha256:one' };
    },
    nameFor: (name: string, wanted: string) => {
      calls.push(`name ${wanted} of ${name}`);
      return wanted.toLowerCase();
    },
    prepare,
  };
  const promotions = new Promotions({
    database,
    accounts: accounts as never,
    rules,
    protocols: [{ kind: 'package' }, { kind: 'container', promotable }],
    admit: async ({ accountId, accountName }, bytes) => {
      await new Promise(setImmediate);
      calls.push(`admit ${accountId} ${accountName} ${bytes}`);
      await protocol.admit();
    },
    now: () => clock.now,
  });
  const wanted = {
    kind: 'container',
    account: dev,
    name: 'Team/App',
    reference: 'v1 ',
    toAccount: 'prod',
    toName: undefined,
    reason: 'release',
    requester: 'person a',
    mayPromoteIn: () => Promise.resolve(false),
    permit: (name: string) => void calls.push(`permit ${name}`),
  } as const;
  return {
    database,
    clock,
    calls,
    protocol,
    rules,
    promotions,
    request: (changes: Partial<Parameters<Promotions['request']>[0]> = {}) =>
      as(ann, () => promotions.request({ ...wanted, ...changes })),
    approve: (id: number, decider: string | undefined = 'person b') => as(bob, () => promotions.approve(id, decider)),
    reject: (id: number, accountId = prod.id) => as(bob, () => promotions.reject(id, accountId)),
    states: async () =>
      (await database.select<{ id: number; state: string }>('SELECT id, state FROM promotions ORDER BY id')).map(
        ({ id, state }) => `${id} ${state}`,
      ),
    events: async () =>
      (
        await database.select<{ details: string }>(
          `SELECT type, account_id AS account, actor_name AS actor, subject_kind AS kind, subject_name AS name,
             subject_reference AS reference, address, request_id AS request, time, details FROM events
           WHERE type <> 'promotion.rules_changed' ORDER BY id`,
        )
      ).map(({ details, ...each }) => ({ ...each, details: JSON.parse(details) as object })),
  };
}

const takesOfDev = { promoteOnly: false, approval: 'none', from: ['dev'] } as const;

test('a request of another account waits, and each account is told of what happens, with the address of its own people', async (t) => {
  const { clock, calls, rules, promotions, request, approve, events } = await open(t);
  await rules.put(prod.id, 'prod', takesOfDev);
  const asked = await request({ toName: 'Released/App' });
  const expected = {
    id: 1,
    state: 'requested',
    kind: 'container',
    from: { accountId: 1, name: 'team/app' },
    reference: 'v1',
    digest: 'sha256:one',
    to: { accountId: 2, name: 'released/app' },
    reason: 'release',
    requester: 'person a',
    requestedBy: ann,
    requestedAt: now,
    decidedBy: null,
    decidedAt: null,
  };
  t.deepEqual(asked as object, expected);
  t.deepEqual(calls, ['bind 1 Team/App v1 ', 'name Released/App of team/app'], 'nothing is prepared');
  t.deepEqual(await promotions.get(dev.id, 1), asked);
  t.deepEqual(await promotions.get(prod.id, 1), asked);
  t.deepEqual(await promotions.get(undefined, 1), asked);
  await t.throwsAsync(promotions.get(3, 1), { name: 'NotFound', message: 'There is no promotion 1 in this account.' });
  await t.throwsAsync(promotions.get(undefined, 2), { name: 'NotFound', message: 'There is no promotion 2.' });

  clock.now += 1000;
  calls.length = 0;
  const done = { ...expected, state: 'done', decidedBy: bob, decidedAt: now + 1000 };
  t.deepEqual((await approve(1)) as object, done);
  t.deepEqual(calls, ['prepare 1 dev team/app v1 sha256:one to 2 released/app', 'admit 2 prod 7', 'write']);
  clock.now += 1000;
  calls.length = 0;
  t.deepEqual((await approve(1)) as object, done, 'it is done once');
  t.deepEqual(calls, []);
  await t.throwsAsync(promotions.reject(1, prod.id), {
    name: 'Invalid',
    message: 'The promotion 1 is done, so it cannot be rejected.',
  });
  const details = {
    promotion: 1,
    digest: 'sha256:one',
    from_account: 'dev',
    from_name: 'team/app',
    to_account: 'prod',
    to_name: 'released/app',
    requested_by: ann,
    reason: 'release',
  };
  const event = (type: string, account: 1 | 2, actor: Actor, isActing: boolean, time: number) => ({
    type,
    account,
    actor: actor.name,
    kind: 'container',
    name: account === 1 ? 'team/app' : 'released/app',
    reference: 'v1',
    address: isActing ? (actor === ann ? '192.0.2.1' : '192.0.2.2') : null,
    request: isActing ? `request of ${actor.name!}` : null,
    time,
    details,
  });
  t.deepEqual(await events(), [
    event('promotion.requested', 1, ann, true, now),
    event('promotion.requested', 2, ann, false, now),
    event('promotion.approved', 1, bob, false, now + 1000),
    event('promotion.approved', 2, bob, true, now + 1000),
  ]);
});

test('the same request again is the first one, and any other is another one', async (t) => {
  const { protocol, rules, request, approve, reject, states } = await open(t);
  await rules.put(prod.id, 'prod', takesOfDev);
  const { id } = await request();
  t.is((await request({ reason: 'another reason' })).id, id);
  let next = id;
  for (const changes of [{ name: 'Team/Tool' }, { reference: 'v2' }, { toName: 'other' }, { requester: 'person c' }])
    t.is((await request(changes)).id, (next += 1), JSON.stringify(changes));
  protocol.digest = 'sha256:two';
  t.is((await request()).id, (next += 1), 'the tag has moved');
  t.is((await request()).id, next);
  protocol.digest = 'sha256:one';
  await approve(id);
  t.is((await request()).id, (next += 1), 'the first one is done');
  await reject(next);
  t.is((await request()).id, (next += 1), 'the last one was rejected');
  t.deepEqual(await states(), [
    '1 done',
    '2 requested',
    '3 requested',
    '4 requested',
    '5 requested',
    '6 requested',
    '7 rejected',
    '8 requested',
  ]);
});

test('a rejected request stays rejected, and who rejects it sees its own address', async (t) => {
  const { clock, rules, promotions, request, approve, reject, events, states } = await open(t);
  await rules.put(prod.id, 'prod', takesOfDev);
  await request();
  clock.now += 5;
  const rejected = await reject(1, dev.id);
  t.like(rejected, { state: 'rejected', decidedBy: bob, decidedAt: now + 5 });
  clock.now += 5;
  t.deepEqual(await promotions.reject(1, prod.id), rejected);
  await t.throwsAsync(approve(1), {
    name: 'Invalid',
    message: 'The promotion 1 was rejected. Ask for a new one.',
  });
  t.deepEqual(await states(), ['1 rejected']);
  t.like((await events()).slice(2), [
    { type: 'promotion.rejected', account: 1, address: '192.0.2.2', name: 'team/app' },
    { type: 'promotion.rejected', account: 2, address: null, name: 'team/app' },
  ]);
  await t.throwsAsync(promotions.reject(9, prod.id), { name: 'NotFound' });
  await t.throwsAsync(approve(9), { name: 'NotFound' });
});

test('where nobody has to approve it, it is done at once, and once', async (t) => {
  const { calls, protocol, rules, promotions, request, approve, events, states } = await open(t);
  const own = { toAccount: 'dev', toName: 'Other' };
  t.like(await request(own), { id: 1, state: 'done', to: { accountId: 1, name: 'other' }, decidedBy: ann });
  t.deepEqual(calls, [
    'bind 1 Team/App v1 ',
    'name Other of team/app',
    'permit other',
    'prepare 1 dev team/app v1 sha256:one to 1 other',
    'admit 1 dev 7',
    'write',
  ]);
  t.like(await events(), [{ type: 'promotion.approved', account: 1, name: 'other', address: '192.0.2.1' }]);
  t.is((await request(own)).id, 2, 'it has changed something again');
  protocol.write = () => Promise.resolve(false);
  t.is((await request(own)).id, 2, 'it has changed nothing');
  t.is((await request({ ...own, reference: 'v2' })).id, 3, 'it was there before');
  protocol.digest = 'sha256:two';
  t.is((await request(own)).id, 4);
  t.is((await events()).length, 4);

  calls.length = 0;
  for (const toName of [undefined, 'TEAM/APP'])
    await t.throwsAsync(request({ toAccount: 'dev', toName }), {
      name: 'Invalid',
      message: 'to_name: team/app is there already. Name another account or another name.',
    });
  const denied = new DomainError('Denied', 'not this name');
  const permit = () => {
    throw denied;
  };
  t.is(await t.throwsAsync(request({ ...own, permit })), denied);
  t.false(calls.some((each) => each.startsWith('prepare')));

  calls.length = 0;
  const direct = { mayPromoteIn: (account: string) => Promise.resolve(account === 'prod') };
  t.like(await request(direct), { id: 5, state: 'done', to: { accountId: 2, name: 'team/app' } });
  t.false(
    calls.some((each) => each.startsWith('permit')),
    'the names of another account are not its own',
  );
  await rules.put(prod.id, 'prod', { ...takesOfDev, from: [], approval: 'another' });
  protocol.digest = 'sha256:three';
  t.like(await request(direct), { id: 6, state: 'requested' });
  await t.throwsAsync(approve(6, 'person a'), {
    name: 'Denied',
    message: 'You asked for the promotion 6 yourself. Another person approves it.',
  });
  t.like(await promotions.approve(6, undefined), { state: 'done' }, 'the operator of the machine approves everything');
  await rules.put(dev.id, 'dev', { ...takesOfDev, approval: 'another' });
  t.like(await request(own), { id: 7, state: 'requested' });
  await rules.put(dev.id, 'dev', takesOfDev);
  t.like(await approve(7, 'person a'), { state: 'done' }, 'nobody else has to approve it any more');
  t.is((await states()).length, 7);
});

const missing = (name: string) => ({
  name: 'NotFound',
  message: `There is no account ${name} that takes promotions from dev. An admin of it can allow them with PUT /v1/account/promotion.`,
});

test('an account that takes nothing of the own one is not told apart from one that is not there', async (t) => {
  const { calls, rules, request } = await open(t);
  await t.throwsAsync(request(), missing('prod'));
  await t.throwsAsync(
    request({ toAccount: 'x'.repeat(101), mayPromoteIn: () => Promise.resolve(true) }),
    missing('x'.repeat(100)),
  );
  await rules.put(prod.id, 'prod', { ...takesOfDev, from: ['other'] });
  await t.throwsAsync(request(), missing('prod'));
  t.deepEqual(calls, [], 'not even its names are read');
});

const full = () => Promise.reject(new DomainError('QuotaExceeded', 'no room'));

test('what cannot be written or has no room changes nothing', async (t) => {
  const { protocol, rules, request, approve, states, events } = await open(t);
  await rules.put(prod.id, 'prod', takesOfDev);
  await request();
  protocol.admit = full;
  await t.throwsAsync(approve(1), { name: 'QuotaExceeded' });
  await t.throwsAsync(request({ toAccount: 'dev', toName: 'x' }), { name: 'QuotaExceeded' });
  protocol.admit = () => Promise.resolve();
  protocol.write = full;
  await t.throwsAsync(approve(1), { name: 'QuotaExceeded' });
  await t.throwsAsync(request({ toAccount: 'dev', toName: 'x' }), { name: 'QuotaExceeded' });
  t.deepEqual([await states(), (await events()).length], [['1 requested'], 2]);
});

test('of two who approve at once, both get the one that is done', async (t) => {
  const { calls, rules, request, approve, events } = await open(t);
  await rules.put(prod.id, 'prod', takesOfDev);
  await request();
  const both = await Promise.all([approve(1), approve(1)]);
  t.deepEqual(both[0], both[1]);
  t.is(calls.filter((each) => each === 'write').length, 1);
  t.is((await events()).length, 4);
});

test('of a request that was rejected while it was being approved, nothing is written', async (t) => {
  const { calls, protocol, rules, request, approve, reject } = await open(t);
  await rules.put(prod.id, 'prod', takesOfDev);
  await request();
  protocol.admit = async () => void (await reject(1));
  await t.throwsAsync(approve(1), { message: 'The promotion 1 was rejected. Ask for a new one.' });
  t.false(calls.includes('write'));
});

const row = (id: number, changes: object = {}) => ({
  id,
  state: 'requested',
  kind: 'container',
  from_account: 1,
  from_name: 'a',
  reference: `r${id}`,
  digest: 'd',
  to_account: 2,
  to_name: 'a',
  reason: '',
  requester: 'person a',
  requested_by: JSON.stringify(ann),
  requested_at: id,
  decided_by: null,
  decided_at: null,
  ...changes,
});

test('promotions are listed for both accounts, by state, and in pages in both orders', async (t) => {
  const { database, promotions } = await open(t);
  const decided = { decided_by: JSON.stringify(bob), decided_at: 5 };
  const rows = [
    row(1),
    row(2, { from_account: 2, to_account: 1, state: 'done', ...decided }),
    row(3, { from_account: 3, to_account: 3 }),
    row(4, { from_account: 2, to_account: 2, state: 'rejected', ...decided }),
    row(5, { from_account: 3, to_account: 2, state: 'done', ...decided }),
  ];
  await database.transaction((tx) => tx.insertNew('promotions', rows));
  const list = async (...given: Parameters<Promotions['list']>) =>
    (await promotions.list(...given)).map(({ id }) => id).join('');
  t.is(await list(undefined, undefined, 9), '54321');
  t.is(await list(2, undefined, 9), '5421');
  t.is(await list(1, undefined, 9), '21');
  t.is(await list(3, undefined, 9), '53');
  t.is(await list(4, undefined, 9), '');
  t.is(await list(2, 'done', 9), '52');
  t.is(await list(undefined, 'requested', 9), '31');
  t.is(await list(2, undefined, 2), '54');
  t.is(await list(2, undefined, 2, { after: 4 }), '21');
  t.is(await list(2, undefined, 2, { after: 2 }), '1');
  t.is(await list(2, undefined, 9, { isOldest: true }), '1245');
  t.is(await list(2, undefined, 2, { isOldest: true, after: 1 }), '24');
  t.is(await list(undefined, undefined, 3, { isOldest: true }), '123');
  t.deepEqual((await promotions.get(undefined, 2)).decidedBy, bob);
});

test('what was decided long ago is deleted, all of it', async (t) => {
  const { database, promotions, states } = await open(t);
  const { signal } = new AbortController();
  const old = Array.from({ length: 101 }, (_, at) => row(at + 1, { state: 'done', decided_at: 9 }));
  await database.transaction(async (tx) => {
    for (const some of batches([...old, row(200, { state: 'rejected', decided_at: 10 }), row(201)]))
      await tx.insertNew('promotions', some);
  });
  await t.throwsAsync(promotions.deleteDecided(10, AbortSignal.abort(new Error('stopped'))), { message: 'stopped' });
  t.is((await states()).length, 103);
  t.is(await promotions.deleteDecided(10, signal), 101);
  t.deepEqual(await states(), ['200 rejected', '201 requested']);
  t.is(await promotions.deleteDecided(10, signal), 0);
  t.is(await promotions.deleteDecided(11, signal), 1);
});

test('undecided promotions are bounded for one requester and for an account', async (t) => {
  const { database, rules, request } = await open(t);
  await rules.put(prod.id, 'prod', takesOfDev);
  const add = (from: number, count: number, changes: object) =>
    database.transaction(async (tx) => {
      for (const some of batches(Array.from({ length: count }, (_, at) => row(from + at, changes))))
        await tx.insertNew('promotions', some);
    });
  await add(1, 99, {});
  await add(100, 50, { state: 'done' });
  await add(150, 50, { to_account: 3 });
  t.like(await request(), { id: 200 });
  const tooMany = {
    name: 'QuotaExceeded',
    message:
      'An account has at most 1000 promotions that nobody has decided, and 100 of one requester. Reject one that is not needed.',
  };
  await t.throwsAsync(request({ reference: 'v2' }), tooMany);
  t.like(await request(), { id: 200 }, 'the same one again');
  await add(300, 899, { requester: 'person c' });
  t.like(await request({ requester: 'person d' }), { state: 'requested' });
  await t.throwsAsync(request({ requester: 'person e' }), tooMany);
});

test('the rules of an account are stored, told and acted on', async (t) => {
  const { database, rules } = await open(t);
  t.deepEqual(await rules.of(2), { promoteOnly: false, approval: 'none', from: [] });
  await t.notThrowsAsync(rules.requirePushes(2, 'prod'));
  const given = { promoteOnly: true, approval: 'another', from: ['dev', 'test', 'dev'] } as const;
  await rules.put(2, 'prod', given);
  t.deepEqual(await rules.of(2), { ...given, from: ['dev', 'test'] });
  t.deepEqual(await rules.of(1), { promoteOnly: false, approval: 'none', from: [] });
  await t.throwsAsync(rules.requirePushes(2, 'prod'), {
    name: 'Denied',
    message:
      'The account prod takes no pushes, only promotions. Push to another account, and promote it from there with POST /v1/promotions.',
  });
  await rules.put(2, 'prod', takesOfDev);
  t.deepEqual(await rules.of(2), { ...takesOfDev, from: ['dev'] });
  await t.notThrowsAsync(rules.requirePushes(2, 'prod'));
  const subject = {
    type: 'promotion.rules_changed',
    account_id: 2,
    subject_kind: 'account',
    subject_name: 'prod',
    time: now,
  };
  t.deepEqual(
    (
      await database.select<{ details: string }>(
        'SELECT type, account_id, subject_kind, subject_name, time, details FROM events ORDER BY id',
      )
    ).map(({ details, ...each }) => ({ ...each, details: JSON.parse(details) as object })),
    [
      { ...subject, details: { promote_only: true, approval: 'another', from: ['dev', 'test', 'dev'] } },
      { ...subject, details: { promote_only: false, approval: 'none', from: ['dev'] } },
    ],
  );
});
