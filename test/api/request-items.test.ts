import test from 'ava';
import { waiverOperations } from '../../src/api/policy/waivers.ts';
import { promotionOperations } from '../../src/api/promotions/promotions.ts';
import type { Waiver } from '../../src/policy/waiver.ts';
import type { Promotion } from '../../src/promotion/promotion.ts';
import { named, noted, runOf, scopes, sender } from '../support/operations.ts';

// Who sees and decides what others have asked for. test/promotion and test/policy have requests of both.

const now = Date.UTC(2027, 0, 31);
const timeOf = (milliseconds: number) => new Date(milliseconds).toISOString();
const actor = (name: string) => ({ kind: 'token', id: name, name }) as const;
const accounts: Record<number, string> = { 7: 'alpha', 8: 'beta' };
const accountName = (id: number) => Promise.resolve(accounts[id]);

const promotion: Promotion = {
  id: 5,
  state: 'requested',
  kind: 'package',
  from: { accountId: 7, name: 'A.One' },
  reference: '1.0.0',
  digest: 'sha256:0',
  to: { accountId: 8, name: 'B.Two' },
  reason: 'why',
  requester: 'token:other',
  requestedBy: actor('other'),
  requestedAt: now,
  decidedBy: actor('decider'),
  decidedAt: now + 1,
};

function promotions(one: Partial<Promotion> = {}, { allowed = true } = {}) {
  const asked: unknown[] = [];
  const found = { ...promotion, ...one };
  let made: Record<string, any> = {};
  const operations = promotionOperations({
    promotions: {
      get: noted(asked, 'get', found),
      list: noted(asked, 'list', [found, { ...found, id: 4, from: { accountId: 7, name: 'C.Three' } }]),
      request: (given: object) => {
        made = given;
        return Promise.resolve(found);
      },
      approve: noted(asked, 'approve', found),
      reject: noted(asked, 'reject', found),
    },
    people: {
      principalOfId: (id: string, account: string) => {
        asked.push(['person', id, account]);
        return Promise.resolve(allowed ? { ...sender, ...scopes('promote'), ...named('b.two') } : undefined);
      },
    },
    accountName,
  } as never);
  return { run: runOf(operations), asked, made: () => made };
}

const shownPromotion = {
  id: 5,
  state: 'requested',
  kind: 'package',
  from_account: 'alpha',
  name: 'A.One',
  reference: '1.0.0',
  digest: 'sha256:0',
  to_account: 'beta',
  to_name: 'B.Two',
  reason: 'why',
  requested_by: null,
  requested_at: timeOf(now),
  decided_by: null,
  decided_at: timeOf(now + 1),
  is_own: false,
};
const withPeople = { requested_by: actor('other'), decided_by: actor('decider') };

/** The promotions that a list shows, what it has read, and its total. */
const promotionsOf = async (query: object, principal?: object) => {
  const { run, asked } = promotions();
  const { items, total } = await run('listPromotions', { query }, principal);
  return [items.map(({ id }: { id: number }) => id), asked[0], total];
};

test('a promotion shows who asked for it and who decided it to those who decide, and its requester what is theirs', async (t) => {
  const { run, asked } = promotions();
  t.deepEqual(await run('getPromotion'), shownPromotion);
  t.deepEqual(asked, [['get', 7, 5]]);
  for (const scope of ['promote', 'admin'])
    t.deepEqual(await run('getPromotion', {}, scopes(scope)), { ...shownPromotion, ...withPeople });
  const own = { ...shownPromotion, requested_by: actor('other'), is_own: true };
  t.deepEqual(await run('getPromotion', {}, { tokenId: 'other' }), own);
  const image = await promotions({ kind: 'container', decidedAt: null, to: { accountId: 9, name: 'x' } }).run(
    'getPromotion',
  );
  t.like(image, { kind: 'image', to_account: null, decided_at: null });
  t.is((await promotions({ from: { accountId: 9, name: 'x' } }).run('getPromotion'))['from_account'], null);
  for (const [id, number] of [
    ['12x', 0],
    ['1'.repeat(15), 111_111_111_111_111],
    ['1'.repeat(16), 0],
    ['x1', 0],
  ] as const) {
    asked.length = 0;
    await run('getPromotion', { params: { id } });
    t.deepEqual(asked, [['get', 7, number]]);
  }
});

