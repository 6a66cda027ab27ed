import test, { type ExecutionContext } from 'ava';
import { Accounts } from '../../src/accounts/accounts.ts';
import { Grants } from '../../src/accounts/grants.ts';
import { KnownPeople } from '../../src/accounts/known-people.ts';
import { everywhere, isDisabled, People, personIdOf, type Person } from '../../src/accounts/people.ts';
import type { Scope } from '../../src/accounts/principal.ts';
import type { Dialect } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { testClock } from '../support/clock.ts';
import { dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// What people may do by their claims and groups. test/identity/people.test.ts signs in at a provider.

const issuer = 'https://provider.example';
const day = 86_400_000;
const idle = 30 * day;

const rule = (claim: string, value: string, account: string, ...scopes: Scope[]) => ({ claim, value, account, scopes });
const rules = [
  // There is no such account.
  rule('team', 'build', 'gone', 'read'),
  rule('team', 'build', 'zeta', 'read', 'write'),
  rule('role', 'chief', 'zeta', 'admin'),
  rule('role', 'chief', 'alpha', 'operate'),
];

const ann: Person = { issuer, subject: 'ann', name: 'Ann', claims: [['team', 'build']], groups: [] };
const annId = personIdOf(ann);
const disabled = { by: { kind: 'system', id: null, name: null }, at: 1, reason: 'left' } as const;

async function open(t: ExecutionContext, dialect: Dialect, provider: string | undefined = issuer) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
  await migrate(database);
  const clock = testClock(1000 * day);
  const now = clock.time;
  const accounts = new Accounts(database, now);
  const [alpha, beta, zeta] = [
    await accounts.create('alpha'),
    await accounts.create('beta'),
    await accounts.create('zeta'),
  ];
  const grants = new Grants({ database, accounts, now }, provider);
  const parts = { database, accounts, grants, now };
  const people = new People(parts, { issuer: provider, rules }, { idle, absolute: day });
  const known = new KnownPeople(database, people, now);
  const grant = (accountId: number, kind: string, id: string, ...verbs: string[]) =>
    grants.add(accountId, { subject: { kind, id, issuer }, verbs });
  const scopesIn = async (person: Person, accountId: number) =>
    [...((await people.principalOf(person, accountId))?.scopes ?? [])].toSorted((a, b) => (a < b ? -1 : 1));
  return { database, clock, alpha, beta, zeta, grants, people, parts, known, grant, scopesIn };
}

