import test from 'ava';
import { inOrder, positionAfter } from '../../../src/oci/format/in-order.ts';

interface Item {
  key: string;
  at: number;
}

/** Items with these keys, each with its place in the list. */
const itemsOf = (keys: readonly string[]): Item[] => keys.map((key, at) => ({ key, at }));
const keyOf = ({ key }: Item) => key;

test('of several items with one key, the first one stays', async (t) => {
  t.deepEqual(await inOrder(itemsOf(['b', 'a', 'b', 'a', 'a']), keyOf), [
    { key: 'a', at: 1 },
    { key: 'b', at: 0 },
  ]);
  // More than are sorted at once, so that equal keys are in lists that are merged.
  const keys = Array.from({ length: 9000 }, (_, index) => String((index * 7919) % 3000).padStart(4, '0'));
  const firstOf = new Map<string, number>();
  for (const [at, key] of keys.entries()) if (!firstOf.has(key)) firstOf.set(key, at);
  const wanted = [...firstOf].map(([key, at]) => ({ key, at })).toSorted((a, b) => Number(a.key) - Number(b.key));
  t.deepEqual(await inOrder(itemsOf(keys), keyOf), wanted);
});

test('the items themselves are left as they are', async (t) => {
  const given = itemsOf(['c', 'a', 'b']);
  const before = structuredClone(given);
  await inOrder(given, keyOf);
  t.deepEqual(given, before);
});

test('a list that is in order already is read, but neither sorted nor merged', async (t) => {
  const count = 10_000;
  for (const [keys, what] of [
    [Array.from({ length: count }, (_, index) => String(index).padStart(6, '0')), 'distinct keys'],
    [Array.from({ length: count }, () => 'same'), 'one key'],
  ] as const) {
    let reads = 0;
    const found = await inOrder(keys, (key) => {
      reads += 1;
      return key;
    });
    t.deepEqual(found, [...new Set(keys)], what);
    // Each item is compared with the one before it twice: for the order, and for the distinct keys.
    t.true(reads <= 4 * count + 100, `${reads} reads: ${what}`);
  }
});

test('a position is the number of names up to a name, and 0 without one', (t) => {
  const names = ['a', 'b', 'b1', 'd', 'e', 'f', 'g'];
  for (const [last, wanted] of [
    ['', 0],
    ['A', 0],
    ['a', 1],
    ['aa', 1],
    ['b', 2],
    ['b0', 2],
    ['b1', 3],
    ['c', 3],
    ['d', 4],
    ['e', 5],
    ['f', 6],
    ['fz', 6],
    ['g', 7],
    ['h', 7],
  ] as const)
    t.is(positionAfter(names, last), wanted, last);
  t.is(positionAfter(['a'], 'a'), 1);
  t.is(positionAfter([], 'a'), 0);
});
