import test, { type ExecutionContext } from 'ava';
import { CookieKey } from '../../src/accounts/cookie-key.ts';
import { KnownPeople } from '../../src/accounts/known-people.ts';
import type { Principal } from '../../src/accounts/principal.ts';
import { RefusedForms } from '../../src/accounts/refused-forms.ts';
import { Sessions } from '../../src/accounts/sessions.ts';
import type { Dialect } from '../../src/database/database.ts';
import { dialects } from '../support/databases.ts';
import { ann, annId, day, openPeople } from '../support/people.ts';

// How sessions begin, are found and end. test/console has the requests of a browser.

const minute = 60_000;
const hour = 60 * minute;
const idle = 2 * hour;
const absolute = 10 * hour;
const browser = { agent: 'a browser', address: '192.0.2.1' };

async function open(t: ExecutionContext, dialect: Dialect) {
  const rules = [
    { claim: 'team', value: 'build', account: 'alpha', scopes: ['read', 'write'] as const },
    { claim: 'team', value: 'build', account: 'beta', scopes: ['read'] as const },
  ];
  const opened = await openPeople(t, dialect, rules, { idle: 5 * hour, absolute: day });
  const { database, now, people, tokens } = opened;
  const parts = { tokens, people, cookies: new CookieKey(database) };
  const sessions = new Sessions(database, parts, { idle, absolute }, now);
  const token = async (accountId: number, name: string) =>
    (await tokens.create(accountId, { name, scopes: ['read', 'admin'] })).token;
  const count = async () => (await database.select('SELECT id FROM sessions')).length;
  return { ...opened, sessions, token, count };
}

