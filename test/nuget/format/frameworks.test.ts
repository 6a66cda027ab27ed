import test from 'ava';
import { lowestFrameworks, nearestGroups, searchTargets } from '../../../src/nuget/format/frameworks.ts';

/** The nearest group for a target. Groups are separated by bars; `any` is a group without a framework. */
function nearest(groups: string, ...targets: string[]): string {
  const list = groups.split('|').map((each) => (each === 'any' ? {} : { targetFramework: each }));
  const chosen = nearestGroups(
    list.map((each) => ({ ...each, dependencies: [] })),
    targets,
  );
  return chosen.map(({ targetFramework }) => targetFramework ?? 'any').join('|');
}

test('each target gets the nearest group that it can use', (t) => {
  const table: [string, string, string][] = [
    ['net8.0|net6.0|netstandard2.0', 'net7.0', 'net6.0'],
    ['net8.0|netstandard2.0', 'net10.0', 'net8.0'],
    ['.NETStandard1.3|.NETStandard2.0', 'net8.0', '.NETStandard2.0'],
    ['.NETCoreApp3.1|.NETStandard2.1', 'net5.0', '.NETCoreApp3.1'],
    ['.NETFramework4.6.1|.NETStandard2.0', 'net472', '.NETFramework4.6.1'],
    ['.NETFramework4.8|.NETStandard2.0', 'net472', '.NETStandard2.0'],
    ['netstandard2.1|any', 'net48', 'any'],
    ['netstandard1.4|netstandard1.2', 'net451', 'netstandard1.2'],
    ['netstandard2.0|net5.0', 'netstandard2.1', 'netstandard2.0'],
    ['net8.0-windows7.0|net8.0', 'net8.0', 'net8.0'],
    ['net8.0|net8.0-windows7.0', 'net8.0-windows10.0.19041', 'net8.0-windows7.0'],
    // Those of .NET Framework for other projects are what the SDK of .NET 10 restores.
    ['net40|net45|net35', 'net8.0', 'net45'],
    ['net35|net481', 'netcoreapp2.1', 'net35'],
    ['net481|net461|net472', 'net8.0', 'net461'],
    ['net481|net472|net48', 'net8.0', 'net472'],
    ['net482|net499', 'net8.0', ''],
    ['net40|net45', 'netstandard2.0', 'net45'],
    ['net40|net45', 'netstandard1.6', ''],
    ['net40|net45', 'netcoreapp1.1', ''],
    ['net48|any', 'netstandard2.1', 'any'],
    ['.NETCoreApp,Version=v3.1|any', 'netcoreapp3.1', '.NETCoreApp,Version=v3.1'],
    ['monoandroid10|any', 'net8.0', 'any'],
    ['netstandard1.1|netstandard1.2', 'net45', 'netstandard1.1'],
    ['netstandard1.2|netstandard1.3', 'net451', 'netstandard1.2'],
    ['netstandard1.3|netstandard1.4', 'net46', 'netstandard1.3'],
    ['netstandard2.0|netstandard2.1', 'net461', 'netstandard2.0'],
    ['netstandard1.0|any', 'net40', 'any'],
    ['netstandard1.6|netstandard2.0', 'netcoreapp1.1', 'netstandard1.6'],
    ['netstandard2.0|netstandard2.1', 'netcoreapp2.2', 'netstandard2.0'],
    ['netstandard2.0|netstandard2.1', 'netcoreapp3.0', 'netstandard2.1'],
    ['netstandard2.1|netcoreapp2.0|net48', 'netcoreapp3.1', 'netcoreapp2.0'],
    ['netstandard1.0|net48', 'net6.0', 'netstandard1.0'],
    ['net5.0|net48', 'net472', ''],
    ['net5.0|net48', 'netstandard2.1', 'net48'],
    ['any|net48', 'net8.0', 'any'],
    ['net462|net461|net47', 'net463', 'net462'],
    ['net4.6.2|net4.7', 'net48', 'net4.7'],
    ['net8.0|net8.0-windows7.0', 'net9.0-windows', 'net8.0-windows7.0'],
    ['net8.0-android|net7.0', 'net8.0-windows', 'net7.0'],
    ['netcoreapp3.1-windows|netcoreapp3.1', 'netcoreapp3.1', 'netcoreapp3.1'],
    [' NET8.0 |any', 'net8.0', ' NET8.0 '],
    ['net8.0.x|net8.0-1|net|8.0|any', 'net8.0', 'any'],
    ['x-net8.0|any', 'net8.0', 'any'],
    ['net8.0.99|any', 'net9.0', 'net8.0.99'],
    ['net8.0-windows|net8.0.1', 'net9.0-windows', 'net8.0.1'],
    ['net8.100|net8.0.100|net10000.0|any', 'net10.0', 'any'],
    ['net8.99|net8.0.99', 'net9999.0', 'net8.99'],
    ['net9.0', 'net8.0', ''],
    ['netstandard2.1', 'net48', ''],
    ['netstandard2.1', 'netcoreapp2.2', ''],
    ['net8.0-windows', 'net8.0', ''],
    ['monoandroid10', 'net8.0', ''],
    ['net48', 'netstandard1.6', ''],
    ['', 'net8.0', ''],
  ];
  for (const [groups, target, expected] of table) t.is(nearest(groups, target), expected, `${groups} for ${target}`);
});

