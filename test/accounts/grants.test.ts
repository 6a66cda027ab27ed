import test, { type ExecutionContext } from 'ava';
import { Accounts } from '../../src/accounts/accounts.ts';
import type { Grantee, NewGrant } from '../../src/accounts/grant-rows.ts';
import { Grants } from '../../src/accounts/grants.ts';
import type { NameSet, Patterns } from '../../src/accounts/names.ts';
import type { AccountNames } from '../../src/accounts/shared-names.ts';
import { Tokens } from '../../src/accounts/tokens.ts';
import type { Dialect, Row } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { runForSystem } from '../../src/runtime/caller.ts';
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
    t.is(await grants.versionOf(beta.id), 0, 'each account has its own');
    const two = await give(alpha.id, person('ann'), { verbs: ['write'] });
    t.is(await grants.versionOf(alpha.id), clock.now! + 1, 'another one at the same time');
    const ids = (await of(alpha.id)).to(person('ann')).map(({ id }) => id);
    t.deepEqual(ids.toSorted(), [one.id, two.id].toSorted());
    t.is(read.length, 2);
    for (const none of [person('ann', elsewhere), person('bob'), group('ann')])
      t.deepEqual((await of(alpha.id)).to(none), []);
    await give(alpha.id, group('dev'));
    t.deepEqual(
      (await of(alpha.id)).subjects.toSorted((a, b) => (a.kind < b.kind ? -1 : 1)),
      [group('dev'), person('ann')],
    );
    t.deepEqual((await of(beta.id)).subjects, []);
    await grants.remove(alpha.id, one.id);
    t.deepEqual((await of(alpha.id)).to(person('ann')), [two]);
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
    const { grants, database, clock, alpha, beta, gamma, give, share, kept } = await open(t, dialect);
    const given = await share(alpha.id, 'beta');
    const pending = await share(gamma.id, 'beta');
    const ofPerson = await give(gamma.id, person('beta'));
    await give(beta.id, person('ann'));
    await database.transaction((tx) => tx.run('DELETE FROM events'));
    const shared = async () => (await kept(beta.id)).shared;
    t.is(await shared(), undefined);
    const refused = { name: 'NotFound', message: 'This account has no such grant.' };
    for (const { id } of [alpha, gamma]) await t.throwsAsync(grants.accept(id, given.id), refused);
    for (const id of ['unknown', ofPerson.id]) await t.throwsAsync(grants.accept(beta.id, id), refused);
    clock.now! += 5;
    const accepted = await grants.accept(beta.id, given.id);
    t.deepEqual(accepted, { ...given, acceptedAt: clock.now! });
    t.deepEqual((await shared())!.lists(beta.id, 'package', undefined)[0]!.accountId, alpha.id);
    t.is((await grants.get(beta.id, pending.id)).acceptedAt, null);
    const toBeta = { kind: 'account', issuer: null, id: 'beta' } as const;
    t.deepEqual((await kept(alpha.id)).to(toBeta), [accepted]);
    t.is((await kept(alpha.id)).shared, undefined, 'who shares reads nothing');
    t.deepEqual((await kept(beta.id)).to(toBeta), []);
    clock.now! += 5;
    t.deepEqual(await grants.accept(beta.id, given.id), accepted, 'once');
    t.truthy(await shared());
    t.is((await kept(alpha.id)).to(toBeta).length, 1);
    await runForSystem('a job', () => grants.remove(alpha.id, given.id));
    t.is(await shared(), undefined);
    t.deepEqual((await kept(alpha.id)).to(toBeta), []);
    const version = await grants.versionOf(beta.id);
    const twice = await Promise.allSettled([
      grants.remove(gamma.id, ofPerson.id),
      grants.remove(gamma.id, ofPerson.id),
    ]);
    const reasons = twice.flatMap((each) => (each.status === 'rejected' ? [each.reason as Error] : []));
    t.deepEqual([reasons.length, reasons[0]?.name], [1, 'NotFound']);
    t.is(await grants.versionOf(beta.id), version, 'it was for a person with the name of the account');
    await grants.remove(gamma.id, pending.id);
    const details = { grant_id: given.id, subject: given.subject, verbs: ['read'], patterns: packages };
    const events = await database.select<Record<'type' | 'subject_name' | 'actor_name' | 'details', string | null>>(
      `SELECT type, account_id, subject_name, actor_name, details FROM events ORDER BY id`,
    );
    const told = events.map((each) => [
      each.type,
      (each as { account_id?: number }).account_id,
      each.subject_name,
      each.actor_name,
      (JSON.parse(each.details!) as { grant_id: string }).grant_id,
    ]);
    t.deepEqual(told, [
      ['grant.accepted', beta.id, 'alpha', null, given.id],
      ['grant.accepted', alpha.id, 'alpha', null, given.id],
      ['grant.removed', alpha.id, 'alpha', 'a job', given.id],
      ['grant.removed', beta.id, 'alpha', 'a job', given.id],
      ['grant.removed', gamma.id, 'gamma', null, ofPerson.id],
      ['grant.removed', gamma.id, 'gamma', null, pending.id],
    ]);
    t.deepEqual(JSON.parse(events[0]!.details!), details);
  });

  test(`${dialect}: bounds of an account count neither grants of others nor those that are not accepted`, async (t) => {
    const { grants, database, alpha, beta, gamma, give, share } = await open(t, dialect);
    const row = { verbs: 'read', patterns: null, created_by: '{"kind":"system"}', created_at: 1, issuer: null };
    const addRows = (count: number, more: Row) =>
      database.transaction(async (tx) => {
        const rows = Array.from({ length: count }, (_, at) => ({ ...row, id: `${String(more['of'])}-${at}`, ...more }));
        const all = rows.map(({ of: _of, ...each }: Row) => each);
        for (let from = 0; from < count; from += 500) await tx.insertNew('grants', all.slice(from, from + 500));
      });
    await addRows(1799, { of: 'person', account_id: gamma.id, subject_kind: 'person', subject_id: 'x' });
    const toAccount = { account_id: gamma.id, subject_kind: 'account' };
    await addRows(200, { of: 'beta', ...toAccount, subject_id: 'beta' });
    const { id } = await share(alpha.id, 'beta');
    t.not((await grants.accept(beta.id, id)).acceptedAt, null, 'the 200 others are not accepted');
    await database.transaction((tx) =>
      tx.run("UPDATE grants SET accepted_at = 1, subject_id = 'none' WHERE id <> ?", [id]),
    );
    const { id: next } = await share(alpha.id, 'beta');
    t.not((await grants.accept(beta.id, next)).acceptedAt, null, 'nor do those of other receivers count');
    await give(gamma.id, person('ann'));
    await t.throwsAsync(give(gamma.id, person('ann')), { name: 'QuotaExceeded', message: /at most 2000 grants/ });
    await t.notThrowsAsync(give(alpha.id, person('ann')));
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