for (const dialect of dialects) {
  test(`${dialect}: a session of a token does what the token can, and ends with it`, async (t) => {
    const { sessions, alpha, tokens, token, clock } = await open(t, dialect);
    const { id: tokenId } = await token(alpha.id, 'mine');
    const value = await sessions.begin({ accountId: alpha.id, tokenId }, { ...browser, agent: 'x'.repeat(300) });
    t.is(Buffer.from(value, 'base64url').length, 32);
    t.true(await sessions.isSigned(value));
    for (const other of ['', value.slice(0, -2), `${value}AA`, `A${value.slice(1)}B`])
      t.false(await sessions.isSigned(other), other);
    t.is(await sessions.find('x'), undefined);
    const { id, principal } = (await sessions.find(value))!;
    t.like(principal, { kind: 'token', accountId: alpha.id, tokenId });
    const whole = {
      id,
      tokenId,
      tokenName: 'mine',
      person: null,
      scopes: new Set(['read', 'admin']),
      agent: 'x'.repeat(255),
      address: '192.0.2.1',
      createdAt: clock.now,
      lastUsedAt: clock.now,
    };
    t.deepEqual(await sessions.get(alpha.id, id), whole as never);
    t.deepEqual(await sessions.list(alpha.id, 10), [whole] as never);
    await tokens.revoke(alpha.id, tokenId);
    t.is(await sessions.find(value), undefined);
  });

  test(`${dialect}: a session ends without use, and in any case`, async (t) => {
    const { sessions, alpha, token, clock, count, database } = await open(t, dialect);
    const { id: tokenId } = await token(alpha.id, 'mine');
    const start = clock.now!;
    const value = await sessions.begin({ accountId: alpha.id, tokenId }, browser);
    const { id: otherId } = await token(alpha.id, 'other');
    const another = await sessions.begin({ accountId: alpha.id, tokenId: otherId }, browser);
    const usedAt = async () =>
      ((await sessions.list(alpha.id, 1, undefined, { tokenId }))[0]?.lastUsedAt ?? Number.NaN) - start;
    const at = (time: number, isUse = true) => {
      clock.now = start + time;
      return sessions.find(value, { isUse });
    };
    await at(minute - 1);
    t.is(await usedAt(), 0, 'it is written once a minute');
    await at(minute, false);
    t.is(await usedAt(), 0, 'that was no use');
    await at(minute);
    t.is(
      (await database.get<{ n: number }>('SELECT COUNT(*) AS n FROM sessions WHERE used_at = ?', [start + minute]))!.n,
      1,
    );
    await sessions.end(alpha.id, (await sessions.find(another, { isUse: false }))!.id);
    t.is(await usedAt(), minute);
    t.truthy(await at(minute + idle - 1, false));
    t.is((await sessions.list(alpha.id, 1)).length, 1);
    const { id } = (await at(minute + idle - 1, false))!;
    t.is(await at(minute + idle), undefined);
    t.is(await sessions.get(alpha.id, id), undefined);
    t.deepEqual(await sessions.list(alpha.id, 1), []);
    clock.now = start + minute + idle - 1;
    await sessions.deleteEnded();
    t.is(await count(), 1);
    clock.now += 1;
    await sessions.deleteEnded();
    t.is(await count(), 0);

    const other = await sessions.begin({ accountId: alpha.id, tokenId }, browser);
    const began = clock.now;
    for (let time = hour; time < absolute; time += hour) {
      clock.now = began + time;
      t.truthy(await sessions.find(other));
    }
    clock.now = began + absolute - 1;
    t.truthy(await sessions.find(other));
    await sessions.deleteEnded();
    t.is((await sessions.list(alpha.id, 1)).length, 1);
    clock.now += 1;
    t.is(await sessions.find(other), undefined);
    t.deepEqual(await sessions.list(alpha.id, 1), []);
    await sessions.deleteEnded();
    t.is(await count(), 0);
  });

  test(`${dialect}: a token or a person has at most fifty sessions, and the oldest ends`, async (t) => {
    const { sessions, alpha, beta, people, token, clock, count } = await open(t, dialect);
    await people.signedIn(ann);
    const { id: tokenId } = await token(alpha.id, 'mine');
    const { id: otherId } = await token(alpha.id, 'other');
    const other = await sessions.begin({ accountId: alpha.id, tokenId: otherId }, browser);
    for (const owner of [
      { accountId: alpha.id, tokenId },
      { accountId: beta.id, person: ann },
    ]) {
      const before = await count();
      const values: string[] = [];
      for (let each = 0; each < 51; each += 1) {
        clock.now! += 1;
        values.push(await sessions.begin(owner, browser));
      }
      t.is((await count()) - before, 50);
      t.is(await sessions.find(values[0]!), undefined);
      t.truthy(await sessions.find(values[1]!));
    }
    t.truthy(await sessions.find(other), 'of another token');
  });

  test(`${dialect}: a session of a person uses one of its accounts, and all of these see it`, async (t) => {
    const { sessions, accounts, grants, alpha, beta, people, database, clock } = await open(t, dialect);
    await people.signedIn(ann);
    const value = await sessions.begin({ accountId: alpha.id, person: ann }, browser);
    const { id, principal } = (await sessions.find(value))!;
    t.like(principal, { kind: 'person', accountId: alpha.id, personId: annId });
    const used = async () => (await database.get<{ used: string }>('SELECT used_accounts AS used FROM people'))!.used;
    t.is(await used(), '["alpha"]');
    const refused = { name: 'NotFound', message: /no account with this name, or you may not use it/ };
    await t.throwsAsync(sessions.useAccount(id, 'gamma'), refused);
    await t.throwsAsync(sessions.useAccount('unknown', 'beta'), refused);
    const elsewhere = await sessions.begin({ accountId: alpha.id, person: ann }, browser);
    await sessions.useAccount(id, 'beta');
    t.is((await sessions.find(value))!.principal.accountId, beta.id);
    const { id: other, principal: unchanged } = (await sessions.find(elsewhere))!;
    t.is(unchanged.accountId, alpha.id, 'another session of the person');
    await sessions.end(alpha.id, other);
    t.is(await used(), '["beta","alpha"]');
    const person = { id: annId, name: 'Ann', accounts: ['alpha', 'beta'] };
    const whole = { id, tokenId: null, tokenName: null, person, scopes: new Set(['read', 'write']) };
    for (const account of [alpha, beta]) {
      t.like(await sessions.get(account.id, id), whole as never);
      t.deepEqual(
        (await sessions.list(account.id, 5)).map((each) => each.id),
        [id],
      );
    }
    const gamma = await accounts.create('gamma');
    await grants.add(gamma.id, { subject: { kind: 'person', id: 'ann' }, verbs: ['read'] });
    await sessions.useAccount(id, 'gamma');
    t.deepEqual((await sessions.get(alpha.id, id))!.person!.accounts, ['alpha', 'beta', 'gamma']);
    await sessions.useAccount(id, 'beta');
    t.deepEqual((await sessions.get(alpha.id, id))!.person!.accounts, ['alpha', 'beta'], 'it does not use gamma');

    await people.signedIn({ ...ann, name: 'Ann B', claims: [] });
    t.is(await sessions.find(value), undefined, 'as of the last sign-in in any browser');
    t.is((await sessions.get(alpha.id, id))!.person!.name, 'Ann B');
    await people.signedIn(ann);
    t.truthy(await sessions.find(value));
    const known = new KnownPeople(database, people, clock.time);
    await known.disable(annId, alpha, 'left');
    t.truthy(await sessions.find(value), 'it is of the other account');
    await known.disable(annId, beta, 'left');
    t.is(await sessions.find(value), undefined);
  });

  test(`${dialect}: a session of a person ends when the person does not sign in for too long`, async (t) => {
    const { sessions, alpha, people, clock } = await open(t, dialect);
    await people.signedIn(ann);
    const start = clock.now!;
    clock.now = start + 4 * hour;
    const value = await sessions.begin({ accountId: alpha.id, person: ann }, browser);
    clock.now = start + 5 * hour - 1;
    const { id } = (await sessions.find(value))!;
    t.is((await sessions.list(alpha.id, 5)).length, 1);
    clock.now = start + 5 * hour;
    t.is(await sessions.find(value), undefined);
    t.is(await sessions.get(alpha.id, id), undefined);
    t.deepEqual(await sessions.list(alpha.id, 5), []);
  });

  test(`${dialect}: sessions are listed from the latest or the oldest on, of an account or a token`, async (t) => {
    const { sessions, alpha, beta, token, clock, database, count } = await open(t, dialect);
    const start = clock.now!;
    const { id: mine } = await token(alpha.id, 'mine');
    const { id: other } = await token(alpha.id, 'other');
    const { id: foreign } = await token(beta.id, 'foreign');
    // Two begin at the same time.
    for (const [accountId, tokenId, time] of [
      [alpha.id, mine, 0],
      [alpha.id, other, 1],
      [alpha.id, mine, 1],
      [alpha.id, mine, 2],
      [beta.id, foreign, 3],
    ] as const) {
      clock.now = start + time;
      await sessions.begin({ accountId, tokenId }, browser);
    }
    const all = await sessions.list(alpha.id, 10);
    t.deepEqual(
      all.map(({ createdAt }) => createdAt - start),
      [2, 1, 1, 0],
    );
    const oldest = (cursor?: [number, string]) => sessions.list(alpha.id, 10, cursor, { isOldest: true });
    const reversed = all.toReversed();
    t.deepEqual(await oldest(), reversed);
    for (const [at, { createdAt, id }] of all.entries()) {
      t.deepEqual(await sessions.list(alpha.id, 10, [createdAt, id]), all.slice(at + 1), `after ${at}`);
      t.deepEqual(await oldest([createdAt, id]), reversed.slice(all.length - at), `before ${at}`);
    }
    t.deepEqual(await sessions.list(alpha.id, 2), all.slice(0, 2));
    const ofMine = await sessions.list(alpha.id, 10, undefined, { tokenId: mine });
    t.deepEqual(
      ofMine,
      all.filter(({ tokenId }) => tokenId === mine),
    );
    t.deepEqual(await sessions.list(beta.id, 10, undefined, { tokenId: mine }), []);
    t.is(await sessions.get(beta.id, all[0]!.id), undefined);

    const sql = `SELECT account_id, subject_name FROM events WHERE type = 'session.ended'`;
    for (const attempt of ['at once', 'once']) {
      await sessions.end(alpha.id, all[0]!.id);
      t.deepEqual(await database.select(sql), [{ account_id: alpha.id, subject_name: all[0]!.id }], `told ${attempt}`);
    }
    t.is(await count(), 4);
    t.is(await sessions.get(alpha.id, all[0]!.id), undefined);
  });

  test(`${dialect}: a refused form is kept for an hour, for who sent it in the same account`, async (t) => {
    const { database, clock, sessions } = await open(t, dialect);
    const forms = new RefusedForms(database, clock.time);
    const visitor = { kind: 'token', accountId: 1, tokenId: 'mine' } as Principal;
    const person = { kind: 'person', accountId: 1, personId: 'ann' } as Principal;
    const anonymous = { kind: 'anonymous', accountId: 1 } as Principal;
    const start = clock.now!;
    const id = await forms.keep(visitor, 'a form');
    const ofPerson = await forms.keep(person, 'x'.repeat(100_000));
    t.is(await forms.find(visitor, id), 'a form');
    t.is((await forms.find(person, ofPerson))?.length, 100_000);
    for (const [who, which] of [
      [person, id],
      [{ ...visitor, accountId: 2 }, id],
      [anonymous, id],
      [visitor, ofPerson],
      [visitor, 'unknown'],
    ] as const)
      t.is(await forms.find(who, which), undefined);
    await t.throwsAsync(forms.keep(visitor, 'x'.repeat(100_001)), { name: 'TooLarge' });
    await t.throwsAsync(forms.keep(anonymous, 'x'), { name: 'Unauthorized', message: 'Sign in to send a form.' });
    for (let each = 0; each < 9; each += 1) {
      clock.now! += 1;
      await forms.keep(visitor, `form ${each}`);
    }
    t.is(await forms.find(visitor, id), 'a form', 'ten are kept');
    clock.now! += 1;
    await forms.keep(visitor, 'the last');
    t.is(await forms.find(visitor, id), undefined);
    t.truthy(await forms.find(person, ofPerson));
    const count = async () => (await database.select('SELECT id FROM refused_forms')).length;
    clock.now = start + hour - 1;
    t.truthy(await forms.find(person, ofPerson));
    await sessions.deleteEnded();
    t.is(await count(), 11);
    clock.now = start + hour;
    t.is(await forms.find(person, ofPerson), undefined);
    await sessions.deleteEnded();
    t.is(await count(), 10);
  });
}

