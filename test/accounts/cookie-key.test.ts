import { createHmac } from 'node:crypto';
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
  const start = signature.subarray(0, 8);
  t.true(await other.isSigned('session', 'a', start, 8));
  for (const [text, length] of [
    [start, 32],
    [signature, 8],
  ] as const)
    t.false(await other.isSigned('session', 'a', text, length), 'of another length');
});

test('the key has 32 bytes, and is only read once it is stored', async (t) => {
  const real = await openUntilEnd(t, await temporaryDatabase(t, 'sqlite'));
  const signature = await new CookieKey(real).sign('notice', 'a text');
  const { value } = (await real.get<{ value: string }>('SELECT value FROM cookie_key'))!;
  const key = Buffer.from(value, 'base64');
  t.is(key.length, 32);
  t.deepEqual(signature, createHmac('sha256', key).update('notice a text').digest());
  const reading = changedDatabase(real, { transaction: () => Promise.reject(new Error('it writes')) });
  t.deepEqual(await new CookieKey(reading).sign('notice', 'a text'), signature);
});
