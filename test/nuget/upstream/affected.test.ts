import test from 'ava';
import * as fc from 'fast-check';
import type { BadDetail, RangeEvent } from '../../../src/known-bad/entry.ts';
import { compareVersions, parseVersion } from '../../../src/nuget/format/version.ts';
import { isAffected } from '../../../src/nuget/upstream/affected.ts';

const versions = [
  '0.0.0-alpha',
  '0.0.0',
  '1.0.0-beta',
  '1.0.0',
  '1.0.0.1',
  '1.2.0',
  '1.10.0',
  '2.0.0-rc.1',
  '2.0.0',
  '3.0.0',
];

/** Those of `versions` that an entry affects. */
function affectedBy(detail: Omit<BadDetail, 'reason'>, some: readonly string[] = versions): string[] {
  const entry = { reason: '', ...detail };
  return some.filter((version) => isAffected(entry, version));
}

for (const [what, events, affected] of [
  ['everything from 0', [{ introduced: '0' }], versions],
  ['0.0.0 is above its prereleases, 0 is not', [{ introduced: '0.0.0' }], versions.slice(1)],
  ['the fixed version is not affected', [{ introduced: '0' }, { fixed: '1.2' }], versions.slice(0, 5)],
  ['a fixed prerelease', [{ introduced: '1.0' }, { fixed: '2.0.0-rc.1' }], ['1.0.0', '1.0.0.1', '1.2.0', '1.10.0']],
  ['the last affected version is', [{ introduced: '1.0' }, { last_affected: '1.2' }], ['1.0.0', '1.0.0.1', '1.2.0']],
  ['one version', [{ introduced: '1.2.0.0' }, { last_affected: '1.02' }], ['1.2.0']],
  ['an empty range', [{ introduced: '1.2' }, { fixed: '1.2' }], []],
  ['no begin', [{ fixed: '1.2' }], []],
  [
    'events in no order',
    [{ fixed: '3.0' }, { introduced: '2.0' }, { fixed: '1.0' }, { introduced: '0' }],
    ['0.0.0-alpha', '0.0.0', '1.0.0-beta', '2.0.0'],
  ],
  ['10 is above 2', [{ introduced: '1.2' }, { fixed: '1.10' }], ['1.2.0']],
  [
    'introduced again where it is fixed',
    [{ introduced: '1.0' }, { fixed: '1.2' }, { introduced: '1.2' }, { fixed: '2.0' }],
    ['1.0.0', '1.0.0.1', '1.2.0', '1.10.0', '2.0.0-rc.1'],
  ],
  [
    'introduced again at the last affected one',
    [{ introduced: '1.0' }, { last_affected: '1.2' }, { introduced: '1.2' }, { last_affected: '2.0' }],
    ['1.0.0', '1.0.0.1', '1.2.0', '1.10.0', '2.0.0-rc.1', '2.0.0'],
  ],
  [
    'a begin within another range',
    [{ introduced: '1.0' }, { introduced: '1.2' }, { fixed: '2.0.0-rc.1' }],
    ['1.0.0', '1.0.0.1', '1.2.0', '1.10.0'],
  ],
  [
    'fixed wins over the last affected one',
    [{ introduced: '1.0' }, { last_affected: '1.2' }, { fixed: '1.2' }],
    ['1.0.0', '1.0.0.1'],
  ],
  ['a limit', [{ introduced: '0' }, { limit: '1.0' }], versions.slice(0, 3)],
  [
    'the highest of two limits',
    [{ introduced: '1.2' }, { limit: '1.0' }, { limit: '2.0' }],
    ['1.2.0', '1.10.0', '2.0.0-rc.1'],
  ],
  ['no limit', [{ introduced: '2.0' }, { limit: '*' }], ['2.0.0', '3.0.0']],
  ['a begin that is no version begins below all', [{ introduced: 'first' }, { fixed: '1.0' }], versions.slice(0, 3)],
  ['an end that is no version does not end', [{ introduced: '2.0' }, { fixed: 'next' }], ['2.0.0', '3.0.0']],
] as const satisfies [string, RangeEvent[], string[]][]) {
  test(`events: ${what}`, (t) => {
    t.deepEqual(affectedBy({ ranges: [events] }), [...affected]);
    t.deepEqual(affectedBy({ ranges: [events.toReversed()] }), [...affected], 'in the other order');
  });
}

