import { z } from 'zod';
import { compareRanks, type ListTotal, type Rank, type Ranked } from '../../runtime/ranked.ts';
import {
  countEntries,
  maxCounted,
  originQuery,
  pageQuery,
  readPage,
  type PagedList,
  type PageQuery,
} from './paging.ts';
import { bytes, count } from './schemas.ts';

/** The query parameter that asks for what a list has in all. */
export const totalFlag = z
  .enum(['0', '1'], 'expected 0 or 1')
  .default('0')
  .meta({ description: 'With 1, the answer has `total`' });

/** The query parameter that asks for the numbers of each day. */
export const dailyFlag = z
  .enum(['0', '1'], 'expected 0 or 1')
  .default('0')
  .meta({ description: 'With 1, each item has the numbers of each of the last 30 days' });

/** The query of one name, which can ask for them, too. */
export const dailyQuery = z.object({ daily: dailyFlag });

/** The query parameters of a list in the order of time. */
export const timedQuery = pageQuery.extend({
  sort: z.literal('oldest', 'expected oldest, or no order').optional().meta({
    description: 'The oldest first; the latest first without it',
  }),
  total: totalFlag,
});

/** `total` in the answer of such a list, and of another one that is counted. */
export const countedTotal = z
  .strictObject({ count, size_bytes: bytes.optional().meta({ description: 'Bytes, in a list of what has a size' }) })
  .nullable()
  .optional()
  .meta({
    description: `With \`total=1\`: what all pages have; null if ${maxCounted} entries or more would be read for it, also those that the filter or the rights of the token hide`,
  });

type Total = z.input<typeof countedTotal>;

/** A page with its total, if that is asked for. */
interface CountedPage<Entry> {
  entries: readonly Entry[];
  next_cursor: string | null;
  total?: Total;
}

/** A list, and the bytes of an entry if it has some. */
type CountedList<Entry, Key extends readonly (string | number | null)[]> = PagedList<Entry, Key> & {
  bytesOf?: ((entry: Entry) => number) | undefined;
};

/** The total of a list, if that is asked for, with the sum of `bytesOf` if that is given. */
export async function countOf<Entry, Key extends readonly (string | number | null)[]>(
  query: { total: '0' | '1' },
  { bytesOf, ...list }: CountedList<Entry, Key>,
): Promise<{ total?: Total }> {
  if (query.total === '0') return {};
  const total = await countEntries(list, bytesOf);
  return { total: total && { count: total.count, ...(bytesOf && { size_bytes: total.bytes }) } };
}

/** A page of a list, and its total as `countOf` tells it. */
export async function countedPage<Entry, Key extends readonly (string | number | null)[]>(
  query: PageQuery & { total: '0' | '1' },
  list: CountedList<Entry, Key>,
): Promise<CountedPage<Entry>> {
  return { ...(await readPage(query, list)), ...(await countOf(query, list)) };
}

/**
 * As `countedPage`, of a list in the order of time. `read` gets whether the oldest come first. A page with a filter reads a bounded
 * number of entries, and can be empty although there are further pages.
 */
export async function timedPage<Entry, Key extends readonly (string | number | null)[]>(
  query: z.output<typeof timedQuery>,
  {
    read,
    ...list
  }: Omit<PagedList<Entry, Key>, 'read' | 'maxRead'> & {
    read: (limit: number, after: Key | undefined, isOldest: boolean) => Promise<readonly Entry[]>;
    bytesOf?: (entry: Entry) => number;
  },
): Promise<CountedPage<Entry>> {
  const isOldest = query.sort === 'oldest';
  const name = isOldest ? `${list.name}, the oldest first` : list.name;
  return countedPage(query, {
    ...list,
    name,
    maxRead: maxCounted,
    read: (limit: number, after: Key | undefined) => read(limit, after, isOldest),
  });
}

/** The query parameters of a list of hosted and mirrored names that can be sorted by the numbers `sorts`. */
export function sortedQuery<Sort extends string>(sorts: readonly [Sort, ...Sort[]]) {
  return originQuery.extend({
    sort: z
      .enum(sorts, `expected ${sorts.join(', ')}, or no order`)
      .optional()
      .meta({
        description:
          'By a number or a time, the largest or latest first; by name without it. Mirrored names are then sorted as they were counted a moment ago; while they are counted for the first time, the list has only hosted ones',
      }),
    q: filterText('Only names that contain this text, in any letter case'),
    total: totalFlag,
    daily: dailyFlag,
  });
}

/** A query parameter with a text that names contain. It is in lower case. */
export function filterText(description: string) {
  return z
    .string('expected one text')
    .max(100)
    .default('')
    .transform((text) => text.toLowerCase())
    .meta({ description });
}

/** The names of one origin. */
export interface SortedSource<Item> {
  ranked(limit: number, after: Rank | undefined): Promise<Ranked<Item>[]>;
  /** Undefined while they are counted for the first time. */
  total(): Promise<ListTotal | undefined>;
}

/** A page of the names of all `sources` in one order. `isVisible` filters what is read. */
export async function sortedPage<Item>(
  query: PageQuery & { sort?: string | undefined },
  name: string,
  sources: readonly Pick<SortedSource<Item>, 'ranked'>[],
  isVisible?: (item: Item) => boolean,
): Promise<{ entries: readonly Item[]; next_cursor: string | null }> {
  const { entries, next_cursor } = await readPage<Ranked<Item>, [number | null, string]>(query, {
    name: `${name} by ${query.sort ?? 'name'}`,
    key: z.tuple([z.number().nullable(), z.string()]),
    keyOf: ({ rank }) => [...rank],
    read: async (limit, after) => {
      const lists = await Promise.all(sources.map((each) => each.ranked(limit, after)));
      return lists
        .flat()
        .sort((one, other) => compareRanks(one.rank, other.rank))
        .slice(0, limit);
    },
    isVisible: isVisible && (({ item }) => isVisible(item)),
  });
  return { entries: entries.map(({ item }) => item), next_cursor };
}

/** `total` of an answer: of all `sources`; null while one is counted for the first time. */
export async function totalOf(
  query: { total: '0' | '1' },
  sources: readonly Pick<SortedSource<unknown>, 'total'>[],
): Promise<{ total?: { count: number; size_bytes: number } | null }> {
  if (query.total === '0') return {};
  const totals = await Promise.all(sources.map((each) => each.total()));
  if (totals.includes(undefined)) return { total: null };
  const sum = (of: (total: ListTotal) => number) => totals.reduce((all, each) => all + of(each!), 0);
  return { total: { count: sum(({ count }) => count), size_bytes: sum(({ bytes }) => bytes) } };
}
