import test from 'ava';
import { openDatabase } from '../../src/database/database.ts';
import { inBackground } from '../../src/database/time-limits.ts';
import { temporaryDatabase } from '../support/databases.ts';

// Times in milliseconds.
const limits = { read: 1000, transaction: 1000, connection: 5000, lock: 1000, background: 60_000 };

test('a slow statement of a request ends in time, on the server too; background work may take longer', async (t) => {
  const url = await temporaryDatabase(t, 'mysql');
  const database = await openDatabase(url, undefined, limits);
  t.teardown(() => database.close());
  const slow = 'SELECT SLEEP(2.5) AS slept';
  await t.throwsAsync(database.select(slow), { name: 'DatabaseUnavailable' });
  await t.throwsAsync(
    database.transaction((tx) => tx.select(slow)),
    { name: 'DatabaseUnavailable', message: 'The database has not answered in time.' },
  );
  t.deepEqual(await inBackground(() => database.select(slow)), [{ slept: 0 }]);
  t.deepEqual(await inBackground(() => database.transaction((tx) => tx.select(slow))), [{ slept: 0 }]);
  t.deepEqual(await database.exclusively(() => database.transaction((tx) => tx.select(slow))), [{ slept: 0 }]);
});

test('a mistake in a statement is not taken for an unavailable database', async (t) => {
  for (const dialect of ['sqlite', 'mysql'] as const) {
    const database = await openDatabase(await temporaryDatabase(t, dialect));
    t.teardown(() => database.close());
    for (const work of [
      () => database.select('SELECT nothing FROM nowhere'),
      () => database.transaction((tx) => tx.run('INSERT INTO nowhere VALUES (1)')),
      () => database.transaction(() => Promise.reject(Object.assign(new Error('EIO'), { code: 'EIO' }))),
    ]) {
      const error = await t.throwsAsync(work);
      t.not(error.name, 'DatabaseUnavailable');
    }
  }
});
