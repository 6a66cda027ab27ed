import type { Sequelize, Transaction as SequelizeTransaction } from 'sequelize';
import test from 'ava';
import { MysqlWork, select } from '../../src/database/mysql-work.ts';
import type { Effects } from '../../src/database/transaction-work.ts';
import { WriteCounts } from '../../src/database/write-counts.ts';

// Which statements are sent to MySQL, and what their answers mean, without a server.

const transaction = { is: 'the transaction' } as unknown as SequelizeTransaction;

function setUp() {
  const sent: [sql: string, options: { bind: unknown[] }][] = [];
  const answers: unknown[] = [];
  const sequelize = {
    query: async (sql: string, options: { bind: unknown[] }) => {
      sent.push([sql, options]);
      return answers.shift();
    },
  } as unknown as Sequelize;
  const effects: Effects = { wrote: false, tables: new Set() };
  return { sequelize, sent, answers, effects, work: new MysqlWork(sequelize, transaction, effects) };
}

const options = (...bind: unknown[]) => ({ bind, raw: true, transaction });

test('reads bind their values by number, within the transaction or outside of one', async (t) => {
  const { sequelize, sent, answers, work, effects } = setUp();
  const rows = [{ a: 1 }, { a: 2 }];
  answers.push([rows, 'more'], [rows], [rows], [[]], [rows]);
  const sql = 'SELECT a FROM tags WHERE a = ? AND b IN (?, ?)';
  const numbered = 'SELECT a FROM tags WHERE a = $1 AND b IN ($2, $3)';
  t.deepEqual(await work.select(sql, [1, 'x', null]), rows);
  t.deepEqual(await work.select('SELECT 1'), rows);
  t.deepEqual(await work.get(sql, [1, 2, 3]), { a: 1 });
  t.is(await work.get(sql, [1, 2, 3]), undefined);
  t.deepEqual(await select(sequelize, sql, [4, 5, 6]), rows);
  t.deepEqual(sent as unknown[], [
    [numbered, options(1, 'x', null)],
    ['SELECT 1', options()],
    [numbered, options(1, 2, 3)],
    [numbered, options(1, 2, 3)],
    [numbered, { ...options(4, 5, 6), transaction: null }],
  ]);
  t.deepEqual(effects, { wrote: false, tables: new Set() });
});

test('a write tells how many rows matched, and the ID of a new row', async (t) => {
  const { sent, answers, work, effects } = setUp();
  const change = 'UPDATE tags SET a = ? WHERE b = ?';
  for (const [answer, changes] of [
    [[[], { affectedRows: 1, info: 'Rows matched: 3  Changed: 1  Warnings: 0' }], 3],
    [[[], { affectedRows: 2, info: '' }], 2],
    [[[], { affectedRows: 2 }], 2],
    [[[], { affectedRows: 0, info: 'Rows matched: 0  Changed: 0' }], 0],
    [[[], {}], 0],
    [[7, 4], 4],
  ] as const) {
    answers.push(answer);
    t.is(await work.run(change, [1, 2]), changes, JSON.stringify(answer));
  }
  t.deepEqual(sent[0] as unknown[], ['UPDATE tags SET a = $1 WHERE b = $2', options(1, 2)]);
  sent.length = 0;
  answers.push(['12', 1], [undefined, { affectedRows: 1 }], [0, 1]);
  t.is(await work.insert('blobs', { a: 1, b: 'x' }), 12);
  t.is(await work.insert('blobs', { a: 1 }), 0);
  t.is(await work.run('DELETE FROM uploads'), 1);
  t.deepEqual(sent as unknown[], [
    ['INSERT INTO blobs (a, b) VALUES ($1, $2)', options(1, 'x')],
    ['INSERT INTO blobs (a) VALUES ($1)', options(1)],
    ['DELETE FROM uploads', options()],
  ]);
  t.deepEqual(effects, { wrote: true, tables: new Set(['tags', 'blobs', 'uploads']) });
  answers.push([0, 0], [0, 0]);
  await work.run('ALTER TABLE tags ADD COLUMN x INTEGER');
  await work.run(change, [1, 2]);
  t.is(effects.tables, undefined, 'one of them is not known');
});

test('rows are inserted with one statement, or change those with the same key', async (t) => {
  const { sent, answers, work, effects } = setUp();
  t.is(await work.insertNew('tags', []), 0);
  await work.upsert('tags', ['a'], [], 'b = new.b');
  t.deepEqual([sent, effects], [[], { wrote: false, tables: new Set() }]);
  answers.push([0, 2], [0, 1], [0, 3]);
  const rows = [
    { a: 1, b: 'x' },
    { a: 2, b: null },
  ];
  t.is(await work.insertNew('tags', rows), 2);
  t.is(await work.insertNew('tags', rows.slice(1)), 1);
  await work.upsert('tags', ['a'], rows, 'b = new.b, c = c + new.b, renew.x = 1');
  const values = '(a, b) VALUES ($1, $2), ($3, $4)';
  t.deepEqual(sent as unknown[], [
    [`INSERT INTO tags ${values} ON DUPLICATE KEY UPDATE a = a`, options(1, 'x', 2, null)],
    ['INSERT INTO tags (a, b) VALUES ($1, $2) ON DUPLICATE KEY UPDATE a = a', options(2, null)],
    [
      `INSERT INTO tags ${values} ON DUPLICATE KEY UPDATE b = VALUES(b), c = c + VALUES(b), renew.x = 1`,
      options(1, 'x', 2, null),
    ],
  ]);
  t.deepEqual(effects, { wrote: true, tables: new Set(['tags']) });
});

test('the version of tables changes with each write to one of them, and with each that may be', (t) => {
  const writes = new WriteCounts();
  const versions = () => [['a'], ['a', 'b'], ['c'], undefined].map((tables) => writes.of(tables));
  const changed = (tables: readonly string[] | undefined) => {
    const before = versions();
    writes.add(tables);
    return versions().map((version, at) => version !== before[at]);
  };
  t.deepEqual(changed(['a']), [true, true, false, true]);
  t.deepEqual(changed(['b', 'other']), [false, true, false, true]);
  t.deepEqual(changed(['a']), [true, true, false, true]);
  t.deepEqual(changed([]), [false, false, false, true]);
  t.deepEqual(changed(undefined), [true, true, true, true]);
  t.deepEqual(changed(['c', 'c']), [false, false, true, true]);
  t.not(writes.of(['a', 'b']), writes.of(['b', 'a']));
});
