import { randomUUID } from 'node:crypto';
import test from 'ava';
import { openDatabase } from '../../src/database/database.ts';
import { inBackground } from '../../src/database/time-limits.ts';
import { emptyDatabase } from '../support/databases.ts';
import { tcpProxy } from '../support/processes/tcp-proxy.ts';
import { until } from '../support/until.ts';

// Times in milliseconds.
// The time of a read includes that of a new connection, which takes a second while other tests use all processors.
const limits = { read: 3000, transaction: 3000, connection: 20_000, lock: 1000, background: 60_000 };

test('a slow statement of a request ends in time, on the server too; background work may take longer', async (t) => {
  const url = await emptyDatabase(t, 'mysql');
  const database = await openDatabase(url, undefined, limits);
  t.teardown(() => database.close());
  const slow = 'SELECT SLEEP(4) AS slept';
  await t.throwsAsync(database.select(slow), { name: 'DatabaseUnavailable' });
  const endless = `SELECT SLEEP(60) AS slept, '${randomUUID()}' AS mark`;
  await t.throwsAsync(database.select(endless), { name: 'DatabaseUnavailable' });
  const sql = 'SELECT id FROM information_schema.processlist WHERE info = ?';
  // Before MariaDB notices by itself, 5 seconds after the start, that the connection is closed.
  await until(async () => (await database.select(sql, [endless])).length === 0, 1800);
  await t.throwsAsync(
    database.transaction((tx) => tx.select(slow)),
    { name: 'DatabaseUnavailable', message: 'The database has not answered in time.' },
  );
  t.deepEqual(await inBackground(() => database.select(slow)), [{ slept: 0 }]);
  t.deepEqual(await inBackground(() => database.transaction((tx) => tx.select(slow))), [{ slept: 0 }]);
  t.deepEqual(await database.exclusively(() => database.transaction((tx) => tx.select(slow))), [{ slept: 0 }]);
});

test('work after a transaction that ran out of time gets a connection, although the pool makes one for that transaction too', async (t) => {
  const url = await emptyDatabase(t, 'mysql');
  const proxy = await tcpProxy(t, url);
  const database = await openDatabase(proxy.through(url), undefined, { ...limits, transaction: 300 });
  t.teardown(() => database.close());
  // The pool makes the second connection while the first one is being prepared.
  proxy.slow(20);
  for (let round = 0; round < 5; round += 1) {
    await t.throwsAsync(
      database.transaction((tx) => tx.select('SELECT SLEEP(2) AS slept')),
      { name: 'DatabaseUnavailable' },
    );
    t.deepEqual(await inBackground(() => database.select('SELECT 1 AS one')), [{ one: 1 }]);
  }
});

test('the statements of a transaction have one time limit together', async (t) => {
  const database = await openDatabase(await emptyDatabase(t, 'mysql'), undefined, limits);
  t.teardown(() => database.close());
  let ended = 0;
  const work = database.transaction(async (tx) => {
    for (; ended < 10; ended += 1) await tx.select('SELECT SLEEP(0.4) AS slept');
  });
  await t.throwsAsync(work, { name: 'DatabaseUnavailable' });
  t.true(ended < 10, `${ended} statements of 400 ms in 3 seconds`);
});

test('a mistake in a statement is not taken for an unavailable database', async (t) => {
  for (const dialect of ['sqlite', 'mysql'] as const) {
    const database = await openDatabase(await emptyDatabase(t, dialect));
    t.teardown(() => database.close());
    for (const work of [
      () => database.select('SELECT nothing FROM nowhere'),
      () => database.transaction((tx) => tx.run('INSERT INTO nowhere VALUES (1)')),
      () => database.transaction(() => Promise.reject(Object.assign(new Error('EIO'), { code: 'EIO' }))),
      () => database.transaction(() => Promise.reject(Object.assign(new Error('reset'), { code: 'ECONNRESET' }))),
    ]) {
      const error = await t.throwsAsync(work);
      t.not(error.name, 'DatabaseUnavailable');
    }
  }
});
