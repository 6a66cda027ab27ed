import test from 'ava';
import { openDatabase } from '../../src/database/database.ts';
import { timeLimits } from '../../src/database/time-limits.ts';
import { temporaryDatabase } from '../support/databases.ts';
import { replaceable } from '../support/mysql-variables.ts';
import { until } from '../support/until.ts';

/** Many tests at the same time share two cores. */
const limits = { ...timeLimits, connection: 60_000, read: 60_000, transaction: 60_000 };

test('after a switchover, no statement goes to the old primary any more, although it still answers', async (t) => {
  const server = await replaceable(t, await temporaryDatabase(t, 'mysql'));
  const database = await openDatabase(server.url, undefined, limits);
  t.teardown(() => database.close());
  const write = () => database.checkWrites();
  const read = () => database.select('SELECT SLEEP(0.01) AS slept');
  const many = () => Promise.allSettled(Array.from({ length: 10 }, () => [write(), read()]).flat());
  const isOver = async () => {
    const { late } = server;
    const ended = await many();
    return server.late === late && ended.every(({ status }) => status === 'fulfilled');
  };
  for (let round = 1; round <= 2; round += 1) {
    await many();
    server.replace();
    t.deepEqual(await read(), [{ slept: 0 }], 'it still answers');
    // The second switchover comes so soon after the first that connections are not renewed at once.
    await until(isOver);
  }
});

test('a database that stays read-only gets new connections once a second at most', async (t) => {
  const server = await replaceable(t, await temporaryDatabase(t, 'mysql'));
  const database = await openDatabase(server.url, undefined, limits);
  t.teardown(() => database.close());
  await database.checkWrites();
  server.replace(true);
  const { connections } = server;
  const start = performance.now();
  for (let round = 0; round < 100; round += 1)
    await t.throwsAsync(database.checkWrites(), { name: 'DatabaseUnavailable' });
  const made = server.connections - connections;
  // Each renewal makes up to a pool of ten anew.
  const most = 10 * (Math.ceil((performance.now() - start) / 1000) + 1);
  t.true(made <= most, `${made} connections, ${most} expected at most`);
});