test('a sender that is limited to names sees a promotion by the name in its own account', async (t) => {
  const sees = async (one: Partial<Promotion>, ...names: string[]) =>
    promotions(one)
      .run('getPromotion', {}, named(...names))
      .then(
        () => true,
        (error: Error) => {
          t.is(error.message, 'There is no promotion 5 in this account.');
          return false;
        },
      );
  t.true(await sees({}, 'a.one'));
  t.false(await sees({}, 'b.two'), 'the name in the other account');
  const there = { from: promotion.to, to: promotion.from };
  t.true(await sees(there, 'a.one'));
  t.false(await sees(there, 'b.two'));
  const within = { to: { accountId: 7, name: 'B.Two' } };
  t.true(await sees(within, 'a.one'));
  t.true(await sees(within, 'b.two'));
  t.false(await sees(within, 'c'));
  t.false(await sees({ kind: 'container' }, 'a.one'));

  t.deepEqual(await promotionsOf({}), [
    [5, 4],
    ['list', 7, undefined, 500, { after: undefined, isOldest: false }],
    undefined,
  ]);
  t.deepEqual((await promotionsOf({ q: 'B.TWO', sort: 'oldest', state: 'done', total: '1' })).slice(0, 3), [
    [5, 4],
    ['list', 7, 'done', 500, { after: undefined, isOldest: true }],
    { count: 2 },
  ]);
  t.deepEqual((await promotionsOf({ q: 'three' }))[0], [4]);
  t.deepEqual((await promotionsOf({}, named('c.*')))[0], [4]);
});

test('a promotion is decided in the account to which it goes, and can be withdrawn from the other one', async (t) => {
  const promote = scopes('promote');
  const away = promotions();
  await t.throwsAsync(away.run('approvePromotion', {}, promote), {
    name: 'Denied',
    message: 'The promotion 5 goes to another account, which approves or rejects it.',
  });
  t.deepEqual(await away.run('rejectPromotion', {}, promote), { ...shownPromotion, ...withPeople });
  t.deepEqual(away.asked.at(-1), ['reject', 5, 7]);
  const here = promotions({ from: promotion.to, to: promotion.from });
  t.is((await here.run('approvePromotion', {}, promote))['name'], 'B.Two');
  t.deepEqual(here.asked.at(-1), ['approve', 5, 'token:mine']);
  await here.run('rejectPromotion', {}, promote);
  t.deepEqual(here.asked.at(-1), ['reject', 5, 7]);
  const within = promotions({ to: { accountId: 7, name: 'B.Two' } });
  for (const id of ['approvePromotion', 'rejectPromotion']) {
    await t.throwsAsync(within.run(id), { name: 'ScopeMissing' });
    await t.throwsAsync(within.run(id, {}, { ...promote, ...named('a.one') }), { name: 'NameDenied' });
    await within.run(id, {}, { ...promote, ...named('b.two') });
  }
  await away.run('rejectPromotion', {}, { ...promote, ...named('a.one') });
});

test('a promotion is asked for with the names of its sender, and of a person with those in the other account', async (t) => {
  const body = { kind: 'package', name: 'A.One', reference: '1.0.0', reason: 'why' };
  const principal = { ...scopes('promote'), ...named('a.one') };
  const { run, made } = promotions();
  t.deepEqual(await run('promote', { body }, principal), { ...shownPromotion, ...withPeople });
  const { mayPromoteIn: _mayPromoteIn, permit, ...given } = made();
  t.deepEqual(given, {
    kind: 'package',
    account: { id: 7, name: 'alpha' },
    name: 'A.One',
    reference: '1.0.0',
    toAccount: 'alpha',
    toName: undefined,
    reason: 'why',
    requester: 'token:mine',
  });
  t.notThrows(() => permit('A.ONE'));
  t.throws(() => permit('b.two'), { name: 'NameDenied' });
  await run('promote', { body: { ...body, to_account: 'beta', to_name: 'B.Two' } }, principal);
  t.false(await made()['mayPromoteIn']('beta'), 'a token has no rights there');
  await t.throwsAsync(run('promote', { body: { ...body, name: 'B' } }, principal), { name: 'NameDenied' });

  const person = { ...principal, kind: 'person', personId: 'ann' };
  const asks = async (more: object, options?: object) => {
    const { run: ask, made: of, asked } = promotions({}, options);
    await ask('promote', { body: { ...body, ...more } }, person);
    t.is(of()['toAccount'], 'beta');
    const may = await of()['mayPromoteIn']('beta');
    t.deepEqual(asked, [['person', 'ann', 'beta']]);
    return may;
  };
  t.true(await asks({ to_account: 'beta', to_name: 'B.TWO' }));
  t.false(await asks({ to_account: 'beta' }), 'the name there is the same');
  t.false(await asks({ to_account: 'beta', to_name: 'B.Two' }, { allowed: false }), 'no rights there');
});

