import test from 'ava';
import { z } from 'zod';
import { countEntries, cursorOf, readCursor, readPage, type PagedList } from '../../src/api/framework/paging.ts';
import { countedPage, countOf, sortedPage, timedPage, totalOf } from '../../src/api/framework/sorted.ts';
import { compareRanks, type Rank, type Ranked } from '../../src/runtime/ranked.ts';

// Pages of lists in memory. Other files have the lists of operations.

/** The numbers below `size`, of which `asked` says what was read. */
function numbers(size: number, asked: [limit: number, after: number | undefined][] = []): PagedList<number, [number]> {
  return {
    name: 'numbers',
    key: z.tuple([z.number()]),
    keyOf: (each) => [each],
    read: async (limit, after) => {
      asked.push([limit, after?.[0]]);
      const start = after === undefined ? 0 : after[0] + 1;
      return Array.from({ length: Math.max(0, Math.min(limit, size - start)) }, (_, index) => start + index);
    },
  };
}

const numbersTo = (end: number) => Array.from({ length: end }, (_, index) => index);

test('a page has a cursor only if there is more, and goes on where the one before ended', async (t) => {
  const asked: [number, number | undefined][] = [];
  const list = numbers(5, asked);
  const first = await readPage({ limit: 2, cursor: undefined }, list);
  t.deepEqual(first, { entries: [0, 1], next_cursor: cursorOf('numbers', [1]) });
  const second = await readPage({ limit: 2, cursor: first.next_cursor! }, list);
  t.deepEqual(second, { entries: [2, 3], next_cursor: cursorOf('numbers', [3]) });
  t.deepEqual(await readPage({ limit: 2, cursor: second.next_cursor! }, list), { entries: [4], next_cursor: null });
  t.deepEqual(await readPage({ limit: 5, cursor: undefined }, list), { entries: numbersTo(5), next_cursor: null });
  t.deepEqual(asked, [
    [3, undefined],
    [3, 1],
    [3, 3],
    [6, undefined],
  ]);
});

test('a cursor is valid for its list alone, and only as it was given', (t) => {
  const list = { name: 'numbers', key: z.tuple([z.number()]) };
  const cursor = cursorOf('numbers', [7]);
  t.deepEqual(readCursor(cursor, list), [7]);
  t.is(readCursor(undefined, list), undefined);
  const [text] = [Buffer.from(cursor, 'base64url').toString()];
  for (const other of [
    cursorOf('others', [7]),
    cursorOf('numbers', ['7']),
    cursorOf('numbers', []),
    `${cursor}=`,
    '',
    'x',
    Buffer.from(`${text} `).toString('base64'),
  ])
    t.like(
      t.throws(() => readCursor(other, list), { name: 'Invalid', message: /^The cursor is malformed\./ }, other),
      { detail: { parameter: 'cursor' } },
    );
});

test('a filtered page reads until it is full, or as much as it may', async (t) => {
  const asked: [number, number | undefined][] = [];
  const list = { ...numbers(1600, asked), isVisible: (each: number) => each % 400 === 399 };
  const page = await readPage({ limit: 2, cursor: undefined }, list);
  t.deepEqual(page, { entries: [399, 799], next_cursor: cursorOf('numbers', [799]) });
  t.deepEqual(asked, [
    [500, undefined],
    [500, 499],
    [500, 999],
  ]);
  t.deepEqual(await readPage({ limit: 2, cursor: page.next_cursor! }, list), {
    entries: [1199, 1599],
    next_cursor: null,
  });
  const bounded = await readPage({ limit: 5, cursor: undefined }, { ...list, maxRead: 1000 });
  t.deepEqual(bounded, { entries: [399, 799], next_cursor: cursorOf('numbers', [999]) });
  const rest = await readPage({ limit: 5, cursor: bounded.next_cursor! }, { ...list, maxRead: 1000 });
  t.deepEqual(rest, { entries: [1199, 1599], next_cursor: null });
  const none = { ...numbers(500), isVisible: () => false, maxRead: 500 };
  t.deepEqual(await readPage({ limit: 1, cursor: undefined }, none), {
    entries: [],
    next_cursor: cursorOf('numbers', [499]),
  });
});

