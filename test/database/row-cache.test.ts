import test from 'ava';
import { RowCache } from '../../src/database/row-cache.ts';

const failing = () => Promise.reject(new Error('away'));

test('rows are cached by statement and values until the version changes', async (t) => {
  const cache = new RowCache();
  let reads = 0;
  const get = (version: string, sql: string, ...values: unknown[]) =>
    cache.get(version, sql, values, () => Promise.resolve([{ read: (reads += 1) }]));
  t.deepEqual(await get('1', 'a', 1), [{ read: 1 }]);
  t.deepEqual(await get('1', 'a', 1), [{ read: 1 }]);
  t.deepEqual(await get('1', 'a', '1'), [{ read: 2 }], 'a string is not the same as a number');
  t.deepEqual(await get('1', 'b', 1), [{ read: 3 }]);
  t.deepEqual(await get('2', 'a', 1), [{ read: 4 }]);
  t.deepEqual(await get('1', 'a', 1), [{ read: 5 }], 'an earlier version is also a change');
});

test('a failed read is not cached, and fails for all who waited for it', async (t) => {
  const cache = new RowCache();
  const both = [cache.get('1', 'a', [], failing), cache.get('1', 'a', [], () => Promise.resolve([{ n: 1 }]))];
  for (const each of both) await t.throwsAsync(each, { message: 'away' });
  t.deepEqual(await cache.get('1', 'a', [], () => Promise.resolve([{ n: 2 }])), [{ n: 2 }]);
  t.deepEqual(await cache.get('1', 'a', [], failing), [{ n: 2 }]);
});

test('after 10,000 results all are dropped', async (t) => {
  const cache = new RowCache();
  let reads = 0;
  const get = (value: number) => cache.get('1', 'a', [value], () => Promise.resolve([{ read: (reads += 1) }]));
  for (let value = 1; value < 10_000; value += 1) await get(value);
  t.deepEqual(await get(1), [{ read: 1 }], 'the first is still cached');
  await get(10_000);
  t.deepEqual(await get(1), [{ read: 10_001 }]);
  t.deepEqual(await get(2), [{ read: 10_002 }]);
});