const waiver: Waiver = {
  id: 5,
  accountId: 7,
  state: 'requested',
  layer: null,
  kind: 'package',
  name: 'A.One',
  key: 'a.one',
  references: ['1.0.0'],
  lifts: 'age',
  reason: 'why',
  requester: 'token:other',
  requestedBy: actor('other'),
  requestedAt: now,
  decidedBy: actor('decider'),
  decidedAt: now + 1,
  expiresAt: now + 2000,
  endedAt: null,
};

function waivers(one: Partial<Waiver> = {}) {
  const asked: unknown[] = [];
  const found = { ...waiver, ...one };
  const operations = waiverOperations({
    waivers: {
      get: noted(asked, 'get', found),
      list: noted(asked, 'list', [found, { ...found, id: 4, name: 'C.Three', key: 'c.three' }]),
      resolve: noted(asked, 'resolve', { key: 'a.one', references: ['1.0.0'] }),
      request: noted(asked, 'request', found),
      decide: noted(asked, 'decide', found),
      end: noted(asked, 'end', undefined),
    },
    protocols: ['container', 'package'].map((kind) => ({
      kind,
      explain: (...given: unknown[]) => Promise.resolve(['story', kind, ...given]),
    })),
    accountName,
    now: () => now,
  } as never);
  return { run: runOf(operations), asked };
}

const shownWaiver = {
  id: 5,
  state: 'requested',
  account: 'alpha',
  layer: null,
  kind: 'package',
  name: 'A.One',
  references: ['1.0.0'],
  lifts: 'age',
  reason: 'why',
  requested_by: null,
  requested_at: timeOf(now),
  decided_by: null,
  decided_at: timeOf(now + 1),
  expires_at: timeOf(now + 2000),
  ended_at: null,
  is_own: false,
};

const everywhere = { query: { layer: 'all' } };

test('a waiver shows who asked for it and who decided it to administrators, and its requester what is theirs', async (t) => {
  const { run, asked } = waivers();
  t.deepEqual(await run('getWaiver'), shownWaiver);
  t.deepEqual(asked, [['get', 7, 5]]);
  for (const scope of ['admin', 'operate'])
    t.deepEqual(await run('getWaiver', {}, scopes(scope)), { ...shownWaiver, ...withPeople });
  const own = { ...shownWaiver, requested_by: actor('other'), is_own: true };
  t.deepEqual(await run('getWaiver', {}, { tokenId: 'other', ...named('c') }), own, 'whatever its names are');
  t.deepEqual(await run('getWaiver', {}, named('a.*')), shownWaiver);
  await t.throwsAsync(run('getWaiver', {}, named('c')), { message: 'There is no waiver 5 in this account.' });
  const ended = await waivers({ endedAt: now + 3, expiresAt: now, decidedAt: null, accountId: 9 }).run('getWaiver');
  t.like(ended, { state: 'ended', ended_at: timeOf(now + 3), decided_at: null, account: null });
  asked.length = 0;
  await run('getWaiver', everywhere, scopes('operate'));
  await run('getWaiver', { params: { id: '12' } });
  await run('getWaiver', { params: { id: '1'.repeat(16) } });
  t.deepEqual(asked, [
    ['get', undefined, 5],
    ['get', 7, 12],
    ['get', 7, 0],
  ]);
  await t.throwsAsync(run('getWaiver', everywhere, scopes('admin')), { name: 'ScopeMissing' });

  const idsOf = async (query: object, principal?: object) => {
    const { run: list, asked: of } = waivers();
    return [(await list('listWaivers', { query }, principal))['items'].map(({ id }: { id: number }) => id), of[0]];
  };
  t.deepEqual(await idsOf({}), [
    [5, 4],
    ['list', 7, undefined, 500, { after: undefined, isOldest: false }],
  ]);
  t.deepEqual(await idsOf({ layer: 'all', q: 'THREE', state: 'approved', sort: 'oldest' }, scopes('operate')), [
    [4],
    ['list', undefined, 'approved', 500, { after: undefined, isOldest: true }],
  ]);
  t.deepEqual((await idsOf({}, named('a.one')))[0], [5]);
});

