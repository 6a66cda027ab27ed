import { pause } from '../../runtime/event-loop.ts';
import { sortedInTurns } from '../../runtime/sorted.ts';
import { compareVersions, parseVersion, type Version } from './version.ts';

/** `items`, which are in the order of versions, with those of `further` that they lack. */
export async function withVersions<T>(
  items: readonly T[],
  further: readonly T[],
  keyOf: (item: T) => string,
): Promise<T[]> {
  const versionOf = (item: T) => parseVersion(keyOf(item))!;
  const keyed: [Version, T][] = [];
  for (const item of further) {
    await pause();
    keyed.push([versionOf(item), item]);
  }
  const merged: T[] = [];
  let done = 0;
  const copyUntil = async (end: number) => {
    for (; done < end; done += 1) {
      if (done % step === 0) await pause();
      merged.push(items[done]!);
    }
  };
  for (const [version, item] of await sortedInTurns(keyed, ([a], [b]) => compareVersions(a, b))) {
    await pause();
    const place = placeOf(version, done, items, versionOf);
    await copyUntil(place);
    if (place === items.length || compareVersions(versionOf(items[place]!), version) !== 0) merged.push(item);
  }
  await copyUntil(items.length);
  return merged;
}

/** Items that are copied in one step. */
const step = 1000;

/** The index of the first of `items` from `start` on that is not below `version`. Parses few versions, most near `start`. */
function placeOf<T>(version: Version, start: number, items: readonly T[], versionOf: (item: T) => Version): number {
  const isBelow = (at: number) => compareVersions(versionOf(items[at]!), version) < 0;
  let end = start;
  for (let ahead = 1; end < items.length && isBelow(end); ahead *= 2) {
    start = end + 1;
    end += ahead;
  }
  end = Math.min(end, items.length);
  while (start < end) {
    const middle = (start + end) >> 1;
    if (isBelow(middle)) start = middle + 1;
    else end = middle;
  }
  return start;
}
