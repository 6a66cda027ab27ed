import test from 'ava';
import { RowCache } from '../../src/database/row-cache.ts';

const failing = () => Promise.reject(new Error('away'));

test('rows are kept by statement and values until the mark is another one', async (t) => {
  const kept = new RowCache();
  let reads = 0;
  const get = (mark: string, sql: string, ...values: unknown[]) =>
    kept.get(mark, sql, values, () => Promise.resolve([{ read: (reads += 1) }]));
  t.deepEqual(await get('1', 'a', 1), [{ read: 1 }]);
  t.deepEqual(await get('1', 'a', 1), [{ read: 1 }]);
  t.deepEqual(await get('1', 'a', '1'), [{ read: 2 }], 'a text is no number');
  t.deepEqual(await get('1', 'b', 1), [{ read: 3 }]);
  t.deepEqual(await get('2', 'a', 1), [{ read: 4 }]);
  t.deepEqual(await get('1', 'a', 1), [{ read: 5 }], 'an earlier mark is another one too');
});

test('a read that failed is not kept, and those who waited for it hear of it', async (t) => {
  const kept = new RowCache();
  const both = [kept.get('1', 'a', [], failing), kept.get('1', 'a', [], () => Promise.resolve([{ n: 1 }]))];
  for (const each of both) await t.throwsAsync(each, { message: 'away' });
  t.deepEqual(await kept.get('1', 'a', [], () => Promise.resolve([{ n: 2 }])), [{ n: 2 }]);
  t.deepEqual(await kept.get('1', 'a', [], failing), [{ n: 2 }]);
});

test('of 10,000 results all are forgotten before there are more', async (t) => {
  const kept = new RowCache();
  let reads = 0;
  const get = (value: number) => kept.get('1', 'a', [value], () => Promise.resolve([{ read: (reads += 1) }]));
  for (let value = 1; value < 10_000; value += 1) await get(value);
  t.deepEqual(await get(1), [{ read: 1 }], 'the first is still kept');
  await get(10_000);
  t.deepEqual(await get(1), [{ read: 10_001 }]);
  t.deepEqual(await get(2), [{ read: 10_002 }]);
});
