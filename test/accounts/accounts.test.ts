import test from 'ava';
import { Accounts } from '../../src/accounts/accounts.ts';
import { migrate } from '../../src/database/migrate.ts';
import { testClock } from '../support/clock.ts';
import { changedDatabase, dialects, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

for (const dialect of dialects) {
  test(`${dialect}: accounts are found by name and ID, and their names are read once`, async (t) => {
    const real = await openUntilEnd(t, await temporaryDatabase(t, dialect));
    await migrate(real);
    const clock = testClock(5000);
    let reads = 0;
    let writes = 0;
    const database = changedDatabase(real, {
      get: (sql, values) => {
        reads += 1;
        return real.get(sql, values);
      },
      transaction: (work, options) => {
        writes += 1;
        return real.transaction(work, options);
      },
    });
    const accounts = new Accounts(database, clock.time);
    const zeta = await accounts.create('zeta');
    clock.now! += 1;
    const alpha = await accounts.create('alpha');
    t.deepEqual([zeta.name, zeta.createdAt, alpha.name, alpha.createdAt], ['zeta', 5000, 'alpha', 5001]);
    t.deepEqual(await accounts.list(), [alpha, zeta], 'by name');
    for (const each of [alpha, zeta]) {
      t.deepEqual([await accounts.get(each.id), await accounts.named(each.name)], [each, each]);
      t.is(await accounts.nameOf(each.id), each.name);
    }
    t.deepEqual(
      [await accounts.get(999), await accounts.named('none'), await accounts.nameOf(999)],
      [undefined, undefined, undefined],
    );
    reads = 0;
    for (const each of [alpha, zeta]) t.is(await accounts.nameOf(each.id), each.name);
    t.is(reads, 0, 'a name never changes');
    const later = await accounts.create('later');
    t.is(await accounts.nameOf(later.id), 'later');

    const message = 'The account "zeta" already exists.';
    await t.throwsAsync(accounts.create('zeta'), { name: 'AlreadyExists', message });
    for (const name of ['', 'Zeta', '-a', 'a-', 'a/b', 'x'.repeat(101)])
      await t.throwsAsync(accounts.create(name), { name: 'Invalid' }, name);
    for (const name of ['z', 'x'.repeat(100)]) t.is((await accounts.create(name)).name, name);
    const events = await real.select<Record<'type' | 'account_id' | 'subject_kind' | 'subject_name', unknown>>(
      'SELECT type, account_id, subject_kind, subject_name FROM events ORDER BY id',
    );
    t.deepEqual(
      events.map((each) => [each.type, each.account_id, each.subject_kind, each.subject_name]),
      ['zeta', 'alpha', 'later', 'z', 'x'.repeat(100)].map((name) => ['account.created', 0, 'account', name]),
    );

    const { account, created } = await accounts.ensureDefault();
    t.deepEqual([account.name, account.createdAt, created], ['default', 5001, true]);
    writes = 0;
    t.deepEqual(await accounts.ensureDefault(), { account, created: false });
    t.is(writes, 0, 'it exists already');
  });
}
