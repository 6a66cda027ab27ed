import test from 'ava';
import { fixesAmong, siblingsOf } from '../../../src/nuget/upstream/fixes.ts';
import { describePackageEntry } from '../../../src/nuget/upstream/entries.ts';
import { advisoryOf, readAdvisories } from '../../../src/nuget/upstream/known-advisories.ts';
import { documentLimit } from '../../../src/nuget/upstream/package-mirror.ts';
import type { UpstreamRegistrations } from '../../../src/nuget/upstream/upstream-registration.ts';
import type { Upstream } from '../../../src/upstream/upstream.ts';

const advisories = (...ranges: readonly string[]) =>
  readAdvisories(
    JSON.stringify(ranges.map((versions, at) => ({ url: `http://a.test/A-${at}`, versions, severity: 1 }))),
  ).map(advisoryOf);

const fixes = (ranges: readonly string[], held: readonly string[], versions: readonly string[]) =>
  fixesAmong(advisories(...ranges), new Set(held), versions);

test('a held version is a fix as the lowest of its major version from the end of a range on, for stable ones a stable one', async (t) => {
  const versions = ['3.0.0', '2.1.0', '2.0.0-b', '1.9.0', '1.10.0', '1.2.0-a', '1.2.0', '1.0.0', '0.9.0', 'x'];
  t.deepEqual(await fixes(['(, 1.9.0)'], versions, versions), [
    { version: '1.9.0', advisory: 'A-0', affected: ['1.0.0', '1.2.0'] },
    { version: '1.9.0', advisory: 'A-0', affected: ['1.2.0-a'] },
  ]);
  t.deepEqual(await fixes(['[1.2.0, 1.8.0)'], ['1.9.0'], versions), [
    { version: '1.9.0', advisory: 'A-0', affected: ['1.2.0'] },
  ]);
  // A higher one is held, a stable one is the lowest one for prereleases, the end is in the range, or there is no end.
  for (const [range, held] of [
    ['(, 1.9.0)', ['1.10.0']],
    ['(, 1.9.0]', versions],
    ['[1.0.0, )', versions],
    ['(, 4.0.0)', versions],
    ['(, 3.0.0)', versions],
    ['[1.3.0, 1.9.0)', versions],
    ['(, 1.9.0)', []],
  ] as const)
    t.deepEqual(await fixes([range], held, versions), [], range);
  const mixed = ['2.0.0-a', '2.0.0-b', '2.0.0', '2.1.0'];
  t.deepEqual(await fixes(['(, 2.0.0-b)'], ['2.0.0-b', '2.0.0'], mixed), [
    { version: '2.0.0-b', advisory: 'A-0', affected: ['2.0.0-a'] },
  ]);
  t.deepEqual(
    await fixes(['(, 1.2.0)', '(, 1.9.0]', '(, 2.1.0)'], ['1.2.0', '2.1.0'], ['1.0.0', '1.2.0', '2.0.0', '2.1.0']),
    [
      { version: '1.2.0', advisory: 'A-0', affected: ['1.0.0'] },
      { version: '2.1.0', advisory: 'A-2', affected: ['2.0.0'] },
    ],
  );
  t.deepEqual(await fixesAmong([], new Set(versions), versions), []);
});

const owner = { upstream: { id: 'one' } as Upstream };

/** A version with these dependencies in groups. */
const version = (...groups: readonly (readonly [id: string, range: string])[][]) => ({
  json: JSON.stringify({
    metadata: {
      ...(groups.length > 0 && {
        dependencyGroups: groups.map((some) => ({ dependencies: some.map(([id, range]) => ({ id, range })) })),
      }),
    },
  }),
});

const many = (range: string) => Array.from({ length: 101 }, (_, at) => [`P${at}`, range] as const);

test('the siblings of a fix are the packages that it needs in another lowest version than the version before it', async (t) => {
  const versions: Record<string, ReturnType<typeof version>> = {
    '1.0.0': version(
      [
        ['Same', '[1.0, )'],
        ['Other', '[1.0.0, )'],
        ['Exact', '[1.0.0]'],
        ['Open', '(1.0.0, )'],
      ],
      [
        ['Float', '1.*'],
        ['Upper', '(, 2.0.0]'],
        ['Gone', '1.0.0'],
        ['Opened', '[1.0.0, )'],
      ],
    ),
    '2.0.0': version([
      ['SAME', '[1.0.0, 3.0.0)'],
      ['OTHER', '[1.1.0-Rc, )'],
      ['Exact', '[2.0]'],
      ['Open', '[2.0.0, )'],
      ['Float', '[3.0.0, )'],
      ['Upper', '[4.0.0, )'],
      ['New', '1.0.0'],
      ['Opened', '(1.0.0, )'],
    ]),
    '3.0.0': version(many('1.0.0')),
    '4.0.0': version(many('2.0.0')),
    '5.0.0': version(),
  };
  const asked: unknown[][] = [];
  const registrations = {
    unfiltered: async (...given: [object, string, string]) => {
      asked.push(given);
      return versions[given[2]];
    },
  } as unknown as UpstreamRegistrations;
  const siblings = (fix: string, predecessor: string) => siblingsOf(registrations, owner, 'lib', fix, predecessor);
  t.deepEqual(await siblings('2.0.0', '1.0.0'), [
    { name: 'other', version: '1.1.0-rc' },
    { name: 'exact', version: '2.0.0' },
    { name: 'open', version: '2.0.0' },
    { name: 'float', version: '3.0.0' },
    { name: 'upper', version: '4.0.0' },
  ]);
  t.deepEqual(asked, [
    [owner, 'lib', '2.0.0'],
    [owner, 'lib', '1.0.0'],
  ]);
  const hundred = await siblings('4.0.0', '3.0.0');
  t.deepEqual([hundred.length, hundred.at(-1)], [100, { name: 'p99', version: '2.0.0' }]);
  for (const [fix, predecessor] of [
    ['2.0.0', '5.0.0'],
    ['5.0.0', '1.0.0'],
    ['9.0.0', '1.0.0'],
    ['2.0.0', '9.0.0'],
  ] as const)
    t.deepEqual(await siblings(fix, predecessor), [], `${fix} ${predecessor}`);
});

const key = (kind: string, name: string, reference: string) => ({ upstream: 'one', kind, name, reference });

test('an entry of another installation is described as one that is fetched', (t) => {
  const config = { freshFor: 1, staleFor: 2, negativeFor: 3, timeout: 4, kind: 'nuget' };
  const upstream = { id: 'one', name: 'one.test', config } as unknown as Upstream;
  const limits = { nupkg: 99 } as never;
  const common = { negativeFor: 3, idle: 4, upstreamName: 'one.test', upstreamKind: 'nuget' };
  const described = (kind: string, name: string, reference: string) => {
    const entry = describePackageEntry(upstream, { kind, name, reference }, {}, limits);
    return entry && (JSON.parse(JSON.stringify(entry)) as object);
  };
  t.deepEqual(described('flat', 'lib', ''), {
    ...common,
    key: key('flat', 'lib', ''),
    lifetime: { freshFor: 1, staleFor: 2 },
    limit: documentLimit,
  });
  t.deepEqual(described('nupkg', 'lib', '1.0.0'), {
    ...common,
    key: key('nupkg', 'lib', '1.0.0'),
    lifetime: 'immutable',
    limit: 99,
    algorithms: ['sha512'],
  });
  t.deepEqual(described('icon', 'lib', '1.0.0'), {
    ...common,
    key: key('icon', 'lib', '1.0.0'),
    lifetime: 'immutable',
    limit: 2 ** 20,
    whole: true,
  });
});