test('a list is counted only if it has fewer than 1,000 entries', async (t) => {
  t.deepEqual(await countEntries(numbers(999)), { count: 999, bytes: 0 });
  t.is(await countEntries(numbers(1000)), null);
  const even = { ...numbers(10), isVisible: (each: number) => each % 2 === 0 };
  t.deepEqual(await countEntries(even, (each) => each), { count: 5, bytes: 20 });
  t.deepEqual(await countOf({ total: '0' }, even), {});
  t.deepEqual(await countOf({ total: '1' }, even), { total: { count: 5 } });
  t.deepEqual(await countOf({ total: '1' }, { ...even, bytesOf: (each) => each }), {
    total: { count: 5, size_bytes: 20 },
  });
  t.deepEqual(await countOf({ total: '1' }, numbers(1000)), { total: null });
  const query = { limit: 1, cursor: undefined };
  t.deepEqual(await countedPage({ ...query, total: '1' }, numbers(2)), {
    entries: [0],
    next_cursor: cursorOf('numbers', [0]),
    total: { count: 2 },
  });
  t.false('total' in (await countedPage({ ...query, total: '0' }, numbers(2))));
});

test('a list in the order of time begins with the latest, and each order has cursors of its own', async (t) => {
  const asked: boolean[] = [];
  const { read, ...list } = numbers(2000);
  const timed = {
    ...list,
    read: (limit: number, after: [number] | undefined, isOldest: boolean) => {
      asked.push(isOldest);
      return read(limit, after);
    },
  };
  const query = { limit: 1, cursor: undefined, total: '0' } as const;
  t.is((await timedPage({ ...query, sort: undefined }, timed)).next_cursor, cursorOf('numbers', [0]));
  const oldest = cursorOf('numbers, the oldest first', [0]);
  t.is((await timedPage({ ...query, sort: 'oldest' }, timed)).next_cursor, oldest);
  t.deepEqual(asked, [false, true]);
  const filtered = { ...timed, isVisible: () => false };
  const page = await timedPage({ ...query, sort: undefined }, filtered);
  t.deepEqual(page, { entries: [], next_cursor: cursorOf('numbers', [999]) }, 'it reads 1,000');
});

/** Names with their numbers, some of them unknown, as a source of a sorted list. */
const sourceOf = (rows: Record<string, number | null>, total?: { count: number; bytes: number }) => ({
  ranked: (limit: number, after: Rank | undefined): Promise<Ranked<string>[]> =>
    Promise.resolve(
      Object.entries(rows)
        .map(([name, value]) => ({ rank: [value, name] as const, item: name.toUpperCase() }))
        .filter(({ rank }) => after === undefined || compareRanks(after, rank) < 0)
        .toSorted((one, other) => compareRanks(one.rank, other.rank))
        .slice(0, limit),
    ),
  total: () => Promise.resolve(total),
});

test('the names of several sources are one list, by a number and then by name', async (t) => {
  const sources = [sourceOf({ a: 5, c: 7, e: null }), sourceOf({ b: 5, d: 9, f: 0 })];
  const found: string[] = [];
  let cursor: string | undefined;
  do {
    const page = await sortedPage({ limit: 2, cursor, sort: 'size' }, 'names', sources);
    found.push(...page.entries);
    cursor = page.next_cursor ?? undefined;
  } while (cursor !== undefined);
  t.deepEqual(found, ['D', 'C', 'A', 'B', 'F', 'E']);
  const query = { limit: 2, cursor: undefined };
  const visible = await sortedPage({ ...query, sort: 'size' }, 'names', sources, (each) => each !== 'C');
  t.deepEqual(visible, { entries: ['D', 'A'], next_cursor: cursorOf('names by size', [5, 'a']) });
  t.is((await sortedPage(query, 'names', sources)).next_cursor, cursorOf('names by name', [7, 'c']));

  // More names than are read at a time: all of one source come before all of the other.
  const many = (prefix: string, value: number) =>
    sourceOf(Object.fromEntries(numbersTo(600).map((each) => [`${prefix}${each + 1000}`, value])));
  const found600 = await sortedPage({ ...query, sort: 'size' }, 'names', [many('a', 2), many('b', 1)], (each) =>
    each.endsWith('1599'),
  );
  t.deepEqual(found600, { entries: ['A1599', 'B1599'], next_cursor: null });
});

test('what several sources have in all is not known while one is counted', async (t) => {
  const [one, other] = [sourceOf({}, { count: 1, bytes: 10 }), sourceOf({}, { count: 2, bytes: 30 })];
  t.deepEqual(await totalOf({ total: '1' }, [one, other]), { total: { count: 3, size_bytes: 40 } });
  t.deepEqual(await totalOf({ total: '1' }, [one, sourceOf({})]), { total: null });
  t.deepEqual(await totalOf({ total: '1' }, []), { total: { count: 0, size_bytes: 0 } });
  t.deepEqual(await totalOf({ total: '0' }, [one, other]), {});
});
