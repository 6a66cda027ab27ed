import test from 'ava';
import type { Database, Value } from '../../../src/database/database.ts';
import { IndexSizes } from '../../../src/nuget/search/index-sizes.ts';

/** The sizes of an index that says how many rows it has, and has these terms, each with its rows. */
function start(terms: Record<string, number> = {}) {
  const asked: unknown[][] = [];
  const rows = Object.entries(terms)
    .flatMap(([term, count]) => Array.from({ length: count }, () => ({ term })))
    .toSorted((a, b) => (a.term < b.term ? -1 : 1));
  const database = {
    get: async (sql: string, values: readonly Value[]) => {
      asked.push([sql.replaceAll(/\s+/g, ' '), ...values]);
      return Object.fromEntries(values.map((value, at) => [`size${at}`, Number(value)]));
    },
    select: async (_sql: string, [account, after, end, limit]: readonly [number, string, string, number]) => {
      asked.push([account, after, end, limit]);
      return rows.filter(({ term }) => term > after && term < end).slice(0, limit);
    },
  } as unknown as Database;
  return { sizes: new IndexSizes(database), asked };
}

const counted = (...values: readonly number[]) =>
  values.map((value) => ({ key: `k${value}`, from: 't WHERE n = ?', values: [value] }));

const one = (at: number) =>
  `(SELECT COUNT(*) FROM (SELECT 1 AS one FROM t WHERE n = ? LIMIT 1000) AS c${at}) AS size${at}`;

test('the sizes of all are counted in one statement, up to a thousand rows each, and only those that are not known', async (t) => {
  const { sizes, asked } = start();
  t.deepEqual(await sizes.sizesOf(counted(7, 9)), [7, 9]);
  t.deepEqual(asked.splice(0), [[`SELECT ${one(0)}, ${one(1)}`, 7, 9]]);
  t.deepEqual(await sizes.sizesOf(counted(9, 7, 9)), [9, 7, 9]);
  t.deepEqual(await sizes.sizesOf([]), []);
  t.deepEqual(asked, []);
  t.deepEqual(await sizes.sizesOf(counted(9, 3, 7)), [9, 3, 7]);
  t.deepEqual(asked, [[`SELECT ${one(0)}`, 3]]);
});

const statement = (after: string, word = '.json') => [1, after, `${word}\u{10ffff}`, 200];

test('the id terms that begin with a word are the word, frequent ones and rare ones, in order', async (t) => {
  const { sizes, asked } = start({
    '.json': 500,
    '.jsona': 20,
    '.jsonb': 19,
    '.jsonc': 21,
    '.jsonbb': 1,
    '.jso': 9,
    '.jt': 9,
  });
  const found = { frequent: ['.json', '.jsona', '.jsonc'], rare: ['.jsonb', '.jsonbb'], isComplete: true };
  t.deepEqual(await sizes.idTerms(1, 'json'), found);
  t.deepEqual(asked.splice(0), [statement('.json')]);
  t.deepEqual(await sizes.idTerms(1, 'json'), found);
  t.deepEqual(asked, []);
  t.deepEqual(await sizes.idTerms(1, 'other'), { frequent: ['.other'], rare: [], isComplete: true });
  await sizes.idTerms(2, 'json');
  t.is(asked.length, 2, 'another account has its own terms');
});

const letters = (count: number) => Array.from({ length: count }, (_, at) => `.json${String.fromCharCode(97 + at)}`);
const termsWith = (names: readonly string[], rows: number) => Object.fromEntries(names.map((name) => [name, rows]));

test('a word stands for sixteen terms', async (t) => {
  t.deepEqual(await start(termsWith(letters(15), 1)).sizes.idTerms(1, 'json'), {
    frequent: ['.json'],
    rare: letters(15),
    isComplete: true,
  });
  t.deepEqual(await start(termsWith(letters(16), 1)).sizes.idTerms(1, 'json'), {
    frequent: ['.json'],
    rare: letters(15),
    isComplete: false,
  });
});

test('terms of many packages are read in several statements, each term with all that one of them has', async (t) => {
  const mixed = start({ '.jsona': 190, '.jsonb': 15, '.jsonc': 400, '.jsond': 3 });
  t.deepEqual(await mixed.sizes.idTerms(1, 'json'), {
    frequent: ['.json', '.jsona', '.jsonc'],
    rare: ['.jsonb', '.jsond'],
    isComplete: true,
  });
  t.deepEqual(mixed.asked, [statement('.json'), statement('.jsona'), statement('.jsonb'), statement('.jsonc')]);
  const many = start(termsWith(letters(20), 100));
  t.deepEqual(await many.sizes.idTerms(1, 'json'), {
    frequent: ['.json', ...letters(15)],
    rare: [],
    isComplete: false,
  });
  t.deepEqual(many.asked, [statement('.json'), ...letters(14).map((after) => statement(after))]);
});
