import test from 'ava';
import type { Database, Row } from '../../src/database/database.ts';
import { emptyDatabase, openUntilEnd } from '../support/databases.ts';

const columns = ['id', 'name', 'note', 'size', 'digest'];

function rowsFrom(first: number): Row[] {
  return Array.from({ length: 2000 }, (_, index) => ({
    id: first + index,
    name: `name ${index}`,
    note: null,
    size: '9007199254740993',
    digest: 'x'.repeat(64),
  }));
}

/** Milliseconds of processor time of a transaction. */
async function costOf(database: Database, work: Parameters<Database['transaction']>[0]): Promise<number> {
  const before = process.cpuUsage();
  await database.transaction(work, { fleeting: true });
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1000;
}

test('sqlite: many rows are inserted by prepared statements, not as thousands of named values', async (t) => {
  const database = await openUntilEnd(t, await emptyDatabase(t, 'sqlite'));
  await database.transaction((tx) =>
    tx.run('CREATE TABLE made (id BIGINT PRIMARY KEY, name TEXT, note TEXT, size BIGINT, digest TEXT)'),
  );
  const named: number[] = [];
  const prepared: number[] = [];
  for (let round = 0; round < 3; round += 1) {
    const rows = rowsFrom(round * 10_000);
    const one = `(${columns.map(() => '?').join(', ')})`;
    const sql = `INSERT INTO made (${columns.join(', ')}) VALUES ${rows.map(() => one).join(', ')}`;
    named.push(
      await costOf(database, (tx) =>
        tx.run(
          sql,
          rows.flatMap((row) => Object.values(row)),
        ),
      ),
    );
    const others = rowsFrom(round * 10_000 + 5000);
    prepared.push(
      await costOf(database, async (tx) => {
        t.is(await tx.insertNew('made', others), 2000);
        t.is(await tx.insertNew('made', others.slice(0, 10)), 0, 'they exist');
      }),
    );
  }
  const [before, after] = [Math.min(...named), Math.min(...prepared)];
  t.true(after * 3 < before, `${after} ms, and ${before} ms with named values`);
  t.log(`${(after / 2000).toFixed(4)} ms a row, and ${(before / 2000).toFixed(4)} ms with named values`);
  t.deepEqual(await database.get('SELECT COUNT(*) AS rows, MAX(CAST(size AS TEXT)) AS size FROM made'), {
    rows: 12_000,
    size: '9007199254740993',
  });
  const changed = rowsFrom(0).map((row) => ({ ...row, name: 'new' }));
  await database.transaction((tx) => tx.upsert('made', ['id'], changed, 'name = new.name'));
  t.is((await database.get<{ rows: number }>("SELECT COUNT(*) AS rows FROM made WHERE name = 'new'"))!.rows, 2000);
  await t.throwsAsync(
    database.transaction((tx) => tx.insertNew('made', [{ id: 1, none: 'x' }])),
    { name: 'SequelizeDatabaseError', message: /none/ },
  );
});
