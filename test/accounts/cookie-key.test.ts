import test from 'ava';
import { CookieKey } from '../../src/accounts/cookie-key.ts';
import { changedDatabase, openUntilEnd, temporaryDatabase } from '../support/databases.ts';

test('cookies are signed after the key could not be read once, each purpose by itself', async (t) => {
  const real = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  let isLost = true;
  const database = changedDatabase(real, {
    get: (sql, values) => (isLost ? Promise.reject(new Error('the connection is lost')) : real.get(sql, values)),
  });
  const key = new CookieKey(database);
  await t.throwsAsync(key.sign('session', 'a'), { message: 'the connection is lost' });
  isLost = false;
  const signature = await key.sign('session', 'a');
  const other = new CookieKey(real);
  t.true(await other.isSigned('session', 'a', signature));
  t.false(await other.isSigned('sign-in', 'a', signature));
  t.false(await other.isSigned('session', 'b', signature));
});
