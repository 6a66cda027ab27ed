import test from 'ava';
import type { Database, Queryable } from '../../src/database/database.ts';
import { examineEngine } from '../../src/database/engine.ts';

// What a MySQL server says about itself, without one. test/server/preflight.test.ts has the starts that it refuses.

type Variables = Record<string, string>;

const nextTurn = () => new Promise((resolve) => setImmediate(resolve));

/** A server that shows these variables: to reads, and to transactions by their number. Notes what it is asked. */
function serverWith(read: Variables, inTransaction: (number: number) => Variables | Error = () => read) {
  const asked: string[] = [];
  let [transactions, open, most] = [0, 0, 0];
  const selecting = (variables: Variables) => async (sql: string) => {
    asked.push(sql);
    // Servers differ in the letter case of the names.
    return Object.entries(variables).map(([name, Value]) => ({ Variable_name: name.toUpperCase(), Value }));
  };
  const database = {
    dialect: 'mysql',
    select: selecting(read),
    transaction: async (work: (tx: Queryable) => Promise<unknown>, options: object) => {
      const number = (transactions += 1);
      const variables = inTransaction(number);
      asked.push(JSON.stringify(options));
      // One connection after another is made.
      for (let turn = 0; turn < 5 * number; turn += 1) await nextTurn();
      most = Math.max(most, (open += 1));
      const select = variables instanceof Error ? () => Promise.reject(variables) : selecting(variables);
      try {
        return await work({ select } as unknown as Queryable);
      } finally {
        open -= 1;
      }
    },
  } as unknown as Database;
  return { examined: () => examineEngine(database), asked, mostOpen: () => most, isOpen: () => open };
}

const plain = { problem: undefined, doubt: undefined, node: undefined };
const mariadb = { version: '10.11.6-MariaDB-1:10.11.6+maria~deb12', hostname: 'db', port: '3306' };

const tidb = (version: string, mode = 'pessimistic') => ({ version, tidb_txn_mode: mode });
const tidbIs = (name: string, problem?: string) => ({
  ...plain,
  name,
  problem,
  doubt: 'TiDB is not tested with this program',
});
const node = (hostname: string, name = hostname, port = '3306') => ({
  ...mariadb,
  wsrep_on: 'ON',
  hostname,
  port,
  wsrep_node_name: name,
});

test('a server says its name, and what of it cannot be used', async (t) => {
  const mysql = { version: '8.0.36', hostname: 'db', port: '3306' };
  const several =
    'the group replication of this database has several primaries (group_replication_single_primary_mode=OFF), which do not share locks. Run "SELECT group_replication_switch_to_single_primary_mode()", and use an address that leads to the primary';
  const noLocks =
    'SELECT … FOR UPDATE of this TiDB takes no lock (tidb_txn_mode is not pessimistic). Run "SET GLOBAL tidb_txn_mode = \'pessimistic\'"';
  const old = 'this TiDB is older than 6.1 and has no locks of GET_LOCK. Upgrade it';
  const group = (mode: string, name = '2ad1c1a5') => ({
    ...mysql,
    group_replication_group_name: name,
    group_replication_single_primary_mode: mode,
  });
  const cases: [Variables, object][] = [
    [{}, { ...plain, name: 'MySQL ' }],
    [mysql, { ...plain, name: 'MySQL 8.0.36' }],
    [mariadb, { ...plain, name: 'MariaDB 10.11.6' }],
    [
      { ...mariadb, wsrep_on: 'OFF' },
      { ...plain, name: 'MariaDB 10.11.6' },
    ],
    [
      { ...mariadb, wsrep_on: '0' },
      { ...plain, name: 'MariaDB 10.11.6' },
    ],
    [group('OFF'), { ...plain, name: 'MySQL 8.0.36', problem: several }],
    [group('0'), { ...plain, name: 'MySQL 8.0.36', problem: several }],
    [group('ON'), { ...plain, name: 'MySQL 8.0.36' }],
    [group('1'), { ...plain, name: 'MySQL 8.0.36' }],
    [group('OFF', ''), { ...plain, name: 'MySQL 8.0.36' }],
    [
      { ...mysql, group_replication_group_name: 'x' },
      { ...plain, name: 'MySQL 8.0.36' },
    ],
    [tidb('8.0.11-TiDB-v7.5.0'), tidbIs('TiDB 7.5')],
    [tidb('8.0.11-TiDB-v10.0.2'), tidbIs('TiDB 10.0')],
    [tidb('5.7.25-TiDB-6.1.3'), tidbIs('TiDB 6.1')],
    [tidb('5.7.25-TiDB-v6.10.0'), tidbIs('TiDB 6.10')],
    [tidb('5.7.25-TiDB-v6.0.9'), tidbIs('TiDB 6.0', old)],
    [tidb('5.7.25-TiDB-v5.4.0'), tidbIs('TiDB 5.4', old)],
    [tidb('5.7.25-TiDB-v6.0.0', 'optimistic'), tidbIs('TiDB 6.0', noLocks)],
    [tidb('8.0.11-TiDB-v7.5.0', ''), tidbIs('TiDB 7.5', noLocks)],
    [tidb('8.0.11-other'), tidbIs('TiDB')],
  ];
  for (const [variables, engine] of cases) {
    const { examined, asked } = serverWith(variables);
    t.deepEqual((await examined()) as object, engine, JSON.stringify(variables));
    t.is(asked.length, 1, 'one question');
  }
  const { examined, asked } = serverWith(mysql);
  await examined();
  t.deepEqual(asked, [
    "SHOW VARIABLES WHERE Variable_name IN ('version', 'hostname', 'port', 'wsrep_on', 'wsrep_node_name', 'group_replication_group_name', 'group_replication_single_primary_mode', 'tidb_txn_mode')",
  ]);
  t.is(await examineEngine({ dialect: 'sqlite' } as Database), undefined);
});

test('several connections of a cluster are asked at the same time for the node that they lead to', async (t) => {
  const name = 'MariaDB 10.11.6 with Galera';
  for (const [variables, text] of [
    [node('one'), 'one:3306'],
    [node('one', 'first', '3307'), 'first at one:3307'],
    [node('one', ''), 'one:3306'],
    [{ ...mariadb, wsrep_on: '1' }, 'db:3306'],
  ] as const) {
    const { examined, asked, mostOpen, isOpen } = serverWith(variables);
    t.deepEqual((await examined()) as object, { ...plain, name, node: text });
    t.deepEqual([mostOpen(), isOpen()], [4, 0]);
    t.is(asked.filter((each) => each.startsWith('SHOW')).length, 9);
    t.deepEqual(new Set(asked.filter((each) => each.startsWith('{'))), new Set(['{"uncached":true}']));
  }
  const problem =
    'this address leads to several nodes of a Galera cluster at the same time (one:3306, two:3306), which do not share locks. Use an address that leads to one node, and to another one only after a failure';
  for (const last of [1, 4]) {
    const { examined } = serverWith(node('two'), (number) => node(number === last ? 'one' : 'two'));
    t.deepEqual((await examined()) as object, { ...plain, name, problem, node: 'two:3306' });
  }
  const failing = serverWith(node('one'), (number) => (number === 2 ? new Error('no connection') : node('one')));
  await t.throwsAsync(failing.examined(), { message: 'no connection' });
  t.true(failing.mostOpen() < 4, 'at once');
  for (let turn = 0; turn < 30; turn += 1) await nextTurn();
  t.is(failing.isOpen(), 0, 'the others do not wait for the one that failed');
});
