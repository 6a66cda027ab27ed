import test from 'ava';
import { nearestGroups } from '../../../src/nuget/format/frameworks.ts';

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
    ['net40|net45', 'net8.0', 'net40'],
    ['.NETCoreApp,Version=v3.1|any', 'netcoreapp3.1', '.NETCoreApp,Version=v3.1'],
    ['monoandroid10|any', 'net8.0', 'any'],
    ['net9.0', 'net8.0', ''],
    ['', 'net8.0', ''],
  ];
  for (const [groups, target, expected] of table) t.is(nearest(groups, target), expected, `${groups} for ${target}`);
});

test('several targets get one group each; without a known target all groups are returned', (t) => {
  t.is(nearest('net8.0|netstandard2.0|net45', 'net8.0', 'net48'), 'net8.0|net45');
  t.is(nearest('net8.0|netstandard2.0', 'net8.0', 'net9.0'), 'net8.0');
  t.is(nearest('net8.0|netstandard2.0'), 'net8.0|netstandard2.0');
  t.is(nearest('net8.0|netstandard2.0', 'uap10.0.1x'), 'net8.0|netstandard2.0');
  t.is(nearest('net8.0|netstandard2.0', 'unheard'), 'net8.0|netstandard2.0');
});
