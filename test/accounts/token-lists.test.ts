import test, { type ExecutionContext } from 'ava';
import { KnownPeople } from '../../src/accounts/known-people.ts';
import { PersonalTokenLimits } from '../../src/accounts/personal-limits.ts';
import type { Scope } from '../../src/accounts/principal.ts';
import { Tokens, type NewToken } from '../../src/accounts/tokens.ts';
import { accountsWithBills, someWantBills, WantedBills } from '../../src/accounts/wanted-bills.ts';
import type { Database, Dialect, Row } from '../../src/database/database.ts';
import type { Rank } from '../../src/runtime/ranked.ts';
import { changedDatabase, dialects } from '../support/databases.ts';
import { ann, annId, day, openPeople } from '../support/people.ts';

// Lists of tokens, personal tokens, those of rules, and what an account allows. test/api has the requests.

const idle = 30 * day;
const by = { kind: 'person', id: 'p', name: 'Maker' } as const;

async function open(t: ExecutionContext, dialect: Dialect) {
  const scopes: Scope[] = ['read', 'write', 'operate'];
  const rules = [{ claim: 'team', value: 'build', account: 'alpha', scopes }];
  const opened = await openPeople(t, dialect, rules, { idle, absolute: 90 * day });
  const { database, now, alpha, people, tokens } = opened;
  const make = (name: string, more: Partial<NewToken> = {}, account = alpha) =>
    tokens.create(account.id, { name, scopes: ['read'], ...more });
  const known = new KnownPeople(database, people, now);
  const limits = new PersonalTokenLimits(database, people, now);
  return { ...opened, make, known, limits };
}

let added = 0;

/** Adds rows of tokens, each made a millisecond after the one before. */
async function addRows(database: Database, account: number, count: number, more: Row = {}): Promise<void> {
  const rows = Array.from({ length: count }, (_, at): Row => {
    const id = `row-${(added += 1)}`;
    const row = { id, account_id: account, name: 'many', token_prefix: '', hash: id, scopes: 'read', created_at: at };
    return { ...row, ...more };
  });
  await database.transaction(async (tx) => {
    for (let from = 0; from < count; from += 500) await tx.insertNew('tokens', rows.slice(from, from + 500));
  });
}

const namesOf = (tokens: readonly { name: string }[]) => tokens.map(({ name }) => name);

