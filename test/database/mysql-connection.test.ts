import { mock } from 'node:test';
import test from 'ava';
import {
  limitStatements,
  Renewal,
  runUntil,
  sessionSettings,
  type MysqlConnection,
} from '../../src/database/mysql-connection.ts';
import { timeLimits } from '../../src/database/time-limits.ts';

// What each connection to a MySQL server does with its statements, without one.

type Done = (error: Error | null, ...results: unknown[]) => void;

const at = (time: number) => (performance.now = () => time);

/** A connection whose answers the test gives. */
function connectionOf() {
  const sent: { input: unknown[]; done: Done }[] = [];
  const ended: string[] = [];
  const send = (method: string) =>
    function (this: unknown, ...input: unknown[]) {
      const done = input.pop() as Done;
      sent.push({ input: [method, ...input, this === connection], done });
      return `sent by ${method}`;
    };
  const connection: MysqlConnection = {
    query: send('query'),
    execute: send('execute'),
    destroy: () => void ended.push('connection'),
    stream: { destroy: () => void ended.push('stream') },
  };
  return { connection, sent, ended };
}

test.serial('a statement that is not answered in time ends its connection', (t) => {
  mock.timers.enable({ apis: ['setTimeout'] });
  try {
    const { connection, sent, ended } = connectionOf();
    const failed: Error[] = [];
    let limit = 100;
    limitStatements(
      connection,
      () => limit,
      (error) => void failed.push(error),
    );
    const answers: unknown[][] = [];
    const done: Done = (...given) => void answers.push(given);
    t.is(connection.query('SELECT 1', ['x'], done), 'sent by query');
    t.is(connection.execute('SELECT 2', done), 'sent by execute');
    t.deepEqual(
      sent.map(({ input }) => input),
      [
        ['query', 'SELECT 1', ['x'], true],
        ['execute', 'SELECT 2', true],
      ],
    );
    sent[0]!.done(null, ['rows'], 'fields');
    const broken = new Error('broken');
    sent[1]!.done(broken);
    t.deepEqual(answers.splice(0), [[null, ['rows'], 'fields'], [broken]]);
    t.deepEqual(failed.splice(0), [broken]);
    mock.timers.tick(1000);
    t.deepEqual([answers, ended], [[], []], 'what was answered has no limit any more');

    connection.query('SELECT SLEEP(9)', done);
    mock.timers.tick(99);
    t.deepEqual(answers, []);
    mock.timers.tick(1);
    t.deepEqual(ended.splice(0), ['connection', 'stream']);
    t.is(answers.length, 1);
    const [late] = answers.splice(0)[0] as [Error];
    const { message, code, fatal } = late as Error & { code?: string; fatal?: boolean };
    t.deepEqual([message, code, fatal], ['the database has not answered in time', 'ETIMEDOUT', true]);
    t.deepEqual(failed.splice(0), [late]);
    sent[2]!.done(null, ['late rows']);
    sent[2]!.done(broken);
    t.deepEqual([answers, failed], [[], []], 'its answer is nobody’s any more');

    // The rest of the time of what runs, instead of the limit of one statement.
    const now = performance.now.bind(performance);
    performance.now = () => 5000;
    try {
      limit = 1;
      runUntil(5040, () => connection.query('SELECT 3', done));
      mock.timers.tick(39);
      t.deepEqual(ended, []);
      mock.timers.tick(1);
      t.deepEqual(ended.splice(0), ['connection', 'stream']);
      t.is(
        runUntil(4000, () => connection.query('SELECT 4', done)),
        'sent by query',
        'it is sent all the same',
      );
      mock.timers.tick(1);
      t.deepEqual(ended, ['connection', 'stream']);
    } finally {
      performance.now = now;
    }
  } finally {
    mock.timers.reset();
  }
});

test.serial('connections are renewed after a server took no write, at most once in a second', (t) => {
  const now = performance.now.bind(performance);
  t.teardown(() => (performance.now = now));
  const renewal = new Renewal();
  const [old, unknown, next, last] = [{}, {}, {}, {}];
  const readOnly = { errno: 1290 };
  at(10);
  renewal.made(old);
  t.true(renewal.allows(old));
  t.true(renewal.allows(unknown));
  renewal.failed(old, { errno: 1213 });
  renewal.failed(old, null);
  t.true(renewal.allows(old), 'other errors');
  at(500);
  renewal.failed(old, readOnly);
  t.deepEqual([renewal.allows(old), renewal.allows(unknown)], [false, false]);
  renewal.made(next);
  t.true(renewal.allows(next));
  at(1499);
  renewal.failed(next, readOnly);
  t.true(renewal.allows(next), 'within a second');
  at(1500);
  renewal.failed(old, readOnly);
  t.true(renewal.allows(next), 'an error of an old connection says nothing of new ones');
  renewal.failed(next, readOnly);
  t.false(renewal.allows(next));
  renewal.made(last);
  t.true(renewal.allows(last));
});

test('the server ends what its client does not wait for any more', (t) => {
  const limits = { ...timeLimits, read: 8000, lock: 10_000 };
  t.is(
    sessionSettings(limits, true),
    "SET time_zone = '+00:00', lock_wait_timeout = 8, innodb_lock_wait_timeout = 8 /*M! , max_statement_time = 8 */ /*!50708 , max_execution_time = 8000 */",
  );
  t.is(
    sessionSettings(limits, false),
    "SET time_zone = '+00:00', lock_wait_timeout = 10, innodb_lock_wait_timeout = 10",
  );
  const waits = (read: number, lock: number) =>
    [true, false].map(
      (isReader) => / lock_wait_timeout = (\d+)/.exec(sessionSettings({ ...limits, read, lock }, isReader))![1],
    );
  t.deepEqual(waits(100, 200), ['1', '1']);
  t.deepEqual(waits(9000, 1001), ['2', '2']);
  t.deepEqual(waits(2000, 3000), ['2', '3']);
  t.regex(sessionSettings({ ...limits, read: 1500 }, true), /max_statement_time = 1\.5 .*max_execution_time = 1500 /);
});
