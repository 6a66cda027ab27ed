import test from 'ava';
import { migrate } from '../../src/database/migrate.ts';
import { AllAccountsUse } from '../../src/usage/all-accounts.ts';
import { openUntilEnd, temporaryDatabase } from '../support/databases.ts';

test('the usage of all accounts is added up again after a failure, else once a minute', async (t) => {
  const database = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  await migrate(database);
  let asked = 0;
  const accounts = () => {
    asked += 1;
    return asked === 1 ? Promise.reject(new Error('away')) : Promise.resolve([{ id: 1 }]);
  };
  const use = new AllAccountsUse(database, accounts, () => Date.parse('2026-03-02T00:00:00Z'));
  await t.throwsAsync(use.read(), { message: 'away' });
  const first = await use.read();
  t.is(first.asOf, Date.parse('2026-03-02T00:00:00Z'));
  t.is(await use.read(), first);
  t.is(asked, 2);
});
