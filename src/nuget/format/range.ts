import { withPauses } from '../../runtime/event-loop.ts';
import { compareVersions, isPrerelease, isSemVer2, normalize, parseVersion, type Version } from './version.ts';

/**
 * A range of versions, as in a dependency.
 * https://learn.microsoft.com/nuget/concepts/package-versioning#version-ranges
 */
export interface VersionRange {
  /** The lowest version; undefined if there is no lower bound. */
  readonly min?: Version;
  readonly minInclusive: boolean;
  /** The highest version; undefined if there is no upper bound. */
  readonly max?: Version;
  readonly maxInclusive: boolean;
  /** For a floating lower bound: the versions to prefer, the highest first. */
  readonly float?: FloatingBound;
}

/** A lower bound with a star: `1.*`, `1.0.0-*`, `1.2.*-beta*`. */
interface FloatingBound {
  /** The bound as NuGet writes it. */
  readonly text: string;
  /** Number of leading numeric parts that are fixed; 4 if only the prerelease floats. */
  readonly fixedParts: number;
  /** Prefix of the prerelease, in lower case; undefined if the bound floats over releases only. */
  readonly prefix?: string;
}

const floatingNumber = /^(?:(\d+(?:\.\d+){0,2})\.)?\*(?:-([0-9A-Za-z.-]*)\*)?$/;
const floatingPrerelease = /^(\d+(?:\.\d+){0,3})-([0-9A-Za-z.-]*)\*$/;

/** Parses a range; undefined if `text` is not a range. */
export function parseRange(text: string): VersionRange | undefined {
  const trimmed = text.trim();
  const interval = /^([[(])(.*)([\])])$/.exec(trimmed);
  if (!interval) {
    const lower = parseLowerBound(trimmed);
    return lower && { ...lower, minInclusive: true, maxInclusive: false };
  }
  const minInclusive = interval[1] === '[';
  const maxInclusive = interval[3] === ']';
  const parts = interval[2]!.split(',').map((part) => part.trim());
  if (parts.length > 2) return undefined;
  const [first, last = first] = parts as [string, string?];
  if (parts.length === 1 && !(minInclusive && first !== '')) return undefined;

  const lower: LowerBound | undefined = first === '' ? {} : parseLowerBound(first);
  const max = parseVersion(last);
  if (!lower || (last !== '' && !max)) return undefined;
  if (lower.min && max) {
    const order = compareVersions(lower.min, max);
    if (order > 0 || (order === 0 && minInclusive !== maxInclusive)) return undefined;
  }
  return {
    ...lower,
    minInclusive: minInclusive && first !== '',
    ...(max && { max }),
    maxInclusive: maxInclusive && last !== '',
  };
}

type LowerBound = Pick<VersionRange, 'min' | 'float'>;

function parseLowerBound(text: string): LowerBound | undefined {
  if (!text.includes('*')) {
    const min = parseVersion(text);
    return min && { min };
  }
  const numeric = floatingNumber.exec(text);
  const [, numbers = '', prefix] = numeric ?? floatingPrerelease.exec(text) ?? [];
  if (!numeric && prefix === undefined) return undefined;
  // The lowest version that the bound matches: 1.0.0 for 1.*, 1.0.0-0 for 1.*-*, 1.0.0-beta.0 for 1.0.0-beta.*
  const lowestLabel = prefix === undefined ? '' : `-${prefix}${prefix === '' || prefix.endsWith('.') ? '0' : ''}`;
  const min = parseVersion((numbers || '0') + lowestLabel);
  if (!min) return undefined;
  const fixed = numbers === '' ? [] : numbers.split('.').map(Number);
  const star = prefix === undefined ? '' : `-${prefix}*`;
  const float = {
    text: (numeric ? [...fixed, '*'].join('.') : normalize({ ...min, labels: [] })) + star,
    fixedParts: numeric ? fixed.length : 4,
    ...(prefix !== undefined && { prefix: prefix.toLowerCase() }),
  };
  return { min, float };
}

/** Whether `version` is within the bounds. As in NuGet, a floating bound counts as its lowest version. */
export function satisfies(range: VersionRange, version: Version): boolean {
  if (range.min) {
    const order = compareVersions(version, range.min);
    if (order < 0 || (order === 0 && !range.minInclusive)) return false;
  }
  if (range.max) {
    const order = compareVersions(version, range.max);
    if (order > 0 || (order === 0 && !range.maxInclusive)) return false;
  }
  return true;
}

/**
 * Whether a version is in the range that `text` writes; undefined if it is no range with brackets. A bare version would mean all
 * versions from there on, which people do not expect in a rule.
 */
export function versionTest(text: string): ((version: string) => boolean) | undefined {
  const range = /^\s*[[(]/.test(text) ? parseRange(text) : undefined;
  if (!range || range.float) return undefined;
  return (version) => {
    const parsed = parseVersion(version);
    return parsed !== undefined && satisfies(range, parsed);
  };
}

/** Whether only a client that supports SemVer 2.0.0 can read the range: one of its bounds is a SemVer 2.0.0 version. */
export function isSemVer2Range(range: VersionRange): boolean {
  return [range.min, range.max].some((bound) => bound !== undefined && isSemVer2(bound));
}

/** The range as NuGet writes it in registrations: `[1.0.0, )`, `(, 2.0.0]`, or `[1.0.0, 1.0.0]` for one version. */
export function formatRange(range: VersionRange): string {
  const min = range.float?.text ?? (range.min ? normalize(range.min) : '');
  const max = range.max ? normalize(range.max) : '';
  return `${range.minInclusive ? '[' : '('}${min}, ${max}${range.maxInclusive ? ']' : ')'}`;
}

/**
 * The version that a client installs for the range, of valid ones in any order: the lowest applicable version, or for a
 * floating bound the highest version that it matches. Prereleases are applicable only if a bound is a prerelease.
 * https://learn.microsoft.com/nuget/concepts/dependency-resolution
 */
export async function lowestApplicable(range: VersionRange, versions: Iterable<string>): Promise<Version | undefined> {
  const prerelease = [range.min, range.max].some((bound) => bound !== undefined && isPrerelease(bound));
  let lowest: Version | undefined;
  let floating: Version | undefined;
  for await (const text of withPauses(versions)) {
    const version = parseVersion(text)!;
    if (!satisfies(range, version) || (!prerelease && isPrerelease(version))) continue;
    if (!lowest || compareVersions(version, lowest) < 0) lowest = version;
    if (floatsTo(range, version) && (!floating || compareVersions(version, floating) >= 0)) floating = version;
  }
  return floating ?? lowest;
}

function floatsTo({ min, float }: VersionRange, version: Version): boolean {
  if (!min || !float) return false;
  const [bound, actual] = [min, version].map((v) => [v.major, v.minor, v.patch, v.revision]);
  if (bound!.slice(0, float.fixedParts).some((part, i) => part !== actual![i])) return false;
  if (!isPrerelease(version)) return true;
  return float.prefix !== undefined && version.labels.join('.').toLowerCase().startsWith(float.prefix);
}