test('several targets get one group each; without a known target all groups are returned', (t) => {
  t.is(nearest('net8.0|netstandard2.0|net45', 'net8.0', 'net48'), 'net8.0|net45');
  t.is(nearest('net8.0|netstandard2.0', 'net8.0', 'net9.0'), 'net8.0');
  t.is(nearest('net8.0|netstandard2.0'), 'net8.0|netstandard2.0');
  t.is(nearest('net8.0|netstandard2.0', 'uap10.0.1x'), 'net8.0|netstandard2.0');
  t.is(nearest('net8.0|netstandard2.0', 'net10000.0'), 'net8.0|netstandard2.0');
  t.is(nearest('net8.0|netstandard2.0', 'unheard'), 'net8.0|netstandard2.0');
});

const lowest = (groups: string) =>
  Object.fromEntries(
    lowestFrameworks(
      groups.split('|').map((each) => ({ ...(each !== 'any' && { targetFramework: each }), dependencies: [] })),
    ),
  );

test('of the groups of a package, the lowest version of each family counts', (t) => {
  t.deepEqual(lowest('net8.0|net6.0|netcoreapp3.1|net48|net472|netstandard2.0|netstandard1.3'), {
    core: 30_100,
    framework: 40_702,
    standard: 10_300,
  });
  t.deepEqual(lowest('net6.0-windows7.0|net8.0-windows|net7.0-android'), {
    'core-windows': 60_000,
    'core-android': 70_000,
  });
  t.deepEqual(lowest('unheard|net8.0-unheard|net8.0'), { other: 0, core: 80_000 });
  t.deepEqual(lowest('net8.0|any'), {}, 'any project can use it');
});

/** What a search with these frameworks asks for, and the highest versions of the families that they can use. */
function targets(names: string[], words: string[] = []) {
  const found = searchTargets(names, words);
  return found && [found.parameters.map((each) => each.join('=')).join('&'), Object.fromEntries(found.usable)];
}

test('the targets of a search have one spelling, and say what projects can use', (t) => {
  t.deepEqual(targets(['.NETCoreApp,Version=v8.0', 'net8.0']), [
    'supportedFramework=net8.0',
    { core: 80_000, standard: 20_100 },
  ]);
  t.deepEqual(targets([' NET472 ', 'netcoreapp2.1']), [
    'supportedFramework=net472&supportedFramework=netcoreapp2.1',
    { framework: 40_702, core: 20_100, standard: 20_000 },
  ]);
  t.deepEqual(targets(['net48', '.NETFramework,Version=v4.5']), [
    'supportedFramework=net48&supportedFramework=net45',
    { framework: 40_800, standard: 20_000 },
  ]);
  t.deepEqual(targets(['net8.0-windows10.0', 'netstandard1.3', 'net5.0']), [
    'supportedFramework=net8.0-windows&supportedFramework=netstandard1.3&supportedFramework=net5.0',
    { core: 80_000, 'core-windows': 80_000, standard: 20_100 },
  ]);
  t.deepEqual(targets(['net40']), ['supportedFramework=net40', { framework: 40_000, standard: 0 }]);
  const highest = 10_000 * 10_000;
  t.deepEqual(targets([], [' Net ', 'netframework', 'netstandard', 'netcoreapp']), [
    'frameworks=net&frameworks=netframework&frameworks=netstandard&frameworks=netcoreapp',
    { core: highest, framework: highest, standard: 20_100 },
  ]);
  t.deepEqual(targets([], ['netcoreapp']), ['frameworks=netcoreapp', { core: 30_100, standard: 20_100 }]);
  t.deepEqual(targets(['net8.0'], ['netstandard']), [
    'supportedFramework=net8.0&frameworks=netstandard',
    { core: 80_000, standard: 20_100 },
  ]);
  for (const platform of ['android', 'browser', 'ios', 'maccatalyst', 'macos', 'tizen', 'tvos', 'windows'])
    t.is(targets([`net8.0-${platform}`])?.[0], `supportedFramework=net8.0-${platform}`);
  for (const [names, words] of [
    [[], []],
    [['unheard'], []],
    [['net8.0-unheard'], []],
    [['net8.0'], ['unheard']],
    [Array.from({ length: 32 }, () => 'net8.0'), ['net']],
  ] as [string[], string[]][])
    t.is(targets(names, words), undefined, [...names, ...words].join());
  t.truthy(
    targets(
      Array.from({ length: 31 }, () => 'net8.0'),
      ['net'],
    ),
    '32 targets',
  );
});