test('writes of sessions and forms leave the rows of tokens in memory', async (t) => {
  const { sessions, people, alpha, beta, token, clock, database, count } = await open(t, 'sqlite');
  const { id: tokenId } = await token(alpha.id, 'mine');
  await people.signedIn(ann);
  const kept = () => database.getCached('SELECT * FROM tokens', [], { lag: hour });
  const row = await kept();
  t.truthy(row);
  const visitor = { kind: 'token', accountId: alpha.id, tokenId } as Principal;
  const value = await sessions.begin({ accountId: alpha.id, person: ann }, browser);
  t.is(await kept(), row, 'it begins');
  await sessions.begin({ accountId: alpha.id, tokenId }, browser);
  clock.now! += minute;
  const { id } = (await sessions.find(value))!;
  t.is(await kept(), row, 'it is used');
  await sessions.useAccount(id, 'beta');
  t.is((await sessions.find(value))!.principal.accountId, beta.id);
  t.is(await kept(), row, 'it uses another account');
  await sessions.refusedForms.keep(visitor, 'a form');
  t.is(await kept(), row, 'a form is kept');
  clock.now! += absolute;
  await sessions.deleteEnded();
  t.deepEqual([await count(), await database.select('SELECT id FROM refused_forms')], [0, []]);
  t.is(await kept(), row, 'the old ones are deleted');
  const last = await sessions.begin({ accountId: alpha.id, tokenId }, browser);
  await sessions.end(alpha.id, (await sessions.find(last))!.id);
  t.is(await kept(), row, 'it ends');
  await token(alpha.id, 'another');
  t.not(await kept(), row, 'a new token is a change');
});
