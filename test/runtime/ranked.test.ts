import test from 'ava';
import { compareRanks, firstRanked, type Rank } from '../../src/runtime/ranked.ts';

test('ranks are compared by their numbers, the largest first, then by name, and those without a number come last', (t) => {
  const ranks: Rank[] = [
    [2, 'b'],
    [1, 'a'],
    [1, 'b'],
    [0, 'a'],
    [null, 'a'],
    [null, 'b'],
  ];
  for (const [at, one] of ranks.entries())
    for (const [place, other] of ranks.entries())
      t.is(Math.sign(compareRanks(one, other)), Math.sign(at - place), `${one.join()} ${other.join()}`);
});

const isShown = ({ name }: { name: string }) => !name.endsWith('9');

test('the first items of a rank are found in any order, in pages that have each shown item once', async (t) => {
  const items = Array.from({ length: 4100 }, (_, at) => ({ name: String(at).padStart(4, '0'), value: (at * 7) % 50 }));
  const rankOf = ({ name, value }: (typeof items)[number]): Rank => [value === 0 ? null : value, name];
  const expected = items
    .filter(isShown)
    .map((item) => ({ rank: rankOf(item), item }))
    .toSorted((one, other) => compareRanks(one.rank, other.rank));
  const found: typeof expected = [];
  for (let after: Rank | undefined; ;) {
    const page = await firstRanked(items, { rankOf, isShown, after, limit: 500 });
    found.push(...page);
    if (page.length < 500) break;
    after = page.at(-1)!.rank;
  }
  t.is(found.length, 3690);
  t.deepEqual(found, expected);
  t.deepEqual(await firstRanked([], { rankOf, isShown, after: undefined, limit: 5 }), []);
  const [first] = expected;
  t.deepEqual(await firstRanked(items, { rankOf, isShown, after: undefined, limit: 1 }), [first!]);
});
