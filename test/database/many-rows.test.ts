import test from 'ava';
import type { Row } from '../../src/database/database.ts';
import { emptyDatabase, openUntilEnd } from '../support/databases.ts';

function rowsFrom(first: number): Row[] {
  return Array.from({ length: 2000 }, (_, index) => ({
    id: first + index,
    name: `name ${index}`,
    note: null,
    size: '9007199254740993',
    digest: 'x'.repeat(64),
  }));
}

test('sqlite: thousands of rows are inserted and changed by one call, and those that exist are not counted', async (t) => {
  const database = await openUntilEnd(t, await emptyDatabase(t, 'sqlite'));
  await database.transaction((tx) =>
    tx.run('CREATE TABLE made (id BIGINT PRIMARY KEY, name TEXT, note TEXT, size BIGINT, digest TEXT)'),
  );
  await database.transaction(async (tx) => {
    const rows = rowsFrom(0);
    t.is(await tx.insertNew('made', rows), 2000);
    t.is(await tx.insertNew('made', rows.slice(0, 10)), 0, 'they exist');
    t.is(await tx.insertNew('made', [...rows.slice(0, 10), ...rowsFrom(2000)]), 2000);
  });
  t.deepEqual(await database.get('SELECT COUNT(*) AS rows, MAX(CAST(size AS TEXT)) AS size FROM made'), {
    rows: 4000,
    size: '9007199254740993',
  });
  const changed = rowsFrom(0).map((row) => ({ ...row, name: 'new' }));
  await database.transaction((tx) => tx.upsert('made', ['id'], changed, 'name = new.name'));
  t.is((await database.get<{ rows: number }>("SELECT COUNT(*) AS rows FROM made WHERE name = 'new'"))!.rows, 2000);
  const error = await t.throwsAsync(
    database.transaction((tx) => tx.insertNew('made', [{ id: 1, none: 'x' }])),
    { code: 'ERR_SQLITE_ERROR', message: /none/ },
  );
  t.like(error, { sql: 'INSERT INTO made (id, none) VALUES (?, ?) ON CONFLICT DO NOTHING' });
});
