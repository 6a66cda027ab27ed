import type { BadDetail, RangeEvent } from '../../known-bad/entry.ts';
import { parseRange, satisfies } from '../format/range.ts';
import { compareVersions, parseVersion, versionKey, type Version } from '../format/version.ts';

type IsAffected = (version: Version) => boolean;

/** Affected versions from `from` on, undefined for all below, to `to`, undefined for all above. */
interface Interval {
  from: Version | undefined;
  to: Version | undefined;
  toInclusive: boolean;
}

/** What was read of entries, which stay the same objects while their list is the same. */
const read = new WeakMap<BadDetail, IsAffected>();

/**
 * Whether an entry of a list says that a version is bad, by the order of NuGet (OSV schema, "Evaluation"). What cannot be read
 * widens the answer: a range is without the end that is no version, and a version that is none is bad.
 */
export function isAffected(entry: BadDetail, version: string): boolean {
  const parsed = parseVersion(version);
  if (!parsed) return true;
  let test = read.get(entry);
  if (!test) read.set(entry, (test = testOf(entry)));
  return test(parsed);
}

function testOf({ ranges, versions, range }: BadDetail): IsAffected {
  if (!ranges && !versions && range === undefined) return () => true;
  const listed = new Set(versions?.map(keyOf));
  const tests = ranges?.map(testOfEvents) ?? [];
  if (range !== undefined) tests.push(testOfRange(range));
  return (version) => listed.has(versionKey(version)) || tests.some((test) => test(version));
}

function keyOf(text: string): string {
  const version = parseVersion(text.trim());
  return version ? versionKey(version) : text;
}

function testOfRange(text: string): IsAffected {
  const range = parseRange(text);
  return range ? (version) => satisfies(range, version) : () => true;
}

function testOfEvents(events: readonly RangeEvent[]): IsAffected {
  const intervals = intervalsOf(events);
  const limits = events.flatMap(({ limit }) => (limit === undefined ? [] : [parseVersion(limit)]));
  const isBelow = (version: Version) =>
    limits.length === 0 || limits.some((limit) => !limit || compareVersions(version, limit) < 0);
  return (version) => isBelow(version) && intervals.some((each) => isWithin(each, version));
}

function isWithin({ from, to, toInclusive }: Interval, version: Version): boolean {
  if (from && compareVersions(version, from) < 0) return false;
  if (!to) return true;
  const order = compareVersions(version, to);
  return order < 0 || (order === 0 && toInclusive);
}

/** What the events at one version say; a version of undefined stands below all others. */
interface Point {
  version: Version | undefined;
  introduced: boolean;
  fixed: boolean;
  last: boolean;
}

/**
 * The intervals of events in any order. Where an interval begins at the version at which another one ends, the versions stay
 * affected; where it ends at its own begin, it has no version, or with `last_affected` this one.
 */
function intervalsOf(events: readonly RangeEvent[]): Interval[] {
  const intervals: Interval[] = [];
  let open: { from: Version | undefined } | undefined;
  for (const { version, introduced, fixed, last } of pointsOf(events)) {
    if (open && !introduced) {
      intervals.push({ from: open.from, to: version, toInclusive: !fixed });
      open = undefined;
    } else if (!open && introduced && !fixed) {
      if (last) intervals.push({ from: version, to: version, toInclusive: true });
      else open = { from: version };
    }
  }
  if (open) intervals.push({ from: open.from, to: undefined, toInclusive: false });
  return intervals;
}

/** The events in the order of their versions. One that ends a range at what is no version is left out. */
function pointsOf(events: readonly RangeEvent[]): Point[] {
  const found = events.flatMap(({ introduced, fixed, last_affected: last }) => [
    ...(introduced === undefined ? [] : [{ version: firstOf(introduced), kind: 'introduced' as const }]),
    ...(fixed === undefined ? [] : [{ version: parseVersion(fixed), kind: 'fixed' as const }]),
    ...(last === undefined ? [] : [{ version: parseVersion(last), kind: 'last' as const }]),
  ]);
  const usable = found.filter(({ version, kind }) => version !== undefined || kind === 'introduced');
  const points: Point[] = [];
  for (const { version, kind } of usable.toSorted((a, b) => comparePlaces(a.version, b.version))) {
    let point = points.at(-1);
    if (!point || comparePlaces(point.version, version) !== 0)
      points.push((point = { version, introduced: false, fixed: false, last: false }));
    point[kind] = true;
  }
  return points;
}

/** `0` stands below all versions, also below prereleases of `0.0.0`. */
function firstOf(introduced: string): Version | undefined {
  return introduced === '0' ? undefined : parseVersion(introduced);
}

function comparePlaces(a: Version | undefined, b: Version | undefined): number {
  if (!a || !b) return (a ? 1 : 0) - (b ? 1 : 0);
  return compareVersions(a, b);
}
