import type { DependencyGroup } from './nuspec.ts';

/** The parts of a target framework by which a dependency group is chosen. */
interface Framework {
  family: 'core' | 'standard' | 'framework';
  /** 4.6.1 is 40601. */
  version: number;
  /** `windows` of `net8.0-windows10.0`. */
  platform: string | undefined;
}

/** The highest .NET Standard that .NET Framework or .NET Core implements from a version on; in ascending order. */
const standards: Record<'core' | 'framework', [from: number, standard: number][]> = {
  framework: [
    [40500, 10100],
    [40501, 10200],
    [40600, 10300],
    [40601, 20000],
  ],
  core: [
    [10000, 10600],
    [20000, 20000],
    [30000, 20100],
  ],
};

/**
 * The groups that projects with these target frameworks use: the nearest group for each target. All groups if there is
 * no target, or if one is not a common framework.
 * https://learn.microsoft.com/nuget/create-packages/supporting-multiple-target-frameworks
 */
export function nearestGroups(groups: readonly DependencyGroup[], targets: readonly string[]): DependencyGroup[] {
  const parsed = targets.map(parseFramework);
  if (parsed.length === 0 || parsed.includes(undefined)) return [...groups];
  const chosen = parsed.map((target) => nearest(groups, target!));
  return [...new Set(chosen)].filter((group) => group !== undefined);
}

function nearest(groups: readonly DependencyGroup[], target: Framework): DependencyGroup | undefined {
  let best: DependencyGroup | undefined;
  let bestRank = -1;
  for (const group of groups) {
    const rank = group.targetFramework === undefined ? anyRank : rankOf(parseFramework(group.targetFramework), target);
    if (rank > bestRank) [best, bestRank] = [group, rank];
  }
  return best;
}

/** Of a group for any framework: below those that fit, and above those of .NET Framework for another project. */
const anyRank = 2e5;
/** 4.6.1 and 4.8.1, between which .NET Framework is what projects for .NET and .NET Standard 2.0 and later use if no group fits. */
const [firstFallback, lastFallback] = [40_601, 40_801];

/** How near a group's framework is to the target: higher is nearer, -1 if the target cannot use it. */
function rankOf(group: Framework | undefined, target: Framework): number {
  if (!group || (group.platform !== undefined && group.platform !== target.platform)) return -1;
  if (group.family === target.family) {
    return group.version <= target.version ? 3e6 + group.version * 2 + (group.platform === undefined ? 0 : 1) : -1;
  }
  if (group.family === 'standard' && target.family !== 'standard') {
    return group.version <= highestStandard(target.family, target.version) ? 1e6 + group.version : -1;
  }
  if (group.family !== 'framework' || target.version < 20_000 || group.version > lastFallback) return -1;
  // The SDK takes the nearest group for 4.6.1, else the next version, with a warning.
  return group.version <= firstFallback ? 1e5 + group.version : 1e5 - group.version;
}

/** The highest .NET Standard that this version implements; 0 if none. */
function highestStandard(family: 'core' | 'framework', version: number): number {
  return standards[family].findLast(([from]) => from <= version)?.[1] ?? 0;
}

/** `net8.0-windows`, `net472`, `netstandard2.0`, `.NETStandard2.0`, `.NETFramework4.6.1`, `.NETCoreApp,Version=v3.1`. */
function parseFramework(text: string): Framework | undefined {
  const match = /^(\.?[a-z]+?)(?:,version=v)?(\d+(?:\.\d+)*)(?:-([a-z]+)[\d.]*)?$/.exec(text.trim().toLowerCase());
  if (!match) return undefined;
  const [name, digits, platform] = [match[1]!, match[2]!, match[3]];
  const parts = (digits.includes('.') ? digits.split('.') : Array.from(digits)).map(Number);
  const [major = 0, minor = 0, patch = 0] = parts;
  if (major > 9999 || minor > 99 || patch > 99) return undefined;
  const version = major * 10_000 + minor * 100 + patch;
  switch (name) {
    case 'netstandard':
    case '.netstandard':
      return { family: 'standard', version, platform: undefined };
    case 'netcoreapp':
    case '.netcoreapp':
      return { family: 'core', version, platform };
    case '.netframework':
      return { family: 'framework', version, platform: undefined };
    case 'net':
      // net5.0 and later contain a dot; net48 and net472 do not.
      return digits.includes('.') && major >= 5
        ? { family: 'core', version, platform }
        : { family: 'framework', version, platform: undefined };
    default:
      return undefined;
  }
}

