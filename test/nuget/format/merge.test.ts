import test from 'ava';
import { withVersions } from '../../../src/nuget/format/merge.ts';

/** Versions, each with a mark of its list. */
const list = (mark: string, ...versions: string[]) => versions.map((version) => ({ version, mark }));
const merged = async (items: readonly string[], further: readonly string[]) => {
  const all = await withVersions(list('a', ...items), list('b', ...further), ({ version }) => version);
  return all.map(({ version, mark }) => `${version} ${mark}`);
};

test('versions of the second list are put into the first, which has its own where both have one', async (t) => {
  const table: [items: string[], further: string[], result: string[]][] = [
    [[], [], []],
    [['1.0.0'], [], ['1.0.0 a']],
    [[], ['2.0.0', '1.0.0'], ['1.0.0 b', '2.0.0 b']],
    [['2.0.0'], ['1.0.0'], ['1.0.0 b', '2.0.0 a']],
    [['1.0.0'], ['2.0.0'], ['1.0.0 a', '2.0.0 b']],
    [
      ['1.0.0', '2.0.0'],
      ['2.0.0', '1.0.0'],
      ['1.0.0 a', '2.0.0 a'],
    ],
    [
      ['1.0.0', '3.0.0', '5.0.0'],
      ['10.0.0', '4.0.0', '2.0.0-b', '2.0.0-a', '0.1.0'],
      ['0.1.0 b', '1.0.0 a', '2.0.0-a b', '2.0.0-b b', '3.0.0 a', '4.0.0 b', '5.0.0 a', '10.0.0 b'],
    ],
  ];
  for (const [items, further, result] of table) t.deepEqual(await merged(items, further), result);
});

test('long lists are merged in order, wherever the further versions belong', async (t) => {
  const items = Array.from({ length: 2500 }, (_, index) => `1.0.${index * 2}`);
  for (const places of [[1], [4999], [1, 3, 5], [999, 1001, 1999], [4990, 4, 2, 4998], [2501, 7, 4999, 3333]]) {
    const further = places.map((each) => `1.0.${each}`);
    const expected = new Map([...items.map((each) => [each, 'a']), ...further.map((each) => [each, 'b'])] as [
      string,
      string,
    ][]);
    for (const each of items) expected.set(each, 'a');
    const inOrder = [...expected].toSorted(([one], [other]) => Number(one.slice(4)) - Number(other.slice(4)));
    t.deepEqual(
      await merged(items, further),
      inOrder.map((each) => each.join(' ')),
    );
  }
});
