import test from 'ava';
import { encodeValue } from '../../src/backup/format.ts';
import { dumpedTables, dumpTable, leftOut, linesOf } from '../../src/backup/rows.ts';
import { migrate } from '../../src/database/migrate.ts';
import { readTables } from '../../src/database/tables.ts';
import type { Value } from '../../src/database/database.ts';
import { Pace } from '../../src/storage/upkeep/pace.ts';
import { dialects, openUntilEnd, emptyDatabase } from '../support/databases.ts';

for (const dialect of dialects) {
  test(`${dialect}: every table of the schema is in a backup, or is named as left out`, async (t) => {
    const database = await openUntilEnd(t, await emptyDatabase(t, dialect));
    await migrate(database);
    const all = (await readTables(database)).map(({ name }) => name);
    const dumped = (await dumpedTables(database)).map(({ name }) => name);
    t.true(all.length > 25);
    t.deepEqual([...dumped, ...Object.keys(leftOut)].toSorted(), all.toSorted());
    await database.transaction((tx) => tx.run('CREATE TABLE added_later (id INTEGER PRIMARY KEY)'));
    t.true((await dumpedTables(database)).some(({ name }) => name === 'added_later'));
  });

  test(`${dialect}: values keep their types, and pages follow a key of several columns`, async (t) => {
    const database = await openUntilEnd(t, await emptyDatabase(t, dialect));
    const blob = dialect === 'mysql' ? 'VARBINARY(100)' : 'BLOB';
    const text = dialect === 'mysql' ? 'VARCHAR(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin' : 'VARCHAR(100)';
    await database.transaction((tx) =>
      tx.run(
        `CREATE TABLE made (part BIGINT NOT NULL, name ${text} NOT NULL, large BIGINT, bytes ${blob}, empty ${text},
         PRIMARY KEY (part, name))`,
      ),
    );
    const expected: (string | number | null)[][] = [];
    for (const part of [1, 2, 3]) {
      for (let index = 0; index < 70; index += 1) {
        const name = `${'aAéÉ漢𝒳'.repeat(2)} "${String(index).padStart(3, '0')}"\n`;
        const bytes = Buffer.from([0, 255, index]);
        const large = index % 2 === 0 ? '9007199254740993' : -index;
        const row = { part, name, large, bytes: bytes as unknown as Value, empty: index % 3 === 0 ? null : '' };
        await database.transaction((tx) => tx.insert('made', row));
        expected.push([part, name, large, bytes.toString('base64'), row.empty]);
      }
    }
    const table = (await readTables(database)).find(({ name }) => name === 'made');
    t.deepEqual(table!.key, ['part', 'name']);
    t.deepEqual(
      table!.columns.map(({ kind }) => kind),
      ['number', 'text', 'number', 'bytes', 'text'],
    );
    const pieces: Buffer[] = [];
    await database.transaction((tx) => tx.run('CREATE TABLE schema_version (id INTEGER PRIMARY KEY)'));
    const rows = await database.snapshot(async (from) => {
      await from.select('SELECT part FROM made LIMIT 1');
      // Not in this state.
      await database.transaction((tx) => tx.run("INSERT INTO made (part, name) VALUES (2, 'later')"));
      return dumpTable(from, table!, undefined, new Pace(), async (bytes) => void pieces.push(bytes));
    });
    const [header, ...lines] = Buffer.concat(pieces).toString().trimEnd().split('\n');
    t.deepEqual(JSON.parse(header!), { columns: table!.columns });
    t.is(rows, expected.length);
    t.deepEqual(
      lines.map((line) => JSON.parse(line) as unknown),
      expected,
    );
  });
}

/** Dumps a table whose pages all are full, of rows with a text of `length`, up to the page `pages`. */
async function pagesOfRows(length: number, pages: number, filter?: string) {
  const asked: { sql: string; values: readonly unknown[] | undefined; limit: number }[] = [];
  const select = async (sql: string, values?: readonly unknown[]) => {
    const limit = Number(/ LIMIT (\d+)$/.exec(sql)![1]);
    asked.push({ sql, values, limit });
    const count = asked.length < pages ? limit : 0;
    return Array.from({ length: count }, (_, index) => ({ id: index, text: 'x'.repeat(length) }));
  };
  const table = {
    name: 'made',
    key: ['id'],
    columns: [
      { name: 'id', kind: 'number' },
      { name: 'text', kind: 'text' },
    ],
  } as const;
  const written: number[] = [];
  const from = { dialect: 'sqlite', select } as unknown as Parameters<typeof dumpTable>[0];
  const write = async (bytes: Buffer) => void written.push(bytes.length);
  const rows = await dumpTable(from, table, filter, new Pace(), write);
  return { asked, rows, written, limits: asked.map(({ limit }) => limit) };
}

test('pages of a table become larger while they are small, and smaller while they are large', async (t) => {
  const small = await pagesOfRows(1, 8, 'id > 5');
  t.deepEqual(small.limits, [50, 100, 200, 400, 800, 1000, 1000, 1000]);
  t.is(small.rows, 3550);
  t.is(small.written.length, 8, 'a header, and no empty page');
  t.is(small.asked[0]!.sql, 'SELECT id, text FROM made WHERE (id > 5) ORDER BY id LIMIT 50');
  t.regex(
    small.asked[1]!.sql,
    /^SELECT id, text FROM made WHERE \(id > 5\) AND \(\(id\) > \(\?\)\) ORDER BY id LIMIT 100$/,
  );
  t.deepEqual(small.asked[1]!.values, [49]);
  const plain = await pagesOfRows(1, 2);
  t.is(plain.asked[0]!.sql, 'SELECT id, text FROM made  ORDER BY id LIMIT 50');
  t.regex(plain.asked[1]!.sql, / made WHERE \(\(id\) > \(\?\)\) ORDER BY/);
  t.deepEqual((await pagesOfRows(100_000, 4)).limits, [50, 25, 13, 26]);
});

test('a row that is larger than a line can be is refused', async (t) => {
  await t.throwsAsync(pagesOfRows(128 * 2 ** 20, 2), {
    name: 'Invalid',
    message: 'a row of the table made is larger than 134217728 bytes',
  });
});

test('a line that is longer than a row can be is refused before its end', async (t) => {
  let read = 0;
  let isClosed = false;
  const content = {
    size: 2 ** 40,
    read: async (target: Buffer) => {
      read += target.length;
      return target.length;
    },
    close: () => void (isClosed = true),
  };
  const lines = linesOf({
    ...content,
    read: (target: Buffer) => {
      target.fill('x');
      return content.read(target);
    },
  });
  await t.throwsAsync(lines.next(), { name: 'Invalid', message: /is longer than 134217728 bytes/ });
  t.is(read, 128 * 2 ** 20 + 256 * 1024);
  t.true(isClosed);
});

test('a value that does not fit its column is refused', (t) => {
  t.throws(() => encodeValue('x', 'number'));
  t.throws(() => encodeValue(1, 'text'));
  t.throws(() => encodeValue('x', 'bytes'));
  t.is(encodeValue(null, 'bytes'), null);
});