/** Versions of target frameworks by family: `core`, `standard`, `framework`, and `core-windows` and others by platform. */
export type FrameworkVersions = ReadonlyMap<string, number>;

/** The platforms of .NET; an unknown one makes a framework unknown. */
const platforms = new Set(['android', 'browser', 'ios', 'maccatalyst', 'macos', 'tizen', 'tvos', 'windows']);
/** The family of all frameworks that are not known. */
const unknownFamily = 'other';
/** Higher than the version of any framework that can be read. */
const highestVersion = 10_000 * 10_000;

/**
 * The lowest version of each family among the frameworks of these groups: a project that can use none of them can use no
 * group. Empty if all projects can use a group, or if there is none.
 */
export function lowestFrameworks(groups: readonly DependencyGroup[]): FrameworkVersions {
  const lowest = new Map<string, number>();
  for (const { targetFramework } of groups) {
    if (targetFramework === undefined) return new Map();
    const framework = parseFramework(targetFramework);
    const family = framework && familyOf(framework);
    const version = family === undefined ? 0 : framework!.version;
    const known = lowest.get(family ?? unknownFamily) ?? highestVersion;
    lowest.set(family ?? unknownFamily, Math.min(known, version));
  }
  return lowest;
}

/** The target frameworks of a search. */
export interface SearchTargets {
  /** The highest version of each family that a project with one of the targets can use. */
  usable: FrameworkVersions;
  /** The targets as query parameters, in one spelling. They contain nothing else that the client typed. */
  parameters: readonly (readonly [name: string, value: string])[];
}

/** Searches name a generation by one word: https://learn.microsoft.com/nuget/consume-packages/finding-and-choosing-packages */
const generations: Readonly<Record<string, Framework>> = {
  net: { family: 'core', version: highestVersion, platform: undefined },
  netcoreapp: { family: 'core', version: 30_100, platform: undefined },
  netstandard: { family: 'standard', version: 20_100, platform: undefined },
  netframework: { family: 'framework', version: highestVersion, platform: undefined },
};
/** More targets are no filter. */
const maxTargets = 32;

/**
 * The targets of a search for packages that projects with one of these frameworks (`net8.0`,
 * `.NETFramework,Version=v4.7.2`) or generations (`net`, `netstandard`) can use. Undefined if there is none, or one is
 * unknown, because nothing is known about the packages for it.
 */
export function searchTargets(names: readonly string[], words: readonly string[]): SearchTargets | undefined {
  if (names.length + words.length === 0 || names.length + words.length > maxTargets) return undefined;
  const usable = new Map<string, number>();
  const parameters = new Map<string, readonly [string, string]>();
  for (const [from, parameter] of [
    ...names.map((name) => [parseFramework(name), 'supportedFramework'] as const),
    ...words.map((word) => [generations[word.trim().toLowerCase()], 'frameworks'] as const),
  ]) {
    const family = from && familyOf(from);
    if (!from || family === undefined) return undefined;
    const add = (name: string, version: number) => usable.set(name, Math.max(usable.get(name) ?? 0, version));
    add(from.family, from.version);
    add(family, from.version);
    if (from.family !== 'standard') add('standard', highestStandard(from.family, from.version));
    const value = parameter === 'frameworks' ? generationOf(from) : shortName(from);
    parameters.set(`${parameter} ${value}`, [parameter, value]);
  }
  return { usable, parameters: [...parameters.values()] };
}

/** Undefined for an unknown platform. */
function familyOf({ family, platform }: Framework): string | undefined {
  if (platform === undefined) return family;
  return platforms.has(platform) ? `${family}-${platform}` : undefined;
}

function generationOf(framework: Framework): string {
  return Object.keys(generations).find((name) => generations[name] === framework)!;
}

function shortName({ family, version, platform }: Framework): string {
  const [major, minor, patch] = [Math.floor(version / 10_000), Math.floor(version / 100) % 100, version % 100];
  if (family === 'framework') return `net${major}${minor}${patch === 0 ? '' : patch}`;
  const name = family === 'standard' ? 'netstandard' : major >= 5 ? 'net' : 'netcoreapp';
  return `${name}${major}.${minor}${platform === undefined ? '' : `-${platform}`}`;
}
