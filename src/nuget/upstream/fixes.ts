import type { Fix, KnownAdvisory } from '../../mirror/policy/admission.ts';
import { withPauses } from '../../runtime/event-loop.ts';
import { parseRange } from '../format/range.ts';
import { compareVersions, isPrerelease, parseVersion, versionKey, type Version } from '../format/version.ts';
import { packageKey } from '../hosted/packages.ts';
import type { Owner } from './package-mirror.ts';
import { registeredOf, type ListedVersion } from './registration-pages.ts';
import type { UpstreamRegistrations } from './upstream-registration.ts';

/** Packages of a fix that are looked at. */
const maxSiblings = 100;

interface Numbered {
  key: string;
  version: Version;
}

/**
 * Those of the versions in `held` that fix a known vulnerability of lower ones of `versions`: each the lowest one at or above the
 * exclusive end of the affected range, within the same major version; for affected versions that are stable, the lowest stable one.
 */
export async function fixesAmong(
  advisories: readonly KnownAdvisory[],
  held: ReadonlySet<string>,
  versions: Iterable<string>,
): Promise<Fix[]> {
  const ended = advisories.flatMap(({ id, affects, fixedAt }) => {
    const end = fixedAt === undefined ? undefined : parseVersion(fixedAt);
    return end ? [{ id, affects, end }] : [];
  });
  if (ended.length === 0) return [];
  const byMajor = new Map<number, Numbered[]>(ended.map(({ end }) => [end.major, []]));
  for await (const key of withPauses(versions)) {
    const version = parseVersion(key);
    if (version) byMajor.get(version.major)?.push({ key, version });
  }
  for await (const some of withPauses(byMajor.values())) some.sort((a, b) => compareVersions(a.version, b.version));
  const fixes: Fix[] = [];
  for await (const { id, affects, end } of withPauses(ended)) {
    const some = byMajor.get(end.major)!;
    const from = firstFrom(some, end);
    for (const isOfPrereleases of [false, true]) {
      const fix = lowest(some, from, isOfPrereleases);
      if (!fix || !held.has(fix.key)) continue;
      const affected: string[] = [];
      for await (const { key, version } of withPauses(some.slice(0, from)))
        if (isPrerelease(version) === isOfPrereleases && affects(key)) affected.push(key);
      if (affected.length > 0) fixes.push({ version: fix.key, advisory: id, affected });
    }
  }
  return fixes;
}

/**
 * The packages that `fix` of a package depends on, and on which its version `predecessor` depended in another lowest version. Their
 * versions are the lowest ones that the fix can use. Throws as `UpstreamRegistrations.versions`.
 */
export async function siblingsOf(
  registrations: UpstreamRegistrations,
  owner: Owner,
  key: string,
  fix: string,
  predecessor: string,
): Promise<{ name: string; version: string }[]> {
  const [needed, before] = [await needsOf(fix), await needsOf(predecessor)];
  return [...needed].flatMap(([name, version]) =>
    version !== undefined && before.has(name) && before.get(name) !== version ? [{ name, version }] : [],
  );

  /** The lowest version of each package that a version needs. */
  async function needsOf(version: string): Promise<Map<string, string | undefined>> {
    const found = await registrations.unfiltered(owner, key, version);
    return found ? needsIn(found) : new Map();
  }
}

function needsIn(version: ListedVersion): Map<string, string | undefined> {
  const groups = registeredOf(version).metadata.dependencyGroups ?? [];
  const all = groups.flatMap(({ dependencies }) => dependencies).slice(0, maxSiblings);
  return new Map(
    all.map(({ id, range }) => {
      const { min, minInclusive, float } = parseRange(range) ?? {};
      return [packageKey(id), min && minInclusive && !float ? versionKey(min) : undefined];
    }),
  );
}

/** The lowest version from a position on, of stable ones unless prereleases count. */
function lowest(some: readonly Numbered[], from: number, withPrereleases: boolean): Numbered | undefined {
  for (let at = from; at < some.length; at += 1)
    if (withPrereleases || !isPrerelease(some[at]!.version)) return some[at];
  return undefined;
}

function firstFrom(some: readonly Numbered[], end: Version): number {
  let [low, high] = [0, some.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compareVersions(some[middle]!.version, end) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}
