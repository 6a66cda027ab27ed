import test from 'ava';
import { RowCache } from '../../src/database/row-cache.ts';

const at = (version: string) => ({ of: () => version });
const failing = () => Promise.reject(new Error('away'));

test('rows are cached by statement and values until the version changes', async (t) => {
  const cache = new RowCache();
  let reads = 0;
  const get = (version: string, sql: string, ...values: unknown[]) =>
    cache.get(at(version), sql, values, () => Promise.resolve([{ read: (reads += 1) }]));
  t.deepEqual(await get('1', 'a', 1), [{ read: 1 }]);
  t.deepEqual(await get('1', 'a', 1), [{ read: 1 }]);
  t.deepEqual(await get('1', 'a', '1'), [{ read: 2 }], 'a string is not the same as a number');
  t.deepEqual(await get('1', 'b', 1), [{ read: 3 }]);
  t.deepEqual(await get('2', 'a', 1), [{ read: 4 }]);
  t.deepEqual(await get('1', 'a', 1), [{ read: 5 }], 'an earlier version is also a change');
});

test('a failed read is not cached, and fails for all who waited for it', async (t) => {
  const cache = new RowCache();
  const both = [cache.get(at('1'), 'a', [], failing), cache.get(at('1'), 'a', [], () => Promise.resolve([{ n: 1 }]))];
  for (const each of both) await t.throwsAsync(each, { message: 'away' });
  t.deepEqual(await cache.get(at('1'), 'a', [], () => Promise.resolve([{ n: 2 }])), [{ n: 2 }]);
  t.deepEqual(await cache.get(at('1'), 'a', [], failing), [{ n: 2 }]);
});

test('after 10,000 results all are dropped', async (t) => {
  const cache = new RowCache();
  let reads = 0;
  const get = (value: number) => cache.get(at('1'), 'a', [value], () => Promise.resolve([{ read: (reads += 1) }]));
  for (let value = 1; value < 10_000; value += 1) await get(value);
  t.deepEqual(await get(1), [{ read: 1 }], 'the first is still cached');
  await get(10_000);
  t.deepEqual(await get(1), [{ read: 10_001 }]);
  t.deepEqual(await get(2), [{ read: 10_002 }]);
});

test('results with long texts are dropped before there are 10,000, and those of an older version are not counted', async (t) => {
  const cache = new RowCache();
  let reads = 0;
  const text = 'x'.repeat(2 ** 20);
  const get = (value: number, version = '1') =>
    cache.get(at(version), 'a', [value], () => Promise.resolve([{ read: (reads += 1), text }]));
  const isCached = async (value: number, version?: string) => {
    const before = reads;
    await get(value, version);
    return reads === before;
  };
  for (let value = 0; value < 11; value += 1) await get(value);
  t.true(await isCached(0));
  for (let value = 11; value < 14; value += 1) await get(value);
  t.false(await isCached(0));
  for (let version = 0; version < 50; version += 1) await get(1, `v${version}`);
  t.true(await isCached(1, 'v49'));
});

test('a write drops the rows of statements that read its table, and no others', async (t) => {
  const cache = new RowCache();
  const written = new Map<string, number>();
  let reads = 0;
  const get = async (sql: string) => {
    const versions = {
      of: (tables: readonly string[] | undefined) =>
        JSON.stringify(tables ? tables.map((each) => written.get(each)) : [...written]),
    };
    const [row] = (await cache.get(versions, sql, [], () => Promise.resolve([{ read: (reads += 1) }]))) as [
      { read: number },
    ];
    return row.read;
  };
  const write = (table: string) => written.set(table, (written.get(table) ?? 0) + 1);
  const [joined, inner, unclear] = [
    'SELECT t.name FROM tags t JOIN manifests m ON m.id = t.id',
    'SELECT (SELECT size FROM blobs WHERE digest = x) FROM (SELECT x FROM links) AS y',
    'SELECT * FROM tags, manifests',
  ];
  const all = () => Promise.all([joined, inner, unclear].map(get));
  t.deepEqual(await all(), [1, 2, 3]);
  t.deepEqual(await all(), [1, 2, 3]);
  for (const table of ['manifests', 'tags']) {
    write(table);
    const [first, second, third] = await all();
    t.deepEqual([second, first! > 3, third! > 3], [2, true, true], table);
    t.deepEqual(await all(), [first, second, third]);
  }
  for (const table of ['blobs', 'links']) {
    const before = await get(inner);
    write(table);
    t.true((await get(inner)) > before, table);
  }
  write('tokens');
  const later = await all();
  write('tokens');
  t.deepEqual((await all()).slice(0, 2), later.slice(0, 2));
});