test('an entry has several ranges and versions, and each counts', (t) => {
  const ranges = [
    [{ introduced: '1.0' }, { fixed: '1.2' }],
    [{ introduced: '1.0.0.1' }, { fixed: '1.10' }],
  ];
  t.deepEqual(affectedBy({ ranges }), ['1.0.0', '1.0.0.1', '1.2.0']);
  t.deepEqual(affectedBy({ ranges, versions: ['3'] }), ['1.0.0', '1.0.0.1', '1.2.0', '3.0.0']);
  t.deepEqual(affectedBy({ versions: ['1.2.0.0', '02.0.0-RC.1+build', ' 3.0 ', 'none'] }), [
    '1.2.0',
    '2.0.0-rc.1',
    '3.0.0',
  ]);
  t.deepEqual(affectedBy({ ranges: [] }), []);
  t.deepEqual(affectedBy({}), versions, 'without any, all versions');
});

test('an own entry has a range in the notation of packages', (t) => {
  t.deepEqual(affectedBy({ range: '[1.0, 2.0)' }), ['1.0.0', '1.0.0.1', '1.2.0', '1.10.0', '2.0.0-rc.1']);
  t.deepEqual(affectedBy({ range: '[1.2]' }), ['1.2.0']);
  t.deepEqual(affectedBy({ range: '(,1.0]' }), ['0.0.0-alpha', '0.0.0', '1.0.0-beta', '1.0.0']);
  t.deepEqual(affectedBy({ range: '[2.0, 1.0]' }), versions, 'what is no range does not open anything');
});

test('what is no version is affected', (t) => {
  t.true(isAffected({ reason: '', versions: ['1.0.0'] }, 'x'));
});

const place = fc.constantFrom(...versions);

function order(a: string, b: string): number {
  return compareVersions(parseVersion(a)!, parseVersion(b)!);
}

test('generated: alternating events in any order are the union of their intervals', (t) => {
  const cases = fc.record({
    ends: fc.uniqueArray(place, { minLength: 1 }),
    kinds: fc.array(fc.boolean(), { minLength: 10, maxLength: 10 }),
    seed: fc.array(fc.nat(), { minLength: 10, maxLength: 10 }),
  });
  fc.assert(
    fc.property(cases, ({ ends, kinds, seed }) => {
      const sorted = ends.toSorted(order);
      const events = sorted.map((version, index): RangeEvent => {
        if (index % 2 === 0) return { introduced: version };
        return kinds[index] ? { fixed: version } : { last_affected: version };
      });
      const expected = versions.filter((version) =>
        sorted.some((from, index) => {
          if (index % 2 === 1 || order(version, from) < 0) return false;
          const to = sorted[index + 1];
          if (to === undefined) return true;
          return kinds[index + 1] ? order(version, to) < 0 : order(version, to) <= 0;
        }),
      );
      const shuffled = events.map((event, index) => ({ event, at: seed[index]! })).toSorted((a, b) => a.at - b.at);
      t.deepEqual(affectedBy({ ranges: [shuffled.map(({ event }) => event)] }), expected);
    }),
    { numRuns: 3000 },
  );
});

/** The version that an event names. */
function placeOf(event: RangeEvent): string {
  return event.introduced ?? event.fixed ?? event.last_affected ?? event.limit!;
}

/** The algorithm as the schema has it ("Evaluation"), for events at different versions. */
function bySchema(version: string, events: readonly RangeEvent[]): boolean {
  const limits = events.flatMap(({ limit }) => limit ?? []);
  if (limits.length > 0 && !limits.some((limit) => order(version, limit) < 0)) return false;
  let vulnerable = false;
  for (const event of events.toSorted((a, b) => order(placeOf(a), placeOf(b)))) {
    if (event.introduced !== undefined && order(version, event.introduced) >= 0) vulnerable = true;
    if (event.fixed !== undefined && order(version, event.fixed) >= 0) vulnerable = false;
    if (event.last_affected !== undefined && order(version, event.last_affected) > 0) vulnerable = false;
  }
  return vulnerable;
}

test('generated: any events at different versions are evaluated as the schema says', (t) => {
  const kind = fc.constantFrom('introduced', 'fixed', 'last_affected', 'limit');
  const cases = fc.tuple(fc.uniqueArray(place), fc.array(kind, { minLength: 10, maxLength: 10 }));
  fc.assert(
    fc.property(cases, ([places, kinds]) => {
      const events = places.map((version, index): RangeEvent => ({ [kinds[index]!]: version }));
      const expected = versions.filter((version) => bySchema(version, events));
      t.deepEqual(affectedBy({ ranges: [events] }), expected);
    }),
    { numRuns: 3000 },
  );
});