test('the next page of both lists goes on after the last one that was shown', async (t) => {
  for (const [id, { run, asked }] of [
    ['listPromotions', promotions()],
    ['listWaivers', waivers()],
  ] as const) {
    const { next_cursor: cursor } = await run(id, { query: { limit: '1' } });
    await run(id, { query: { limit: '1', cursor } });
    t.deepEqual(asked.at(-1), ['list', 7, undefined, 500, { after: 5, isOldest: false }]);
    const other =
      id === 'listWaivers'
        ? promotions().run('listPromotions', { query: { cursor } })
        : waivers().run('listWaivers', { query: { cursor } });
    await t.throwsAsync(other, { name: 'Invalid' }, 'a cursor of the other list');
  }
});

test('a waiver is decided for the account with admin, and for all accounts with operate', async (t) => {
  for (const [id, state] of [
    ['approveWaiver', 'approved'],
    ['rejectWaiver', 'rejected'],
  ] as const) {
    const { run, asked } = waivers({ accountId: 8 });
    const decided = (layer: string) => [
      'decide',
      8,
      5,
      state === 'approved' ? { state, layer } : { state },
      'token:mine',
    ];
    t.is((await run(id, {}, scopes('admin')))['id'], 5);
    t.deepEqual(asked.at(-1), decided('account'));
    await run(id, everywhere, scopes('operate'));
    t.deepEqual(asked.at(-1), decided('all'));
    await t.throwsAsync(run(id, {}, scopes('operate')), { name: 'ScopeMissing' });
    await t.throwsAsync(run(id, everywhere, scopes('admin')), { name: 'ScopeMissing' });
    await run(id, {}, { ...scopes('admin'), ...named('a.one') });
    await t.throwsAsync(run(id, {}, { ...scopes('admin'), ...named('c') }), { name: 'NotFound' });
  }
  const { run, asked } = waivers({ accountId: 8 });
  await t.throwsAsync(run('endWaiver'), { name: 'ScopeMissing' });
  for (const [call, principal] of [
    [{}, { tokenId: 'other' }],
    [{}, scopes('admin')],
    [everywhere, scopes('operate')],
  ] as const) {
    await run('endWaiver', call, principal);
    t.deepEqual(asked.pop(), ['end', 8, 5]);
  }
});

test('a waiver is asked for by those who may read the name, and says what its references are', async (t) => {
  const body = {
    kind: 'package',
    name: 'A.One',
    references: ['1'],
    lifts: 'age',
    reason: 'why',
    expires_at: timeOf(now + 9),
  };
  const { run, asked } = waivers();
  t.deepEqual(await run('requestWaiver', { body }, named('a.one')), shownWaiver);
  t.deepEqual(asked, [
    ['resolve', ['story', 'package', 7, 'A.One'], 'A.One', ['1']],
    [
      'request',
      {
        key: 'a.one',
        references: ['1.0.0'],
        accountId: 7,
        kind: 'package',
        lifts: 'age',
        reason: 'why',
        requester: 'token:mine',
        expiresAt: now + 9,
      },
    ],
  ]);
  await t.throwsAsync(run('requestWaiver', { body }, named('c')), { name: 'NameDenied' });
  await run('requestWaiver', { body: { ...body, kind: 'image' } });
  t.deepEqual(asked.at(-2), ['resolve', ['story', 'container', 7, 'A.One'], 'A.One', ['1']]);
});
