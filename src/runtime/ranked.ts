import { pause } from './event-loop.ts';

/** The place of a row in a list that is sorted by a number, the largest first, then by name. Rows without the number come last. */
export type Rank = readonly [value: number | null, name: string];

/** A row of such a list. */
export interface Ranked<Item> {
  rank: Rank;
  item: Item;
}

/** How many names a list has on all pages, and their bytes. */
export interface ListTotal {
  count: number;
  bytes: number;
}

/** Negative if the row at `a` comes first. */
export function compareRanks(a: Rank, b: Rank): number {
  const [one, other] = [a[0] ?? -1, b[0] ?? -1];
  if (one !== other) return other - one;
  return a[1] === b[1] ? 0 : a[1] < b[1] ? -1 : 1;
}

interface Selection<Item> {
  rankOf: (item: Item) => Rank;
  isShown: (item: Item) => boolean;
  after: Rank | undefined;
  limit: number;
}

/** Items that are compared without a pause. */
const atATime = 2000;

/** The first `limit` of `items` that are shown, after `after`: as `rankedRows`, of items in memory and in any order. */
export async function firstRanked<Item>(
  items: readonly Item[],
  { rankOf, isShown, after, limit }: Selection<Item>,
): Promise<Ranked<Item>[]> {
  const first: Ranked<Item>[] = [];
  for (let start = 0; start < items.length; start += atATime) {
    for (const item of items.slice(start, start + atATime)) {
      const rank = rankOf(item);
      if (after && compareRanks(rank, after) <= 0) continue;
      if (first.length === limit && compareRanks(rank, first.at(-1)!.rank) >= 0) continue;
      if (!isShown(item)) continue;
      const place = first.findIndex((each) => compareRanks(rank, each.rank) < 0);
      first.splice(place < 0 ? first.length : place, 0, { rank, item });
      if (first.length > limit) first.pop();
    }
    await pause();
  }
  return first;
}
