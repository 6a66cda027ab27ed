import test, { type ExecutionContext } from 'ava';
import { Accounts } from '../../src/accounts/accounts.ts';
import type { Grantee, NewGrant } from '../../src/accounts/grant-rows.ts';
import { Grants } from '../../src/accounts/grants.ts';
import type { NameSet, Patterns } from '../../src/accounts/names.ts';
import type { AccountNames } from '../../src/accounts/shared-names.ts';
import { Tokens } from '../../src/accounts/tokens.ts';
import type { Dialect } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { testClock } from '../support/clock.ts';
import { changedDatabase, dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

// Grants in the database. test/identity/grants.test.ts has the requests.

const issuer = 'https://provider.example';
const elsewhere = 'https://other.example';
const packages: Patterns = { packages: ['Lib.*'] };

async function open(t: ExecutionContext, dialect: Dialect) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
  await migrate(database);
  const clock = testClock(1_000_000);
  const accounts = new Accounts(database, clock.time);
  const [alpha, beta, gamma] = [
    await accounts.create('alpha'),
    await accounts.create('beta'),
    await accounts.create('gamma'),
  ];
  const grants = new Grants({ database, accounts, now: clock.time }, issuer);
  const give = (accountId: number, subject: NewGrant['subject'], more: Partial<NewGrant> = {}) =>
    grants.add(accountId, { subject, verbs: ['read'], ...more });
  const share = (accountId: number, to: string) => give(accountId, { kind: 'account', id: to }, { patterns: packages });
  const kept = async (accountId: number) => grants.of(accountId, await grants.versionOf(accountId));
  return { database, clock, accounts, alpha, beta, gamma, grants, give, share, kept };
}

const person = (id: string, of: string | null = issuer): Grantee => ({ kind: 'person', issuer: of, id });
const group = (id: string, of: string | null = issuer): Grantee => ({ kind: 'group', issuer: of, id });

