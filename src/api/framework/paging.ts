import { z } from 'zod';
import { DomainError } from '../../runtime/errors.ts';

const maxLimit = 200;
/** Entries to read at a time when some of them are hidden. */
const batchSize = 500;
/** Entries that are read to count them, and to fill a page of a filtered list in the order of time. */
export const maxCounted = 1000;

/** The query parameters of every list. */
export const pageQuery = z.object({
  limit: z
    .string(`expected one whole number from 1 to ${maxLimit}`)
    .regex(/^(?:[1-9]\d?|1\d\d|200)$/, `expected a whole number from 1 to ${maxLimit}`)
    .transform(Number)
    .default(50)
    .meta({ description: 'Most entries on a page', type: 'integer', minimum: 1, maximum: maxLimit, default: 50 }),
  cursor: z
    .string('expected one cursor')
    .max(1000)
    .optional()
    .meta({ description: '`next_cursor` of the previous page' }),
});

/** The query parameters of a list of hosted and mirrored content. */
export const originQuery = pageQuery.extend({
  origin: z
    .enum(['hosted', 'mirrored'], 'expected hosted or mirrored')
    .optional()
    .meta({ description: 'Only content of this origin' }),
});
export type PageQuery = z.output<typeof pageQuery>;

/** A list that is read page by page, in the order of a key that never changes. */
export interface PagedList<Entry, Key extends readonly (string | number | null)[]> {
  /** Identifies the list, so that its cursors are not valid for other lists. */
  name: string;
  key: z.ZodType<Key>;
  keyOf: (entry: Entry) => Key;
  /** Up to `limit` entries after `after`, in order. */
  read: (limit: number, after: Key | undefined) => Promise<readonly Entry[]>;
  /** Filters the entries; all are shown without it. */
  isVisible?: ((entry: Entry) => boolean) | undefined;
  /** Most entries that a page reads to fill itself, a multiple of 500. Where it ends before, the next page goes on. No bound without it. */
  maxRead?: number;
}

/** Reads one page and the cursor of the next. Reads one more entry, to know whether there is a next page. */
export async function readPage<Entry, Key extends readonly (string | number | null)[]>(
  { limit, cursor }: PageQuery,
  list: PagedList<Entry, Key>,
): Promise<{ entries: readonly Entry[]; next_cursor: string | null }> {
  const after = readCursor(cursor, list);
  const { entries, readTo } = await readVisible(list, limit + 1, after);
  if (entries.length <= limit) return { entries, next_cursor: readTo ? cursorOf(list.name, readTo) : null };
  return {
    entries: entries.slice(0, limit),
    next_cursor: cursorOf(list.name, list.keyOf(entries[limit - 1]!)),
  };
}

/** The cursor of a list called `name` for the entries after `key`. */
export function cursorOf(name: string, key: readonly (string | number | null)[]): string {
  return Buffer.from(JSON.stringify([name, ...key])).toString('base64url');
}

/** The key in a cursor of this list; undefined without a cursor. Throws `Invalid`. */
export function readCursor<Key>(
  cursor: string | undefined,
  list: { name: string; key: z.ZodType<Key> },
): Key | undefined {
  return cursor === undefined ? undefined : decode(cursor, list);
}

/** How many entries a list has on all pages, and their bytes; null if it has so many that they are not counted. */
export async function countEntries<Entry, Key extends readonly (string | number | null)[]>(
  { read, isVisible = () => true, keyOf }: PagedList<Entry, Key>,
  bytesOf: (entry: Entry) => number = () => 0,
): Promise<{ count: number; bytes: number } | null> {
  const total = { count: 0, bytes: 0 };
  let after: Key | undefined;
  for (let seen = 0; seen < maxCounted; seen += batchSize) {
    const entries = await read(batchSize, after);
    for (const each of entries.filter(isVisible)) {
      total.count += 1;
      total.bytes += bytesOf(each);
    }
    if (entries.length < batchSize) return total;
    after = keyOf(entries.at(-1)!);
  }
  return null;
}

/** The next visible entries, at least `limit` if there are so many; and where the reading ended if it has read the most and found fewer. */
async function readVisible<Entry, Key extends readonly (string | number | null)[]>(
  { read, isVisible, keyOf, maxRead = Infinity }: PagedList<Entry, Key>,
  limit: number,
  after: Key | undefined,
): Promise<{ entries: readonly Entry[]; readTo?: Key }> {
  if (!isVisible) return { entries: await read(limit, after) };
  const visible: Entry[] = [];
  let from = after;
  for (let seen = 0; seen < maxRead; seen += batchSize) {
    const entries = await read(batchSize, from);
    visible.push(...entries.filter(isVisible));
    if (visible.length >= limit || entries.length < batchSize) return { entries: visible };
    from = keyOf(entries.at(-1)!);
  }
  return { entries: visible, readTo: from! };
}

function decode<Key>(cursor: string, list: { name: string; key: z.ZodType<Key> }): Key {
  try {
    const bytes = Buffer.from(cursor, 'base64url');
    const [name, ...key] = JSON.parse(bytes.toString()) as unknown[];
    if (name === list.name && bytes.toString('base64url') === cursor) return list.key.parse(key);
  } catch {
    // Handled below.
  }
  throw new DomainError('Invalid', 'The cursor is malformed. Send next_cursor of the previous page, unchanged.', {
    detail: { parameter: 'cursor' },
  });
}
