import test from 'ava';
import { batches } from '../../src/database/batches.ts';
import { clockDifference } from '../../src/database/clock-difference.ts';
import type { Queryable } from '../../src/database/database.ts';
import { rankedRows } from '../../src/database/ranked-rows.ts';
import { afterId, afterKey } from '../../src/database/tables.ts';
import type { Rank } from '../../src/runtime/ranked.ts';
import { dialects, emptyDatabase, openUntilEnd } from '../support/databases.ts';

const keys = [1, 2, 3].flatMap((a) => [1, 2, 3].flatMap((b) => ['x', 'y'].map((c) => [a, b, c] as const)));

for (const dialect of dialects) {
  test(`${dialect}: lists are read in pages, each row once and in order`, async (t) => {
    const database = await openUntilEnd(t, await emptyDatabase(t, dialect));
    await database.transaction(async (tx) => {
      await tx.run('CREATE TABLE triples (a BIGINT NOT NULL, b BIGINT NOT NULL, c VARCHAR(5) NOT NULL)');
      await tx.run('CREATE TABLE ranks (kind BIGINT NOT NULL, size BIGINT, name VARCHAR(10) NOT NULL PRIMARY KEY)');
    });
    await database.transaction(async (tx) => {
      const sizes: [string, number | null][] = [
        ['a', 5],
        ['b', null],
        ['c', 7],
        ['d', 5],
        ['e', null],
        ['f', 0],
        ['g', 5],
      ];
      const rows = sizes.map(([name, size]) => ({ kind: 1, size, name }));
      await tx.insertNew('ranks', [...rows, { kind: 2, size: 6, name: 'other' }]);
      await tx.insertNew(
        'triples',
        keys.map(([a, b, c]) => ({ a, b, c })),
      );
    });
    const ranked = { columns: 'name', from: 'ranks WHERE kind = ?', values: [1], name: 'name' };
    for (const [value, expected] of [
      ['size', 'cadgfbe'],
      [undefined, 'abcdefg'],
    ] as const)
      for (const limit of [1, 2, 3, 20]) {
        let names = '';
        let after: Rank | undefined;
        do {
          const page = await rankedRows<{ name: string }>(database, { ...ranked, value }, limit, after);
          t.true(page.length <= limit);
          for (const { item } of page) {
            t.deepEqual(Object.keys(item), ['name']);
            names += item.name;
            t.true(names.length <= expected.length, names);
          }
          after = page.at(-1)?.rank;
        } while (after);
        t.is(names, expected, `${value} in pages of ${limit}`);
      }

    for (const [index, key] of keys.entries()) {
      // Each database understands both forms.
      for (const form of dialects) {
        const { sql, values } = afterKey({ dialect: form } as Queryable, ['a', 'b', 'c'], key);
        const rows = await database.select(`SELECT a, b, c FROM triples WHERE ${sql} ORDER BY a, b, c`, values);
        t.deepEqual(rows.map(Object.values), keys.slice(index + 1), `${form} after ${key.join()}`);
      }
    }
  });
}

test('a place in a list of IDs is after the last one that was read, in both orders', (t) => {
  t.deepEqual(afterId({}), { sql: 'id < ?', value: Number.MAX_SAFE_INTEGER, order: 'id DESC' });
  t.deepEqual(afterId({ after: 7 }), { sql: 'id < ?', value: 7, order: 'id DESC' });
  t.deepEqual(afterId({ isOldest: true }), { sql: 'id > ?', value: 0, order: 'id' });
  t.deepEqual(afterId({ after: 7, isOldest: true }), { sql: 'id > ?', value: 7, order: 'id' });
});

test('many values are split into parts of 500', (t) => {
  const values = Array.from({ length: 1001 }, (_, index) => index);
  const parts = batches(values);
  t.deepEqual(
    parts.map(({ length }) => length),
    [500, 500, 1],
  );
  t.deepEqual(parts.flat(), values);
  t.deepEqual(batches([]), []);
});

const difference = (time: number, ...own: number[]) =>
  clockDifference({ get: () => Promise.resolve({ time }) } as unknown as Queryable, () => own.shift()!);

test('the time that a query takes is no difference of clocks', async (t) => {
  t.is(await difference(1000, 1000, 9000), 0);
  t.is(await difference(9000, 1000, 9000), 0);
  t.is(await difference(900, 1000, 9000), 100, 'ahead of the database');
  t.is(await difference(9100, 1000, 9000), -100, 'behind it');
});
