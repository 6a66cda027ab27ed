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
    const rank = group.targetFramework === undefined ? 0 : rankOf(parseFramework(group.targetFramework), target);
    if (rank > bestRank) [best, bestRank] = [group, rank];
  }
  return best;
}

/** How near a group's framework is to the target: higher is nearer, -1 if the target cannot use it. */
function rankOf(group: Framework | undefined, target: Framework): number {
  if (!group || (group.platform !== undefined && group.platform !== target.platform)) return -1;
  if (group.family === target.family) {
    return group.version <= target.version ? 3e6 + group.version * 2 + (group.platform === undefined ? 0 : 1) : -1;
  }
  if (group.family === 'standard' && target.family !== 'standard') {
    const highest = standards[target.family].findLast(([from]) => from <= target.version)?.[1] ?? 0;
    return group.version <= highest ? 1e6 + group.version : -1;
  }
  // The SDK lets a .NET project use a .NET Framework group if no other group fits, with a warning.
  return group.family === 'framework' && target.family === 'core' ? 1 : -1;
}

/** `net8.0-windows`, `net472`, `netstandard2.0`, `.NETStandard2.0`, `.NETFramework4.6.1`, `.NETCoreApp,Version=v3.1`. */
function parseFramework(text: string): Framework | undefined {
  const match = /^(\.?[a-z]+?)(?:,version=v)?(\d+(?:\.\d+)*)(?:-([a-z]+)[\d.]*)?$/.exec(text.trim().toLowerCase());
  if (!match) return undefined;
  const [, name = '', digits = '', platform] = match;
  const parts = (digits.includes('.') ? digits.split('.') : Array.from(digits)).map(Number);
  const [major = 0, minor = 0, patch = 0] = parts;
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
