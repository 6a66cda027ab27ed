import { z } from 'zod';
import { DomainError } from '../errors.ts';

const most = 200;
/** Entries that are read at once where some are not shown. */
const readAtATime = 500;

/** The query of every list. */
export const pageQuery = z.object({
  limit: z
    .string(`expected one whole number from 1 to ${most}`)
    .regex(/^(?:[1-9]\d?|1\d\d|200)$/, `expected a whole number from 1 to ${most}`)
    .transform(Number)
    .default(50)
    .meta({ description: 'Entries a page has at most', type: 'integer', minimum: 1, maximum: most, default: 50 }),
  cursor: z
    .string('expected one cursor')
    .max(1000)
    .optional()
    .meta({ description: '`next_cursor` of the page before' }),
});
export type PageQuery = z.output<typeof pageQuery>;

/** How a list is walked: in the order of a key that an entry never loses. */
export interface Walk<Entry, Key extends readonly (string | number)[]> {
  /** Names the list, so that a cursor serves no other. */
  list: string;
  key: z.ZodType<Key>;
  keyOf: (entry: Entry) => Key;
  /** Up to `limit` entries after `after`, in order. */
  read: (limit: number, after: Key | undefined) => Promise<readonly Entry[]>;
  /** Which entries are shown; all when left out. */
  keep?: ((entry: Entry) => boolean) | undefined;
}

/** One page, and the cursor of the next one; one entry more is read to know whether there is one. */
export async function readPage<Entry, Key extends readonly (string | number)[]>(
  { limit, cursor }: PageQuery,
  walk: Walk<Entry, Key>,
): Promise<{ entries: readonly Entry[]; next_cursor: string | null }> {
  const after = cursor === undefined ? undefined : decode(cursor, walk);
  const entries = await readKept(walk, limit + 1, after);
  if (entries.length <= limit) return { entries, next_cursor: null };
  return {
    entries: entries.slice(0, limit),
    next_cursor: Buffer.from(JSON.stringify([walk.list, ...walk.keyOf(entries[limit - 1]!)])).toString('base64url'),
  };
}

async function readKept<Entry, Key extends readonly (string | number)[]>(
  { read, keep, keyOf }: Walk<Entry, Key>,
  limit: number,
  after: Key | undefined,
): Promise<readonly Entry[]> {
  if (!keep) return read(limit, after);
  const kept: Entry[] = [];
  for (let from = after; ;) {
    const entries = await read(readAtATime, from);
    kept.push(...entries.filter(keep));
    if (kept.length >= limit || entries.length < readAtATime) return kept.slice(0, limit);
    from = keyOf(entries.at(-1)!);
  }
}

function decode<Key>(cursor: string, walk: { list: string; key: z.ZodType<Key> }): Key {
  try {
    const bytes = Buffer.from(cursor, 'base64url');
    const [list, ...key] = JSON.parse(bytes.toString()) as unknown[];
    if (list === walk.list && bytes.toString('base64url') === cursor) return walk.key.parse(key);
  } catch {
    // Said below.
  }
  throw new DomainError('Invalid', 'The cursor is malformed. Take next_cursor of the page before, unchanged.', {
    detail: { parameter: 'cursor' },
  });
}
