import { pause } from '../../runtime/event-loop.ts';
import { unlessUpstreamFails } from '../../upstream/upstream-error.ts';
import { compareVersions, parseVersion, type Version } from '../format/version.ts';
import type { Owner, PackageMirror } from './package-mirror.ts';
import type { StatedVersion } from './upstream-files.ts';
import { notAsked } from '../../mirror/stored-only.ts';
import type { UpstreamRegistrations } from './upstream-registration.ts';

/** By the key of a version: milliseconds since 1970 UTC, undefined if the upstream does not tell it. */
type PackageDates = ReadonlyMap<string, number | undefined>;

/**
 * When each version of a package was published, as its upstream says in its registration with SemVer 2 versions; for an unlisted
 * version, a later time. The versions are those of the flat index, also those that lists do not show.
 *
 * A page of the registration that has not changed since `settledBefore` is not fetched: all its versions get the time of that
 * change, which is late enough to know that they are older than `settledBefore`.
 *
 * A stored version that the upstream does not offer any more has the date that was known when its nupkg was fetched.
 *
 * Undefined if the upstream has no such package. Throws as `PackageMirror.document`: dates of an upstream that fails are not unknown.
 */
export async function datesOf(
  packages: PackageMirror,
  registrations: UpstreamRegistrations,
  owner: Owner,
  key: string,
  settledBefore = -Infinity,
): Promise<PackageDates | undefined> {
  const keys = await packages.allVersions(owner, key);
  const dates = await packages.withdrawn.dates(owner.upstream, key);
  if (!keys) return dates.size > 0 ? dates : undefined;
  for (const each of keys.value) dates.set(each, undefined);
  if (!(await registrations.areOffered(owner.upstream))) return dates;
  const index = await registrations.index(owner, key, true);
  let after = 0;
  for (const page of index?.value ?? []) {
    const { changedAt } = page;
    const start = positionFrom(keys.value, after, after, (version) => compareVersions(version, page.first) >= 0);
    const end = start + page.count;
    after = positionFrom(keys.value, start, end, (version) => compareVersions(version, page.last) > 0);
    const isSettled = !page.versions && changedAt !== undefined && changedAt <= settledBefore;
    // With more or fewer versions than the index says, the page may be older than the list, and one of them new.
    if (isSettled && after - start === page.count) {
      for (const each of keys.value.slice(start, after)) dates.set(each, changedAt);
      await pause();
      continue;
    }
    for (const [at, { version, publishedAt }] of (await registrations.allVersions(owner, key, true, page)).entries()) {
      const each = version.toLowerCase();
      if (dates.has(each)) dates.set(each, publishedAt);
      if (at % step === 0) await pause();
    }
  }
  return dates;
}

/** What stored documents of an upstream say about a version. The upstream is not asked. */
export async function statedOf(
  packages: PackageMirror,
  registrations: UpstreamRegistrations,
  { upstream }: Owner,
  key: string,
  version: string,
): Promise<StatedVersion> {
  const owner = { upstream, silence: notAsked };
  const sha512 = await registrations.storedHash(owner, key, version);
  const dateOf = async (settledBefore: number) =>
    (await unlessUpstreamFails(() => datesOf(packages, registrations, owner, key, settledBefore)))?.get(version);
  const publishedAt = await dateOf(-Infinity);
  return publishedAt === undefined ? { sha512, publishedBy: await dateOf(Infinity) } : { sha512, publishedAt };
}

/** Versions between two pauses. */
const step = 500;

/** The first position from `start` on whose version `isBeyond`, which probably is `guess`; the versions are in order. */
function positionFrom(
  keys: readonly string[],
  start: number,
  guess: number,
  isBeyond: (version: Version) => boolean,
): number {
  const isBeyondAt = (position: number) => isBeyond(parseVersion(keys[position]!)!);
  let end = keys.length;
  if (guess <= end && (guess === end || isBeyondAt(guess)) && (guess === start || !isBeyondAt(guess - 1))) return guess;
  while (start < end) {
    const middle = (start + end) >> 1;
    if (isBeyondAt(middle)) end = middle;
    else start = middle + 1;
  }
  return start;
}
