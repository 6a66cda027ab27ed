import test, { type ExecutionContext } from 'ava';
import { Sequelize, type Transaction as SequelizeTransaction } from 'sequelize';
import type { Row } from '../../src/database/database.ts';
import { MysqlWork, select } from '../../src/database/mysql-work.ts';
import type { Effects } from '../../src/database/transaction-work.ts';
import { WriteCounts } from '../../src/database/write-counts.ts';
import { emptyDatabase } from '../support/databases.ts';

// Which statements Sequelize sends to MariaDB for it, and what it makes of their answers.

interface Given {
  sequelize: Sequelize;
  transaction: SequelizeTransaction;
  work: MysqlWork;
  effects: Effects;
  /** What was sent since the last call: the statement, its values, and whether it was within the transaction. */
  sent: () => unknown[];
}

/** Runs `use` in a transaction, on the tables `tags` and `blobs`. */
async function inTransaction(t: ExecutionContext, use: (given: Given) => Promise<void>): Promise<void> {
  const sequelize = new Sequelize(await emptyDatabase(t, 'mysql'), { dialect: 'mysql', logging: false });
  t.teardown(() => sequelize.close());
  await sequelize.query('CREATE TABLE tags (a INTEGER PRIMARY KEY, b VARCHAR(9), c INTEGER NOT NULL DEFAULT 5)');
  await sequelize.query('CREATE TABLE blobs (id BIGINT AUTO_INCREMENT PRIMARY KEY, b VARCHAR(9)) AUTO_INCREMENT = 12');
  await sequelize.transaction(async (transaction) => {
    const sent: unknown[] = [];
    const query = sequelize.query.bind(sequelize) as (...of: unknown[]) => unknown;
    Object.assign(sequelize, {
      query: (sql: string, options: { bind: unknown[]; transaction: unknown }) => {
        sent.push([sql, options.bind, options.transaction === transaction]);
        return query(sql, options);
      },
    });
    const effects: Effects = { wrote: false, tables: new Set() };
    const work = new MysqlWork(sequelize, transaction, effects);
    await use({ sequelize, transaction, work, effects, sent: () => sent.splice(0) }).finally(() =>
      Object.assign(sequelize, { query }),
    );
  });
}

const tag = (a: number, b: string | null): Row => ({ a, b });
const rowsOf = ({ work }: Given) => work.select('SELECT * FROM tags ORDER BY a');

test('reads bind their values by number, within the transaction or outside of one', (t) =>
  inTransaction(t, async ({ sequelize, work, effects, sent }) => {
    await work.insertNew('tags', [tag(1, 'x'), tag(2, '$1 ?')]);
    Object.assign(effects, { wrote: false, tables: new Set() });
    sent();
    const sql = 'SELECT a FROM tags WHERE a <> ? AND b IN (?, ?)';
    const numbered = 'SELECT a FROM tags WHERE a <> $1 AND b IN ($2, $3)';
    t.deepEqual(await work.select(sql, [1, 'x', '$1 ?']), [{ a: 2 }]);
    t.deepEqual(await work.select('SELECT a FROM tags ORDER BY a'), [{ a: 1 }, { a: 2 }]);
    t.deepEqual(await work.get(sql, [7, 'x', null]), { a: 1 });
    t.is(await work.get(sql, [1, 'x', 3]), undefined);
    t.deepEqual(await select(sequelize, sql, [7, 'x', '']), [], 'not committed');
    t.deepEqual(sent(), [
      [numbered, [1, 'x', '$1 ?'], true],
      ['SELECT a FROM tags ORDER BY a', [], true],
      [numbered, [7, 'x', null], true],
      [numbered, [1, 'x', 3], true],
      [numbered, [7, 'x', ''], false],
    ]);
    t.deepEqual(effects, { wrote: false, tables: new Set() });
  }));

test('a write tells how many rows matched, and the ID of a new row', (t) =>
  inTransaction(t, async (given) => {
    const { work, effects, sent } = given;
    t.is(await work.insert('blobs', { b: 'x' }), 12);
    t.is(await work.insert('tags', tag(1, 'x')), 0, 'no ID is made there');
    await work.insertNew('tags', [tag(2, 'y'), tag(3, 'y')]);
    t.deepEqual(sent(), [
      ['INSERT INTO blobs (b) VALUES ($1)', ['x'], true],
      ['INSERT INTO tags (a, b) VALUES ($1, $2)', [1, 'x'], true],
      ['INSERT INTO tags (a, b) VALUES ($1, $2), ($3, $4) ON DUPLICATE KEY UPDATE a = a', [2, 'y', 3, 'y'], true],
    ]);
    const change = 'UPDATE tags SET b = ? WHERE a < ?';
    t.is(await work.run(change, ['y', 9]), 3, 'two had that value');
    t.is(await work.run(change, ['z', 3]), 2);
    t.is(await work.run(change, ['z', 1]), 0);
    t.deepEqual(sent()[0], ['UPDATE tags SET b = $1 WHERE a < $2', ['y', 9], true]);
    t.is(await work.run('INSERT INTO tags (a) VALUES (8), (9)'), 2);
    t.is(await work.run('INSERT INTO tags (a) SELECT a + 100 FROM tags WHERE b = ?', ['z']), 2);
    t.deepEqual(effects, { wrote: true, tables: new Set(['blobs', 'tags']) });
    t.is(await work.run('DELETE FROM tags WHERE a >= ?', [3]), 5);
    t.is(await work.run('DELETE FROM tags WHERE a >= ?', [3]), 0);
    t.deepEqual(await rowsOf(given), [
      { a: 1, b: 'z', c: 5 },
      { a: 2, b: 'z', c: 5 },
    ]);
    t.is(await work.run('ALTER TABLE blobs ADD COLUMN x INTEGER'), 0);
    await work.run(change, ['a', 1]);
    t.is(effects.tables, undefined, 'one of them is not known');
  }));

test('rows are inserted with one statement, or change those with the same key', (t) =>
  inTransaction(t, async (given) => {
    const { work, effects, sent } = given;
    t.is(await work.insertNew('tags', []), 0);
    await work.upsert('tags', ['a'], [], 'b = new.b');
    t.deepEqual([sent(), effects], [[], { wrote: false, tables: new Set() }]);
    const rows = [tag(1, 'x'), tag(2, null)];
    t.is(await work.insertNew('tags', rows), 2);
    t.is(await work.insertNew('tags', [tag(2, 'other'), tag(3, null)]), 1);
    const insert = 'INSERT INTO tags (a, b) VALUES ($1, $2), ($3, $4) ON DUPLICATE KEY UPDATE';
    t.deepEqual(sent(), [
      [`${insert} a = a`, [1, 'x', 2, null], true],
      [`${insert} a = a`, [2, 'other', 3, null], true],
    ]);
    await work.upsert('tags', ['a'], [tag(3, '7'), tag(4, '1')], 'b = new.b, c = c + new.b + new.a');
    t.deepEqual(sent(), [[`${insert} b = VALUES(b), c = c + VALUES(b) + VALUES(a)`, [3, '7', 4, '1'], true]]);
    await work.upsert('tags', ['a'], [tag(3, 'z')], 'b = CONCAT(b, "renew.x")');
    t.deepEqual(await rowsOf(given), [
      { a: 1, b: 'x', c: 5 },
      { a: 2, b: null, c: 5 },
      { a: 3, b: '7renew.x', c: 15 },
      { a: 4, b: '1', c: 5 },
    ]);
    t.deepEqual(effects, { wrote: true, tables: new Set(['tags']) });
  }));

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