for (const dialect of dialects) {
  test(`${dialect}: rules and grants together give rights, unless the person is disabled there`, async (t) => {
    const { people, grant, grants, scopesIn, parts, alpha, beta, zeta } = await open(t, dialect);
    await grant(beta.id, 'person', 'ann', 'read');
    await grant(beta.id, 'group', 'dev', 'write');
    await grant(zeta.id, 'group', 'dev', 'delete');
    t.deepEqual(await scopesIn(ann, zeta.id), ['read', 'write']);
    t.deepEqual(await scopesIn(ann, beta.id), ['read']);
    t.deepEqual(await scopesIn(ann, alpha.id), []);
    t.is(await people.principalOf(ann, 999), undefined);
    const chief = { ...ann, claims: [['role', 'chief'], ...ann.claims] as Person['claims'], groups: ['dev', 'x'] };
    t.deepEqual(await scopesIn(chief, zeta.id), ['admin', 'delete', 'read', 'write']);
    t.deepEqual(await scopesIn(chief, alpha.id), ['operate']);
    t.deepEqual(await scopesIn(chief, beta.id), ['read', 'write']);
    t.like(await people.principalOf(chief, zeta.id), {
      kind: 'person',
      accountId: zeta.id,
      accountName: 'zeta',
      personId: annId,
      personName: 'Ann',
      // Those of rules in their order, then those of grants.
      accounts: ['gone', 'zeta', 'alpha', 'beta'],
    });
    t.deepEqual([...people.ruledScopesOf(chief)].toSorted(), ['admin', 'operate', 'read', 'write']);
    const elsewhere = 'https://other.example';
    await grants.add(beta.id, { subject: { kind: 'person', id: 'ann', issuer: elsewhere }, verbs: ['read'] });
    for (const { id } of [beta, zeta]) t.deepEqual(await scopesIn({ ...chief, issuer: elsewhere }, id), []);
    t.deepEqual([...people.ruledScopesOf({ ...chief, issuer: elsewhere })], []);
    t.deepEqual(await scopesIn({ ...ann, claims: [['team', 'other']] }, zeta.id), []);
    t.deepEqual(await scopesIn({ ...ann, claims: [['role', 'build']] }, zeta.id), []);

    const only = { ...chief, disabled: { zeta: disabled } };
    t.deepEqual([isDisabled(only, 'zeta'), isDisabled(only, 'beta'), isDisabled(ann, 'zeta')], [true, false, false]);
    t.deepEqual([await scopesIn(only, zeta.id), await scopesIn(only, beta.id)], [[], ['read', 'write']]);
    t.deepEqual((await people.principalOf(only, beta.id))!.accounts, ['gone', 'alpha', 'beta']);
    t.deepEqual([...people.ruledScopesOf(only)].toSorted(), ['operate', 'read']);
    const all = { ...chief, disabled: { [everywhere]: disabled } };
    t.deepEqual([await scopesIn(all, zeta.id), await scopesIn(all, beta.id)], [[], []]);

    t.true(await people.hasScope(all, 'alpha', 'operate'), 'also where the person is disabled');
    t.false(await people.hasScope(all, 'zeta', 'operate'));
    t.false(await people.hasScope(all, 'unknown', 'operate'));
    t.deepEqual(people.rulesOf('zeta'), [rules[1]!, rules[2]!]);
    const ofGroup = await people.rightsOfGroup('dev', { id: beta.id, name: 'beta', version: 1 });
    t.deepEqual(
      ofGroup.map(({ scopes }) => scopes),
      [['write']],
    );
    const byClaim = new People(parts, { issuer, rules: [rule('groups', 'ops', 'alpha', 'read')] }, people.tokenTimes);
    t.deepEqual(await byClaim.rightsOfGroup('ops', { id: alpha.id, name: 'alpha', version: 0 }), [
      { scopes: ['read'], patterns: null },
    ]);
    const shared = async () => (await people.principalOf(ann, zeta.id))!.shared;
    t.is(await shared(), undefined);
    const toZeta = { subject: { kind: 'account', id: 'zeta' }, verbs: ['read'], patterns: { packages: ['a'] } };
    await grants.accept(zeta.id, (await grants.add(beta.id, toZeta)).id);
    t.truthy(await shared(), 'what another account shares');
    t.regex(annId, /^[0-9a-f]{32}$/);
    t.true(await people.needsGroups());
    const without = await open(t, dialect, '');
    t.false(await without.people.needsGroups(), 'no grant names a group');
  });

  test(`${dialect}: a sign-in replaces what is known, and of groups keeps those with grants first`, async (t) => {
    const { people, grant, beta, database, clock } = await open(t, dialect);
    await grant(beta.id, 'group', 'last', 'read');
    const groups = Array.from({ length: 600 }, (_, at) => `g${at}`);
    const signed = await people.signedIn({ ...ann, groups: [...groups, 'last'] });
    t.deepEqual(signed, { ...ann, groups: ['last', ...groups.slice(0, 500)], disabled: {} });
    t.deepEqual((await people.withSubject('ann')).groups, signed.groups);
    const { groups: _none, ...older } = ann;
    t.deepEqual((await people.signedIn(older)).groups, [], 'a provider may send no groups');
    t.deepEqual(await people.withSubject('bob'), { issuer, subject: 'bob', name: 'bob', claims: [] });

    clock.now! += 7;
    const changed = await people.signedIn({ ...ann, name: 'Ann B', claims: [] });
    t.deepEqual(changed, { ...ann, name: 'Ann B', claims: [], disabled: {} });
    t.deepEqual(await database.select('SELECT id, signed_in_at FROM people'), [
      { id: annId, signed_in_at: clock.now! },
    ]);
    t.is((await people.principalOfId(annId, 'beta'))?.accountName, undefined, 'no group any more');
    await people.signedIn({ ...ann, groups: ['last'] });
    t.is((await people.principalOfId(annId, 'beta'))?.accountName, 'beta');
    t.is(await people.principalOfId(annId, 'unknown'), undefined);
    t.is(await people.principalOfId('unknown', 'beta'), undefined);
  });

  test(`${dialect}: people who are too long away are forgotten, except who is disabled`, async (t) => {
    const { people, known, database, clock } = await open(t, dialect);
    await people.signedIn(ann);
    const bob = { ...ann, subject: 'bob', name: 'Bob' };
    await people.signedIn(bob);
    await known.disable(personIdOf(bob), undefined, 'left');
    const start = clock.now!;
    t.true(people.isCurrent(start - idle + 1));
    t.false(people.isCurrent(start - idle));
    const count = async () => (await database.select('SELECT id FROM people')).length;
    clock.now = start + idle - 1;
    const eve = { ...ann, subject: 'eve' };
    await people.signedIn(eve);
    t.is(await count(), 3);
    clock.now = start + idle;
    await people.signedIn(eve);
    t.is(await count(), 2);
    const again = await people.signedIn(bob);
    t.deepEqual(Object.keys(again.disabled!), [everywhere], 'a sign-in does not enable');
  });

  test(`${dialect}: a claim that the provider cut has the values of the last whole sign-in, for a time`, async (t) => {
    const { people, scopesIn, grant, clock, beta, zeta, alpha, database } = await open(t, dialect);
    await grant(beta.id, 'group', 'dev', 'read');
    const claims = [
      ['team', 'build'],
      ['team', 'x'],
      ['role', 'chief'],
    ] as const;
    const cut = ['team', 'groups'];
    const first = await people.signedIn({ ...ann, subject: 'new', claims: [['team', 'x']], cut });
    t.is(first.knownAt, undefined, 'nothing was known before');
    const start = clock.now!;
    await people.signedIn({ ...ann, claims, groups: ['dev'] });
    clock.now! += 5;
    const given = {
      ...ann,
      claims: [
        ['team', 'x'],
        ['team', 'y'],
      ] as const,
      groups: ['z'],
      cut,
    };
    const signed = await people.signedIn(given);
    t.deepEqual(signed, {
      ...ann,
      claims: [
        ['team', 'x'],
        ['team', 'y'],
        ['team', 'build'],
      ],
      groups: ['dev'],
      cut,
      knownAt: start,
      disabled: {},
    });
    t.deepEqual([await scopesIn(signed, zeta.id), await scopesIn(signed, beta.id)], [['read', 'write'], ['read']]);
    t.deepEqual(await scopesIn(signed, alpha.id), [], 'the role was not cut, and is gone');
    clock.now = start + idle - 1;
    t.is((await people.signedIn(given)).knownAt, start, 'another sign-in does not make it newer');
    t.deepEqual(await scopesIn(signed, zeta.id), ['read', 'write']);
    clock.now = start + idle;
    t.deepEqual([await scopesIn(signed, zeta.id), await scopesIn(signed, beta.id)], [[], []]);
    const withRole = { ...given, claims: [['role', 'chief']] as const };
    t.deepEqual(await scopesIn({ ...withRole, knownAt: start }, zeta.id), ['admin'], 'what was not cut counts');
    const whole = await people.signedIn({ ...ann, cut: ['other'], groups: ['new'] });
    t.deepEqual([await scopesIn(whole, zeta.id), whole.groups], [['read', 'write'], ['new']]);

    const { groups: _none, ...older } = ann;
    const row = { id: annId, person: JSON.stringify(older), signed_in_at: start };
    await database.transaction((tx) => tx.upsert('people', ['id'], [row], 'person = new.person'));
    t.deepEqual((await people.signedIn({ ...ann, cut })).groups, [], 'an older version kept no groups');
    const other = { ...older, claims: [['role', 'build']] as const, cut: ['team'] };
    t.like(await people.signedIn(other), {
      groups: [],
      claims: [
        ['role', 'build'],
        ['team', 'build'],
      ],
    });
  });

  test(`${dialect}: the account used last comes first, if the person may still use it`, async (t) => {
    const { people, grant, grants, database, alpha, beta, zeta } = await open(t, dialect);
    const given = await grant(beta.id, 'person', 'ann', 'read');
    const use = (id: number) => database.transaction((tx) => people.use(tx, annId, id));
    t.is(await people.firstAccountOf(ann), zeta.id, 'that of a rule comes first');
    await t.notThrowsAsync(use(beta.id), 'somebody who was forgotten meanwhile');
    await people.signedIn(ann);
    for (const { id } of [beta, zeta, alpha, beta]) await use(id);
    const sql = 'SELECT used_accounts FROM people';
    t.deepEqual(await database.select(sql), [{ used_accounts: '["beta","alpha","zeta"]' }]);
    t.is(await people.firstAccountOf(ann), beta.id);
    const bob = { ...ann, subject: 'bob' };
    await grant(beta.id, 'person', 'bob', 'read');
    await people.signedIn(bob);
    await use(beta.id);
    const firstOf = (each: Person) => people.firstAccountOf(each);
    t.deepEqual([await firstOf(bob), await firstOf(ann)], [zeta.id, beta.id], 'what another one used does not count');
    await grants.remove(beta.id, given.id);
    t.is(await people.firstAccountOf(ann), zeta.id, 'neither beta nor alpha is given');
    t.is(await people.firstAccountOf({ ...ann, claims: [] }), undefined);
    t.is(await people.accountOf(ann, 'zeta'), zeta.id);
    for (const name of ['alpha', 'gone', 'unknown']) t.is(await people.accountOf(ann, name), undefined, name);
  });

  test(`${dialect}: a person is known in the accounts of rules, and in those of grants that it used`, async (t) => {
    const { people, known, grant, database, clock, alpha, beta } = await open(t, dialect);
    await grant(beta.id, 'person', 'ann', 'read');
    await grant(alpha.id, 'person', 'ann', 'admin');
    await people.signedIn(ann);
    const knownIn = async () => (await known.get(annId)).knownIn;
    const accounts = ['gone', 'zeta', 'alpha', 'beta'];
    const person = { ...ann, disabled: {} };
    t.deepEqual(await known.find(annId), {
      id: annId,
      person,
      accounts,
      knownIn: ['gone', 'zeta'],
      signedInAt: clock.now!,
    });
    await database.transaction((tx) => people.use(tx, annId, beta.id));
    t.deepEqual(await knownIn(), ['gone', 'zeta', 'beta']);
    await database.transaction((tx) => tx.run('UPDATE people SET used_accounts = NULL', []));
    const session = { person_id: annId, person: '{}', token_id: null, agent: '', created_at: 1, used_at: 1 };
    const begin = (id: string, account_id: number) =>
      database.transaction((tx) => tx.insert('sessions', { ...session, id, hash: id, account_id }));
    await begin('a', alpha.id);
    t.deepEqual(await knownIn(), ['gone', 'zeta', 'alpha'], 'it has a session');
    await begin('b', beta.id);
    t.deepEqual([...(await knownIn())].toSorted(), ['alpha', 'beta', 'gone', 'zeta']);

    const bob = { ...ann, subject: 'bob', name: 'Bob', claims: [] };
    const bobId = personIdOf(bob);
    await people.signedIn(bob);
    const ids = [annId, bobId].toSorted();
    const listed = async (limit: number, after?: string) => (await known.list(limit, after)).map(({ id }) => id);
    t.deepEqual([await listed(5), await listed(1), await listed(5, ids[0])], [ids, ids.slice(0, 1), ids.slice(1)]);
    t.deepEqual((await known.get(bobId)).accounts, []);
    for (const [id, account] of [
      [bobId, 'zeta'],
      ['unknown', undefined],
    ] as const)
      await t.throwsAsync(known.get(id, account), { name: 'NotFound', message: /no such person who has signed in/ });
    t.is((await known.get(annId, 'zeta')).id, annId);
    await people.signedIn({ ...bob, claims: [['role', 'chief']] });
    await known.disable(bobId, alpha, 'x');
    t.true(await known.operates(await known.get(bobId), 'alpha'), 'also where it is disabled');
    t.false(await known.operates(await known.get(bobId), 'zeta'));
    await known.enable(bobId, alpha);

    for (const reason of ['', '  ', 'x'.repeat(201)])
      await t.throwsAsync(known.disable(annId, undefined, reason), { name: 'Invalid', message: /1 to 200 characters/ });
    await t.throwsAsync(known.disable('unknown', undefined, 'x'), { name: 'NotFound' });
    const sessions = async () =>
      (await database.select<{ id: string }>('SELECT id FROM sessions ORDER BY id')).map(({ id }) => id);
    const longest = 'x'.repeat(200);
    const here = await known.disable(annId, beta, longest);
    t.like(here.person.disabled, { beta: { at: clock.now!, reason: longest } });
    t.deepEqual(await sessions(), ['a'], 'those of other accounts stay');
    t.deepEqual((await known.get(annId)).accounts, accounts, 'also where it is disabled');
    t.true(known.concerns({ ...here, knownIn: [] }, 'beta'));
    t.false(known.concerns({ ...here, knownIn: [] }, 'zeta'));
    await known.disable(annId, undefined, 'left');
    t.deepEqual(await sessions(), []);
    const [{ disabled: stored }] = (await database.select('SELECT disabled FROM people WHERE id = ?', [annId])) as [
      { disabled: string },
    ];
    t.deepEqual(Object.keys(JSON.parse(stored) as object).toSorted(), ['*', 'beta']);
    t.deepEqual(Object.keys((await known.get(annId)).person.disabled!).toSorted(), [everywhere, 'beta']);
    t.deepEqual(Object.keys((await known.enable(annId, undefined)).person.disabled!), ['beta']);
    await begin('c', beta.id);
    await known.enable(annId, beta);
    t.deepEqual(await sessions(), ['c'], 'to enable a person ends nothing');
    t.deepEqual(await database.select('SELECT disabled FROM people WHERE id = ?', [annId]), [{ disabled: null }]);
    const events = await database.select<{ type: string; account_id: number; details: string }>(
      `SELECT type, account_id, details FROM events WHERE type LIKE 'person.%' ORDER BY id`,
    );
    const details = { person_id: annId };
    t.deepEqual(
      events.map((each) => [each.type, each.account_id, JSON.parse(each.details) as object]),
      [
        ['person.disabled', alpha.id, { person_id: bobId, everywhere: false, reason: 'x' }],
        ['person.enabled', alpha.id, { person_id: bobId, everywhere: false }],
        ['person.disabled', beta.id, { ...details, everywhere: false, reason: longest }],
        ['person.disabled', 0, { ...details, everywhere: true, reason: 'left' }],
        ['person.enabled', 0, { ...details, everywhere: true }],
        ['person.enabled', beta.id, { ...details, everywhere: false }],
      ],
    );
  });
}
