import test, { type ExecutionContext } from 'ava';
import { Accounts } from '../../src/accounts/accounts.ts';
import { Tokens } from '../../src/accounts/tokens.ts';
import type { Dialect } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { changedDatabase, dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';
import { tokensElsewhere } from '../support/processes/tokens-elsewhere.ts';
import { until } from '../support/until.ts';

async function setUp(t: ExecutionContext, dialect: Dialect) {
  const url = await temporaryDatabase(t, dialect);
  const database = await openUntilEnd(t, url);
  await migrate(database);
  const clock = { now: Date.UTC(2026, 0, 1) };
  const now = () => clock.now;
  const accounts = new Accounts(database, now);
  const { account } = await accounts.ensureDefault();
  /** The same tokens in another process. */
  const elsewhere = () => tokensElsewhere(t, url, now);
  return { database, clock, accounts, account, tokens: new Tokens(database, now), elsewhere };
}

/** Five times the promised second, because the two processes share a machine with other tests. Milliseconds. */
const aSecond = 5000;

function named(name: string): { instanceOf: typeof DomainError; name: string } {
  return { instanceOf: DomainError, name };
}

for (const dialect of dialects) {
  const suite = (
    title: string,
    run: (t: ExecutionContext, parts: Awaited<ReturnType<typeof setUp>>) => Promise<void>,
  ) =>
    // Serial: each test may start processes, and MariaDB drops connections on a machine that is too busy.
    test.serial(`${dialect}: ${title}`, async (t) => run(t, await setUp(t, dialect)));

  suite('a token identifies its account and scopes, and only its hash is stored', async (t, { database, ...parts }) => {
    const { token, value } = await parts.tokens.create(parts.account.id, { name: 'ci', scopes: ['write', 'read'] });
    const principal = await parts.tokens.verify(value);
    t.like(principal, { accountId: parts.account.id, accountName: 'default', tokenId: token.id });
    t.deepEqual([...principal!.scopes], ['read', 'write']);
    const stored = JSON.stringify(await database.select('SELECT * FROM tokens'));
    t.false(stored.includes(value));
    t.false(stored.includes(value.slice(12, 24)));
    for (const wrong of ['', value.slice(0, -1), `${value} `, value.toLowerCase(), token.id, token.tokenPrefix]) {
      t.is(await parts.tokens.verify(wrong), undefined, wrong);
    }
  });

  suite('a token expires on time, also while its row is cached', async (t, { tokens, clock, account }) => {
    const { value } = await tokens.create(account.id, { name: 'x', scopes: ['read'], expiresAt: clock.now + 200 });
    t.truthy(await tokens.verify(value));
    clock.now += 199;
    t.truthy(await tokens.verify(value));
    clock.now += 1;
    t.is(await tokens.verify(value), undefined);
    await t.throwsAsync(
      tokens.create(account.id, { name: 'x', scopes: ['read'], expiresAt: clock.now }),
      named('Invalid'),
    );
  });

  suite(
    'a revocation takes effect at once on this instance and within a second on others',
    async (t, { tokens, clock, account, database, ...parts }) => {
      const other = await parts.elsewhere();
      const { token, value } = await tokens.create(account.id, { name: 'x', scopes: ['read'] });
      t.truthy(await tokens.verify(value));
      t.truthy(await other.verify(value));
      await tokens.revoke(account.id, token.id);
      t.is(await tokens.verify(value), undefined);
      clock.now += 999;
      if (database.dialect === 'sqlite')
        t.is(await other.verify(value), undefined, 'the version of the file changes at once');
      else await until(async () => (await other.verify(value)) === undefined, aSecond);
      t.is((await other.list(account.id, 10))[0]!.revokedAt, clock.now - 999);
      clock.now += 1;
      await other.revoke(account.id, token.id);
      t.is((await other.list(account.id, 10))[0]!.revokedAt, clock.now - 1000, 'the first revocation stays');
    },
  );

  suite('a query that runs while a token is revoked is not cached', async (t, { tokens, account }) => {
    const { token, value } = await tokens.create(account.id, { name: 'x', scopes: ['read'] });
    const asked = tokens.verify(value);
    await tokens.revoke(account.id, token.id);
    await asked;
    t.is(await tokens.verify(value), undefined);
  });

  suite(
    'a clock that is set back does not make a revoked token valid for longer',
    async (t, { tokens, clock, account, ...parts }) => {
      const other = await parts.elsewhere();
      const { token, value } = await tokens.create(account.id, { name: 'x', scopes: ['read'] });
      t.truthy(await other.verify(value));
      await tokens.revoke(account.id, token.id);
      clock.now -= 3_600_000;
      await until(async () => (await other.verify(value)) === undefined, aSecond);
      t.is(await other.verify(value), undefined);
    },
  );

  suite(
    'times of last use are written later in one batch, and are not lost',
    async (t, { tokens, clock, account, database }) => {
      const made = await Promise.all(
        ['a', 'b', 'c'].map((name) => tokens.create(account.id, { name, scopes: ['read'] })),
      );
      for (const { value } of made.slice(0, 2)) await tokens.verify(value);
      clock.now += 100;
      await tokens.verify(made[1]!.value);
      const written = async () =>
        (await database.select<{ last_used_at: number | null }>('SELECT last_used_at FROM tokens ORDER BY name')).map(
          (row) => row.last_used_at,
        );
      const shown = new Map((await tokens.list(account.id, 10)).map((each) => [each.name, each.lastUsedAt]));
      t.deepEqual([shown.get('a'), shown.get('b'), shown.get('c')], [clock.now - 100, clock.now, null]);
      t.deepEqual(await written(), [null, null, null], 'a use causes no write');
      await tokens.flush();
      t.deepEqual(await written(), [clock.now - 100, clock.now, null]);
      await tokens.flush();
      t.deepEqual(await written(), [clock.now - 100, clock.now, null]);
    },
  );

  suite(
    'times of last use survive a failed write, and a later use is not set back',
    async (t, { tokens, clock, account, database }) => {
      const { value } = await tokens.create(account.id, { name: 'x', scopes: ['read'] });
      const { token: other, value: otherValue } = await tokens.create(account.id, { name: 'y', scopes: ['read'] });
      const written = Promise.withResolvers<never>();
      const failing = new Tokens(changedDatabase(database, { transaction: () => written.promise }), () => clock.now);
      await failing.verify(value);
      await failing.verify(otherValue);
      const flushing = failing.flush();
      const firstUse = clock.now;
      clock.now += 100;
      await failing.verify(value);
      written.reject(new Error('the database is away'));
      await t.throwsAsync(flushing, { message: /away/ });
      const shown = await failing.list(account.id, 10);
      for (const { id, lastUsedAt } of shown) t.is(lastUsedAt, id === other.id ? firstUse : clock.now);
    },
  );

  suite('concurrent starts create one first token', async (t, { tokens, account, ...parts }) => {
    const others = await Promise.all([parts.elsewhere(), parts.elsewhere()]);
    const values = await Promise.all([tokens, ...others].map((each) => each.bootstrap(account.id)));
    const [first, ...more] = values.filter((each) => each !== undefined);
    t.deepEqual(more, []);
    t.deepEqual([...(await tokens.verify(first!))!.scopes], ['read', 'write', 'delete', 'promote', 'admin', 'operate']);
    t.is(await tokens.bootstrap(account.id), undefined, 'only once');
  });

  suite(
    'a configured first token is created if missing, but not if revoked',
    async (t, { tokens, account, ...parts }) => {
      const other = await parts.elsewhere();
      await tokens.create(account.id, { name: 'earlier', scopes: ['read'] });
      const value = 'chosen-by-the-operator-as-a-token';
      await Promise.all([tokens.bootstrap(account.id, value), other.bootstrap(account.id, value)]);
      const principal = await tokens.verify(value);
      t.true(principal!.scopes.has('admin'));
      t.is((await tokens.list(account.id, 10)).length, 2);
      await tokens.revoke(account.id, principal!.tokenId);
      t.is(await tokens.bootstrap(account.id, value), undefined);
      t.is(await tokens.verify(value), undefined);
    },
  );

  suite('invalid tokens are refused', async (t, { tokens, account, accounts }) => {
    const bad = [
      { name: '', scopes: ['read'] },
      { name: '   ', scopes: ['read'] },
      { name: 'x'.repeat(201), scopes: ['read'] },
      { name: 'x', scopes: [] },
      { name: 'x', scopes: ['read', 'sudo'] },
      { name: 'x', scopes: ['read'], expiresAt: Number.NaN },
    ];
    for (const each of bad)
      await t.throwsAsync(tokens.create(account.id, each), named('Invalid'), JSON.stringify(each));
    t.deepEqual(await tokens.list(account.id, 10), []);
    t.is((await tokens.create(account.id, { name: ` ${'x'.repeat(200)} `, scopes: ['read'] })).token.name.length, 200);
    const other = await accounts.create('other');
    const { token } = await tokens.create(other.id, { name: 'theirs', scopes: ['read'] });
    await t.throwsAsync(tokens.revoke(account.id, token.id), named('NotFound'));
    t.is((await tokens.list(other.id, 10))[0]!.revokedAt, null);
  });

  suite(
    'accounts: names, duplicates, and one default account after concurrent starts',
    async (t, { accounts, database }) => {
      for (const name of ['a', 'team-1', 'a.b_c', 'x'.repeat(100)]) t.is((await accounts.create(name)).name, name);
      for (const name of ['', 'A', 'é', '-a', 'a-', 'a b', 'a/b', '../a', 'x'.repeat(101), 'a\n']) {
        await t.throwsAsync(accounts.create(name), named('Invalid'), name);
      }
      await t.throwsAsync(accounts.create('a'), named('AlreadyExists'));
      const twice = await Promise.allSettled([accounts.create('same'), accounts.create('same')]);
      t.deepEqual(twice.map((each) => each.status).sort(), ['fulfilled', 'rejected']);
      const created = await database.select("SELECT id FROM events WHERE type = 'account.created'");
      t.is(created.length, 5, 'a name that is taken is no event');
      await database.transaction((tx) => tx.run('DELETE FROM accounts'));
      const defaults = await Promise.all([1, 2, 3].map(() => accounts.ensureDefault()));
      t.is(defaults.filter(({ created }) => created).length, 1);
      t.deepEqual(
        (await accounts.list()).map(({ name }) => name),
        ['default'],
      );
    },
  );
}
