import { pause } from '../../runtime/event-loop.ts';

/** Items that are sorted, or merged, between two pauses. */
const step = 2048;

/** The items in the order of their keys, each key once, with pauses: a sort of 200,000 items would hold all other requests. */
export async function inOrder<T>(items: readonly T[], keyOf: (item: T) => string): Promise<T[]> {
  let runs: T[][] = [];
  for (let start = 0; start < items.length; start += step) {
    await pause();
    const run = items.slice(start, start + step);
    runs.push(isSorted(run, keyOf) ? run : run.sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1)));
  }
  while (runs.length > 1) {
    const merged: T[][] = [];
    for (let index = 0; index < runs.length; index += 2) {
      const [one, other] = [runs[index]!, runs[index + 1]];
      merged.push(other ? await merge(one, other, keyOf) : one);
    }
    runs = merged;
  }
  const sorted = runs[0] ?? [];
  const distinct: T[] = [];
  for (const [index, item] of sorted.entries()) {
    if (index % step === 0) await pause();
    if (index === 0 || keyOf(item) !== keyOf(sorted[index - 1]!)) distinct.push(item);
  }
  return distinct;
}

function isSorted<T>(items: readonly T[], keyOf: (item: T) => string): boolean {
  return items.every((item, index) => index === 0 || keyOf(items[index - 1]!) <= keyOf(item));
}

async function merge<T>(one: readonly T[], other: readonly T[], keyOf: (item: T) => string): Promise<T[]> {
  if (keyOf(one.at(-1)!) <= keyOf(other[0]!)) return [...one, ...other];
  const merged: T[] = [];
  for (let [i, j] = [0, 0]; i < one.length || j < other.length;) {
    if (merged.length % step === 0) await pause();
    const isOne = j === other.length || (i < one.length && keyOf(one[i]!) <= keyOf(other[j]!));
    merged.push(isOne ? one[i++]! : other[j++]!);
  }
  return merged;
}

/** The number of `names`, which are in byte order, up to `last`. */
export function positionAfter(names: readonly string[], last: string): number {
  let [low, high] = [0, last === '' ? 0 : names.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (names[middle]! <= last) low = middle + 1;
    else high = middle;
  }
  return low;
}
