import test from 'ava';
import { sortedInTurns } from '../../src/runtime/sorted.ts';
import { longestAllowed, longestTurn } from '../support/longest-turn.ts';

// In a process of its own: it measures the process.

const compare = (one: { key: number }, other: { key: number }) => one.key - other.key;

test('items are in order, and equal ones in the order in which they came', async (t) => {
  for (const count of [0, 1, 2, 999, 1000, 1001, 5500]) {
    const items = Array.from({ length: count }, (_, at) => ({ key: (at * 7919) % 97, at }));
    t.deepEqual(await sortedInTurns(items, compare), items.toSorted(compare), String(count));
  }
});

test('many items are sorted without a long turn of the event loop', async (t) => {
  const items = Array.from({ length: 300_000 }, (_, at) => `name ${(at * 7919) % 300_007}`);
  const longest = await longestTurn(() => sortedInTurns(items, (one, other) => (one < other ? -1 : 1)));
  t.true(longest < longestAllowed, `${longest} ms`);
});
