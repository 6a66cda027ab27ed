import { pause } from '../../runtime/event-loop.ts';
import { compareVersions, parseVersion, type Version } from './version.ts';

/** `items`, which are in the order of versions, with those of `further` that they lack. */
export async function withVersions<T>(
  items: readonly T[],
  further: readonly T[],
  keyOf: (item: T) => string,
): Promise<T[]> {
  const versionOf = (item: T) => parseVersion(keyOf(item))!;
  const sorted: [Version, T][] = [];
  for (const item of further) {
    await pause();
    sorted.push([versionOf(item), item]);
  }
  sorted.sort(([a], [b]) => compareVersions(a, b));
  const merged: T[] = [];
  let done = 0;
  const copyUntil = (end: number) => {
    for (; done < end; done += 1) merged.push(items[done]!);
  };
  for (const [version, item] of sorted) {
    await pause();
    let [start, end] = [done, items.length];
    while (start < end) {
      const middle = (start + end) >> 1;
      if (compareVersions(versionOf(items[middle]!), version) < 0) start = middle + 1;
      else end = middle;
    }
    copyUntil(start);
    if (start === items.length || compareVersions(versionOf(items[start]!), version) !== 0) merged.push(item);
  }
  copyUntil(items.length);
  return merged;
}