for (const dialect of dialects) {
  test(`${dialect}: the grants of an account are kept in memory until one changes`, async (t) => {
    const { database, clock, accounts, alpha, beta, give } = await open(t, dialect);
    const read: string[] = [];
    const counting = changedDatabase(database, {
      select: (sql, values) => {
        read.push(sql);
        return database.select(sql, values);
      },
    });
    const grants = new Grants({ database: counting, accounts, now: clock.time }, issuer);
    const of = async (accountId: number) => grants.of(accountId, await grants.versionOf(accountId));
    t.is(await grants.versionOf(999), 0);
    t.is(await grants.versionOf(alpha.id), 0);
    t.deepEqual((await of(alpha.id)).subjects, []);
    t.deepEqual(read, [], 'it never had one');
    const one = await give(alpha.id, person('ann'));
    t.is(await grants.versionOf(alpha.id), clock.now!, 'a version is a time');
    t.deepEqual((await of(alpha.id)).to(person('ann')), [one]);
    await of(alpha.id);
    t.is(read.length, 1);
    const two = await give(alpha.id, person('ann'), { verbs: ['write'] });
    t.is(await grants.versionOf(alpha.id), clock.now! + 1, 'another one at the same time');
    t.deepEqual(new Set((await of(alpha.id)).to(person('ann'))), new Set([one, two]));
    t.is(read.length, 2);
    for (const none of [person('ann', elsewhere), person('bob'), group('ann')])
      t.deepEqual((await of(alpha.id)).to(none), []);
    await give(alpha.id, group('dev'));
    t.deepEqual(
      (await of(alpha.id)).subjects.toSorted((a, b) => (a.kind < b.kind ? -1 : 1)),
      [group('dev'), person('ann')],
    );
    t.deepEqual((await of(beta.id)).subjects, []);
  });

  test(`${dialect}: accounts that give something to people and groups are found, and groups with grants`, async (t) => {
    const { grants, alpha, beta, gamma, give } = await open(t, dialect);
    await give(gamma.id, person('ann'));
    await give(alpha.id, person('ann'));
    await give(alpha.id, group('dev'));
    await give(beta.id, group('dev'));
    await give(beta.id, { ...group('ops'), issuer: elsewhere });
    // Somebody of another provider.
    await give(beta.id, { ...person('zed'), issuer: elsewhere });
    const find = await grants.accountsWith([person('ann'), group('dev'), person('zed'), group('ops')]);
    t.deepEqual(find([person('ann')]), ['alpha', 'gamma']);
    t.deepEqual(find([group('dev')]), ['alpha', 'beta']);
    t.deepEqual(find([group('dev'), person('ann')]), ['alpha', 'beta', 'gamma']);
    t.deepEqual(find([person('dev'), group('ann'), person('zed'), group('ops')]), []);
    t.deepEqual((await grants.accountsWith([]))([person('ann')]), []);
    const many = Array.from({ length: 1001 }, (_, at) => group(at === 1000 ? 'dev' : `g${at}`));
    t.deepEqual((await grants.accountsWith(many))(many), ['alpha', 'beta'], 'the last of many groups');
    t.deepEqual((await grants.accountsWith(many.toReversed()))(many), ['alpha', 'beta']);
    t.deepEqual([await grants.groups(issuer), await grants.groups(elsewhere)], [new Set(['dev']), new Set(['ops'])]);
  });

  test(`${dialect}: an account lists its grants and those to it, and gets and removes no others`, async (t) => {
    const { grants, clock, alpha, beta, gamma, give, share } = await open(t, dialect);
    const made = [await give(alpha.id, person('ann')), await share(beta.id, 'alpha')];
    clock.now! += 1;
    made.push(await give(alpha.id, group('dev')), await give(alpha.id, group('ops')));
    const foreign = [await give(beta.id, person('ann')), await share(beta.id, 'gamma')];
    const sorted = made.toSorted((a, b) => b.createdAt - a.createdAt || (a.id < b.id ? 1 : -1));
    t.deepEqual(await grants.list(alpha.id, 10), sorted);
    for (const [at, { createdAt, id }] of sorted.entries())
      t.deepEqual(await grants.list(alpha.id, 2, [createdAt, id]), sorted.slice(at + 1, at + 3), `after ${at}`);
    for (const each of made) t.deepEqual(await grants.get(alpha.id, each.id), each);
    const message = 'This account has no such grant.';
    for (const { id } of [...foreign, { id: 'unknown' }]) {
      await t.throwsAsync(grants.get(alpha.id, id), { name: 'NotFound', message });
      await t.throwsAsync(grants.remove(alpha.id, id), { name: 'NotFound', message });
    }
    await t.throwsAsync(
      grants.remove(alpha.id, made[0]!.id, (grant) => {
        t.deepEqual(grant, made[0]);
        throw new Error('not allowed');
      }),
      { message: 'not allowed' },
    );
    await grants.remove(alpha.id, made[0]!.id);
    t.deepEqual(
      await grants.list(alpha.id, 10),
      sorted.filter((each) => each !== made[0]),
    );
    t.is((await grants.list(gamma.id, 10)).length, 1);
  });

  test(`${dialect}: a grant to another account counts from its acceptance on, and is told to both`, async (t) => {
    const { grants, database, clock, alpha, beta, gamma, share, kept } = await open(t, dialect);
    const given = await share(alpha.id, 'beta');
    const shared = async () => (await kept(beta.id)).shared;
    t.is(await shared(), undefined);
    for (const { id } of [alpha, gamma])
      await t.throwsAsync(grants.accept(id, given.id), {
        name: 'NotFound',
        message: 'This account has no such grant.',
      });
    clock.now! += 5;
    const accepted = await grants.accept(beta.id, given.id);
    t.deepEqual(accepted, { ...given, acceptedAt: clock.now! });
    t.deepEqual((await shared())!.lists(beta.id, 'package', undefined)[0]!.accountId, alpha.id);
    t.deepEqual((await kept(alpha.id)).to({ kind: 'account', issuer: null, id: 'beta' }), [accepted]);
    clock.now! += 5;
    t.deepEqual(await grants.accept(beta.id, given.id), accepted, 'once');
    await grants.remove(alpha.id, given.id);
    t.is(await shared(), undefined);
    const details = { grant_id: given.id, subject: given.subject, verbs: ['read'], patterns: packages };
    const events = await database.select<{ type: string; account_id: number; subject_name: string; details: string }>(
      `SELECT type, account_id, subject_name, details FROM events WHERE type LIKE 'grant.%' ORDER BY id`,
    );
    t.deepEqual(
      events.map((each) => [each.type, each.account_id]),
      [
        ['grant.created', alpha.id],
        ['grant.accepted', beta.id],
        ['grant.accepted', alpha.id],
        ['grant.removed', alpha.id],
        ['grant.removed', beta.id],
      ],
    );
    for (const each of events) t.deepEqual([each.subject_name, JSON.parse(each.details)], ['alpha', details]);
  });

  test(`${dialect}: a grant that matches names from upstreams is not accepted, and tells up to ten of them`, async (t) => {
    const { grants, beta, alpha, share } = await open(t, dialect);
    const asked: unknown[] = [];
    const kind = (name: string, found: string[]): AccountNames => ({
      kind: name,
      hostedAs: () => Promise.resolve(undefined),
      mirroredAmong: (accountId: number, only: NameSet, limit: number) => {
        asked.push([name, accountId, only.includes('lib.core'), only.isEmpty, limit]);
        return Promise.resolve(found);
      },
    });
    grants.share([kind('container', []), kind('package', ['Lib.A', 'Lib.B'])]);
    const { id } = await share(alpha.id, 'beta');
    await t.throwsAsync(grants.accept(beta.id, id), {
      name: 'Invalid',
      message:
        'This account has names from upstreams that match: Lib.A, Lib.B. Ask for a grant with narrower patterns.',
    });
    t.deepEqual(asked, [
      ['container', beta.id, false, true, 10],
      ['package', beta.id, true, false, 10],
    ]);
    t.is((await grants.get(beta.id, id)).acceptedAt, null);
    grants.share([kind('package', [])]);
    t.not((await grants.accept(beta.id, id)).acceptedAt, null);
  });

  test(`${dialect}: only a valid token of the account that is not personal gets grants`, async (t) => {
    const { database, clock, alpha, beta, give } = await open(t, dialect);
    const tokens = new Tokens(database, clock.time);
    const make = async (accountId: number, personId: string | null = null) =>
      (await tokens.create(accountId, { name: 'x', scopes: ['read'], personId })).token.id;
    const to = (id: string) => give(alpha.id, { kind: 'token', id });
    const [own, personal, foreign, gone] = [
      await make(alpha.id),
      await make(alpha.id, 'p'),
      await make(beta.id),
      await make(alpha.id),
    ];
    await tokens.revoke(alpha.id, gone);
    await t.notThrowsAsync(to(own));
    const refusal = async (id: string) => (await t.throwsAsync(to(id), { name: 'Invalid' })).message;
    t.regex(await refusal(personal), /^A personal token has the rights of its person/);
    for (const id of [foreign, gone, 'unknown']) t.regex(await refusal(id), /no valid token/, id);
  });
}
