import test from 'ava';
import * as fc from 'fast-check';
import { withVersions } from '../../../src/nuget/format/merge.ts';
import { fitIndex, paged, pagedInline, RangeSize, type RegisteredVersion } from '../../../src/nuget/format/pages.ts';
import { compareVersions, parseVersion } from '../../../src/nuget/format/version.ts';

const sized = (count: number, bytes: number) =>
  Array.from({ length: count }, (_, at) => ({ version: `1.0.${at}`, bytes }) as RegisteredVersion);

test('an index has all versions if they are few and short', (t) => {
  t.true(fitIndex(sized(127, 1)));
  t.false(fitIndex(sized(128, 1)));
  t.true(fitIndex(sized(2, 2 ** 19)));
  t.false(fitIndex([...sized(2, 2 ** 19), ...sized(1, 1)]));
});

const counts = (versions: RegisteredVersion[]) => paged(versions).map(({ count }) => count);

test('a page has 64 versions, or fewer long ones, and at least one', (t) => {
  t.deepEqual(paged(sized(130, 1)), [
    { lower: '1.0.0', upper: '1.0.63', count: 64 },
    { lower: '1.0.64', upper: '1.0.127', count: 64 },
    { lower: '1.0.128', upper: '1.0.129', count: 2 },
  ]);
  t.deepEqual(counts(sized(5, 2 ** 19)), [2, 2, 1]);
  t.deepEqual(counts(sized(3, 2 ** 19 + 1)), [1, 1, 1]);
  t.deepEqual(counts(sized(2, 2 ** 21)), [1, 1]);
  t.deepEqual(counts([]), []);
  const versions = sized(65, 1);
  t.deepEqual(pagedInline(versions), [
    { lower: '1.0.0', upper: '1.0.63', count: 64, items: versions.slice(0, 64) },
    { lower: '1.0.64', upper: '1.0.64', count: 1, items: versions.slice(64) },
  ]);
});

test('a range that a client requests has at most 1024 versions and 8 MiB', (t) => {
  for (const [count, bytes] of [
    [1024, 1],
    [8, 2 ** 20],
  ] as const) {
    const size = new RangeSize();
    for (let at = 0; at < count; at += 1) size.add({ bytes });
    t.throws(() => size.add({ bytes: 1 }), { name: 'Invalid', message: /too many versions in this range/ });
  }
});

const order = (one: string, other: string) => compareVersions(parseVersion(one)!, parseVersion(other)!);

const sorted = (numbers: readonly number[]) => numbers.toSorted((one, other) => one - other);

test('two lists of versions become one in the order of versions, in which each has its own place', async (t) => {
  const number = fc.integer({ min: 0, max: 40 });
  const lists = fc.record({ items: fc.uniqueArray(number), further: fc.uniqueArray(number) });
  await fc.assert(
    fc.asyncProperty(lists, async ({ items, further }) => {
      const own = sorted(items).map((each) => `1.${each}.0 own`);
      const merged = await withVersions(
        own,
        further.map((each) => `1.${each}.0 further`),
        (each) => each.split(' ')[0]!,
      );
      const expected = sorted([...new Set([...items, ...further])]).map(
        (each) => `1.${each}.0 ${items.includes(each) ? 'own' : 'further'}`,
      );
      t.deepEqual(merged, expected);
    }),
  );
  const many = Array.from({ length: 3000 }, (_, at) => `1.0.${at}`);
  const merged = await withVersions(many, ['1.0.2999', '1.0.1500.1', '2.0.0', '0.1.0'], String);
  t.is(merged.length, 3003);
  t.deepEqual(merged, merged.toSorted(order));
});