for (const dialect of dialects) {
  test(`${dialect}: tokens are listed from the latest or the last used on, page by page, and found by values`, async (t) => {
    const { tokens, make, clock, alpha, beta, database } = await open(t, dialect);
    const start = clock.now!;
    const made = [await make('first')];
    clock.now = start + 1;
    // Three are made at the same time.
    for (const more of [{}, { personId: annId }, { publisherId: 'rule', expiresAt: start + 10 }])
      made.push(await make('same', more));
    clock.now = start + 2;
    made.push(await make('last', { expiresAt: start + 5 }));
    const foreign = await make('foreign', {}, beta);
    const [first, same] = made;
    const all = await tokens.list(alpha.id, 10);
    const order = made
      .map(({ token }) => token)
      .toSorted((a, b) => b.createdAt - a.createdAt || (a.id < b.id ? 1 : -1))
      .map(({ id }) => id);
    t.deepEqual(
      all.map(({ id }) => id),
      order,
    );
    for (const [at, { createdAt, id }] of all.entries())
      t.deepEqual(await tokens.list(alpha.id, 2, [createdAt, id]), all.slice(at + 1, at + 3), `after ${at}`);
    const ofAnn = all.filter(({ personId }) => personId === annId);
    t.deepEqual([await tokens.list(alpha.id, 10, undefined, annId), ofAnn.length], [ofAnn, 1]);
    t.deepEqual(await tokens.list(beta.id, 10, undefined, annId), []);

    t.deepEqual(await tokens.find(alpha.id, first!.value), [await tokens.get(alpha.id, first!.token.id)]);
    const beginning = first!.value.slice(0, 8);
    await database.transaction((tx) => tx.run("UPDATE tokens SET token_prefix = ? WHERE name <> 'last'", [beginning]));
    const found = async (value: string) => (await tokens.find(alpha.id, value)).map(({ id }) => id);
    const begun = order.filter((id) => id !== made[4]!.token.id);
    t.deepEqual([await found(beginning), await found(`${beginning}more`)], [begun, begun]);
    t.deepEqual([await found(beginning.slice(0, 7)), await found(foreign.value)], [[], []]);
    t.deepEqual(await found(`${beginning}${'A'.repeat(32)}`), [], 'a whole value is not only a beginning');
    t.is(await tokens.get(alpha.id, foreign.token.id), undefined);
    t.is(await tokens.verifiedById('unknown'), undefined);

    clock.now = start + 3;
    await tokens.verify(first!.value);
    clock.now = start + 4;
    t.is((await tokens.verifiedById(same!.token.id))?.tokenId, same!.token.id);
    await tokens.flush();
    const byUse = async (limit: number, after?: Rank) => tokens.byUse(alpha.id, limit, after);
    const ranked = await byUse(10);
    t.deepEqual(
      ranked.map(({ rank }) => rank[0]),
      [start + 4, start + 3, null, null, null],
    );
    t.deepEqual([ranked[0]!.item.id, ranked[0]!.item.lastUsedAt], [same!.token.id, start + 4]);
    t.deepEqual(await byUse(2, ranked[0]!.rank), ranked.slice(1, 3));
    clock.now = start + 5;
    t.is((await tokens.list(alpha.id, 10)).length, 5, 'an expired one stays');
    clock.now = start + 10;
    t.deepEqual([(await tokens.list(alpha.id, 10)).length, (await byUse(10)).length], [4, 4], 'but not one of a rule');
  });

  test(`${dialect}: a token has all that it was made with, and its events say who made it`, async (t) => {
    const { tokens, make, clock, alpha, grants, database } = await open(t, dialect);
    const start = clock.now!;
    const job = { id: 'j', issuer: 'ci', repository: 'team/app', ref: null, run: '7', subject: 's' };
    const patterns = { packages: ['A.*'] };
    const more = { publisherId: 'rule', job, patterns, createdBy: by, expiresAt: start + day, details: { via: 'x' } };
    const { token, value } = await make(' ci ', { ...more, scopes: ['write', 'read'] });
    t.deepEqual(token, {
      id: token.id,
      name: 'ci',
      tokenPrefix: value.slice(0, 8),
      scopes: ['read', 'write'],
      patterns,
      publisherId: 'rule',
      personId: null,
      createdBy: by,
      createdAt: start,
      expiresAt: start + day,
      lastUsedAt: null,
      revokedAt: null,
      refusedBecause: null,
    });
    t.deepEqual(await tokens.get(alpha.id, token.id), token);
    const { names, ...principal } = (await tokens.verify(value))!;
    t.deepEqual(principal, {
      kind: 'token',
      accountId: alpha.id,
      accountName: 'alpha',
      tokenId: token.id,
      tokenName: 'ci',
      publisherId: 'rule',
      personId: null,
      personName: null,
      job,
      expiresAt: start + day,
      isShortLived: true,
      scopes: new Set<Scope>(['read', 'write']),
      shared: undefined,
    });
    t.true(names!.of('package').includes('a.b'));
    const longer = await make('longer', { expiresAt: start + day + 1 });
    const plain = await make('plain');
    for (const each of [longer, plain]) t.like(await tokens.verify(each.value), { isShortLived: false, job: null });
    await grants.add(alpha.id, { subject: { kind: 'token', id: plain.token.id }, verbs: ['delete'] });
    t.deepEqual([...(await tokens.verify(plain.value))!.scopes], ['read', 'delete'], 'with what a grant gives');
    t.deepEqual([...(await tokens.verify(longer.value))!.scopes], ['read']);
    for (const each of [plain, plain, longer]) await tokens.revoke(alpha.id, each.token.id);
    const events = await database.select<Record<'type' | 'actor_kind' | 'subject_name' | 'details', string>>(
      `SELECT type, actor_kind, subject_name, details FROM events WHERE type LIKE 'token.%' ORDER BY id`,
    );
    t.deepEqual(
      events.map((each) => [each.type, each.actor_kind, each.subject_name, JSON.parse(each.details) as object]),
      [
        [
          'token.created',
          'person',
          'ci',
          {
            token_id: token.id,
            scopes: ['read', 'write'],
            patterns,
            expires_at: new Date(start + day).toISOString(),
            via: 'x',
          },
        ],
        [
          'token.created',
          'system',
          'longer',
          { token_id: longer.token.id, scopes: ['read'], expires_at: new Date(start + day + 1).toISOString() },
        ],
        ['token.created', 'system', 'plain', { token_id: plain.token.id, scopes: ['read'], expires_at: null }],
        ['token.revoked', 'system', 'plain', { token_id: plain.token.id }],
        ['token.revoked', 'system', 'longer', { token_id: longer.token.id }],
      ],
    );
  });

  test(`${dialect}: a personal token says why it is refused, and its account limits it`, async (t) => {
    const { tokens, make, clock, alpha, beta, people, known, limits, database } = await open(t, dialect);
    const start = clock.now!;
    await people.signedIn(ann);
    const mine = await make('mine', { personId: annId, scopes: ['read', 'write', 'admin'] });
    const none = await make('none', { personId: annId }, beta);
    const state = async (of = mine, account = alpha) => {
      const principal = await tokens.verify(of.value);
      return [
        (await tokens.get(account.id, of.token.id))!.refusedBecause,
        principal && [...principal.scopes].join(' '),
      ];
    };
    t.deepEqual(await state(), [null, 'read write']);
    t.like(await tokens.verify(mine.value), { personId: annId, personName: 'Ann' });
    t.deepEqual(await state(none, beta), ['no_rights', undefined]);
    t.deepEqual(await limits.of(alpha.id), { scopes: null, longest: null });
    t.deepEqual(await limits.of(999), { scopes: null, longest: null });
    await limits.put(alpha, { scopes: ['write', 'delete'], longest: 5 * day });
    t.deepEqual(await limits.of(alpha.id), { scopes: ['write', 'delete'], longest: 5 * day });
    t.deepEqual(await limits.of(beta.id), { scopes: null, longest: null });
    t.deepEqual(await state(), [null, 'write']);
    t.is((await tokens.get(alpha.id, mine.token.id))!.expiresAt, start + 5 * day);
    clock.now = start + 5 * day;
    t.is((await state())[1], undefined);
    await limits.put(alpha, { scopes: null, longest: null });
    await t.throwsAsync(limits.put(alpha, { scopes: ['sudo'], longest: null }), { name: 'Invalid' });
    const details = await database.select<{ account_id: number; subject_name: string; details: string }>(
      "SELECT account_id, subject_name, details FROM events WHERE type = 'token.limits_changed' ORDER BY id",
    );
    t.deepEqual(
      details.map((each) => [each.account_id, each.subject_name, JSON.parse(each.details) as object]),
      [
        [alpha.id, 'alpha', { scopes: ['write', 'delete'], longest_seconds: 432_000 }],
        [alpha.id, 'alpha', { scopes: null, longest_seconds: null }],
      ],
    );
    await known.disable(annId, alpha, 'left');
    t.deepEqual(await state(), ['disabled', undefined]);
    await known.enable(annId, alpha);
    clock.now = start + idle - 1;
    t.deepEqual(await state(), [null, 'read write']);
    clock.now = start + idle;
    t.deepEqual(await state(), ['no_sign_in', undefined]);
    const unknown = await make('unknown', { personId: 'nobody' });
    t.deepEqual(await state(unknown), ['no_sign_in', undefined]);
    const plain = new Tokens(database, clock.time);
    t.is(await plain.verify(mine.value), undefined, 'without people');
    t.is((await plain.get(alpha.id, mine.token.id))!.refusedBecause, 'no_sign_in');
  });

  test(`${dialect}: limits concern who operates only by a valid personal token that may operate`, async (t) => {
    const { make, tokens, clock, alpha, beta, people, limits } = await open(t, dialect);
    const start = clock.now!;
    await people.signedIn(ann);
    const concerned = () => limits.concernOperate(alpha);
    await make('read', { personId: annId });
    await make('plain', { scopes: ['operate'] });
    await make('elsewhere', { personId: annId, scopes: ['operate'] }, beta);
    t.false(await concerned());
    const one = await make('one', { personId: annId, scopes: ['read', 'operate'] });
    t.true(await concerned());
    await tokens.revoke(alpha.id, one.token.id);
    t.false(await concerned());
    await make('short', { personId: annId, scopes: ['operate'], expiresAt: start + 10 });
    clock.now = start + 9;
    t.true(await concerned());
    clock.now = start + 10;
    t.false(await concerned());
    await make('last', { personId: annId, scopes: ['operate'] });
    clock.now = start + idle - 1;
    t.true(await concerned());
    clock.now = start + idle;
    t.false(await concerned(), 'the person does not sign in any more');
    await people.signedIn({ ...ann, claims: [] });
    t.false(await concerned(), 'the person may not operate any more');
  });

  test(`${dialect}: tokens of a rule are revoked together, and deleted once they have expired`, async (t) => {
    const { tokens, make, clock, alpha, database } = await open(t, dialect);
    const start = clock.now!;
    const given = (publisherId: string, expiresAt: number) => make('given', { publisherId, expiresAt });
    const early = await given('rule', start + 1);
    const late = [await given('rule', start + 2), await given('rule', start + 3)];
    const other = await given('other', start + 9);
    await make('plain', { expiresAt: start + 1 });
    await tokens.revoke(alpha.id, late[0]!.token.id);
    clock.now = start + 1;
    t.is(await database.transaction((tx) => tokens.revokeGiven(tx, 'rule')), 1);
    const revokedAt = async ({ token }: typeof early) => (await tokens.get(alpha.id, token.id))!.revokedAt;
    t.deepEqual(await Promise.all([early, ...late, other].map(revokedAt)), [null, start, start + 1, null]);
    t.is(await tokens.verify(late[1]!.value), undefined);
    t.truthy(await tokens.verify(other.value));
    t.is(await tokens.deleteExpired(), 1);
    t.is(await tokens.deleteExpired(), 0);
    clock.now = start + 3;
    t.is(await tokens.deleteExpired(), 2);
    t.deepEqual(
      namesOf(await database.select<{ name: string }>('SELECT name FROM tokens ORDER BY name')),
      ['given', 'plain'],
      'one that no rule gave stays',
    );
  });

  test(`${dialect}: a person has at most 50 valid tokens in all accounts, and a rule gives at most 1,000`, async (t) => {
    const { make, tokens, clock, alpha, beta, database } = await open(t, dialect);
    const ofAnn = { personId: annId };
    for (let each = 0; each < 25; each += 1) for (const account of [alpha, beta]) await make('many', ofAnn, account);
    const message = 'A person has at most 50 valid tokens. Revoke one that is not needed.';
    await t.throwsAsync(make('more', ofAnn), { name: 'QuotaExceeded', message });
    await t.notThrowsAsync(make('of another', { personId: 'other' }));
    const [latest] = await tokens.list(alpha.id, 1, undefined, annId);
    await tokens.revoke(alpha.id, latest!.id);
    await make('short', { ...ofAnn, expiresAt: clock.now! + 5 });
    await t.throwsAsync(make('more', ofAnn), { message });
    clock.now! += 5;
    await t.notThrowsAsync(make('more', ofAnn));

    await addRows(database, alpha.id, 999, { publisher_id: 'rule', expires_at: clock.now! + 10 });
    const give = () => make('given', { publisherId: 'rule', expiresAt: clock.now! + 20 });
    await give();
    const refused = await t.throwsAsync(give(), {
      name: 'TooManyRequests',
      message: 'The rule of this token has given 1000 tokens that are valid.',
    });
    t.like(refused, { retryAfter: 60 });
    await t.notThrowsAsync(make('given', { publisherId: 'another rule', expiresAt: clock.now! + 20 }));
    clock.now! += 10;
    await t.notThrowsAsync(give());
  });

  test(`${dialect}: of 2,000 tokens of an account the 500 oldest that are not valid are deleted`, async (t) => {
    const { make, clock, alpha, beta, database } = await open(t, dialect);
    await addRows(database, beta.id, 1000);
    await addRows(database, beta.id, 5, { revoked_at: 1 });
    await addRows(database, alpha.id, 5, { publisher_id: 'rule', expires_at: 1 });
    await addRows(database, alpha.id, 1999, { name: 'old', revoked_at: 1 });
    const left = async () => {
      const sql = `SELECT account_id, name, COUNT(*) AS n, MIN(created_at) AS oldest FROM tokens GROUP BY account_id, name
        ORDER BY account_id, name`;
      const rows = await database.select<Record<'account_id' | 'name' | 'n' | 'oldest', unknown>>(sql);
      return rows.filter(({ name }) => name !== 'made').map((row) => [row.account_id, row.name, row.n, row.oldest]);
    };
    await make('made');
    const others = [
      [alpha.id, 'many', 5, 0],
      [beta.id, 'many', 1005, 0],
    ];
    t.deepEqual(await left(), [others[0], [alpha.id, 'old', 1999, 0], others[1]], 'it had fewer');
    await t.throwsAsync(make('more', {}, beta), { name: 'QuotaExceeded', message: /at most 1000 valid tokens/ });
    const given = await make('given', { publisherId: 'rule', expiresAt: clock.now! + 1 }, beta);
    await database.transaction((tx) => tx.run('DELETE FROM tokens WHERE id = ?', [given.token.id]));
    await make('made');
    t.deepEqual(await left(), [others[0], [alpha.id, 'old', 1499, 500], others[1]]);
    // Those of a start that an older version made are kept.
    await addRows(database, alpha.id, 2000, { name: 'first token', revoked_at: 1 });
    await database.transaction((tx) => tx.run("DELETE FROM tokens WHERE name = 'old'"));
    await make('made');
    t.deepEqual(await left(), [[alpha.id, 'first token', 2000, 0], ...others]);
  });

  test(`${dialect}: the first token of an account is made if it has none, whatever others have`, async (t) => {
    const { make, tokens, alpha, beta } = await open(t, dialect);
    await make('mine');
    t.is(await tokens.bootstrap(alpha.id), undefined);
    const value = (await tokens.bootstrap(beta.id))!;
    t.like(await tokens.verify(value), { accountId: beta.id, tokenName: 'first token' });
    t.deepEqual([await tokens.isKnown(value), await tokens.isKnown(`${value}x`)], [true, false]);
    t.is(await tokens.bootstrap(beta.id), undefined);
  });

  test(`${dialect}: the latest uses count, also while earlier ones are written`, async (t) => {
    const { make, tokens, clock, alpha, database } = await open(t, dialect);
    const start = clock.now!;
    const [one, other] = [await make('one'), await make('other')];
    const written = Promise.withResolvers<void>();
    const slow = new Tokens(
      changedDatabase(database, {
        transaction: async (work) => {
          await written.promise;
          return database.transaction(work);
        },
      }),
      clock.time,
    );
    await slow.flush();
    for (const { value } of [one, other]) await slow.verify(value);
    const flushing = slow.flush();
    clock.now = start + 5;
    await slow.verify(one.value);
    const sorted = () => [...slow.unwritten()].toSorted((a, b) => b[1] - a[1]);
    t.deepEqual(sorted(), [
      [one.token.id, start + 5],
      [other.token.id, start],
    ]);
    written.resolve();
    await flushing;
    t.deepEqual(sorted(), [[one.token.id, start + 5]]);
    await slow.restore(
      new Map([
        [one.token.id, start + 3],
        [other.token.id, start - 1],
      ]),
    );
    const usedAt = async ({ token }: typeof one) => (await tokens.get(alpha.id, token.id))!.lastUsedAt;
    t.deepEqual([await usedAt(one), await usedAt(other)], [start + 3, start], 'it never goes back');
  });

  test(`${dialect}: accounts want bills of materials from a change on, which is an event`, async (t) => {
    const { database, clock, alpha, beta } = await open(t, dialect);
    const bills = new WantedBills(database, clock.time);
    const done: string[] = [];
    const note = (what: string) => () => {
      done.push(what);
      return Promise.resolve();
    };
    const wanting = async () => [...(await accountsWithBills(database, [alpha.id, beta.id]))];
    t.deepEqual([await bills.has(alpha.id), await someWantBills(database), await wanting()], [false, false, []]);
    await bills.put(alpha, true, { before: note('before'), after: note('after') });
    t.deepEqual([await bills.has(alpha.id), await bills.has(beta.id)], [true, false]);
    t.deepEqual([await someWantBills(database), await wanting()], [true, [alpha.id]]);
    t.deepEqual([...(await accountsWithBills(database, [beta.id]))], []);
    await bills.put(alpha, false, { before: note('before') });
    t.deepEqual([await bills.has(alpha.id), await someWantBills(database)], [false, false]);
    t.deepEqual(done, ['before', 'after', 'before']);
    const events = await database.select<{ account_id: number; subject_name: string; details: string }>(
      "SELECT account_id, subject_name, details FROM events WHERE type = 'account.bills_changed' ORDER BY id",
    );
    t.deepEqual(
      events.map((each) => [each.account_id, each.subject_name, JSON.parse(each.details) as object]),
      [true, false].map((enabled) => [alpha.id, 'alpha', { enabled }]),
    );
  });
}
