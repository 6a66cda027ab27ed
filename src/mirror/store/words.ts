import { byBytes } from '../../runtime/sorted.ts';
import type { Database, Transaction, Value } from '../../database/database.ts';
import type { EntryKey } from './entries.ts';

// The search for names by the words in them. A word begins at the start of a name or after a separator.

/** Most suffixes of one name. */
const maxSuffixes = 16;
/** Most characters of a stored suffix. */
const suffixLength = 100;
/** Most words of a search; further ones are ignored. */
const maxWords = 8;
/** Rows that are read in one statement, and the most rows that one search reads. */
const batch = 500;
const maxRows = 5000;

/** A name or a text of a search in lower case, with one kind of separator. */
function searchKey(text: string): string {
  return text.toLowerCase().replace(/[/_-]/g, '.');
}

/** The suffixes of a name under which it is found: the name itself, and what follows each separator. */
export function suffixesOf(name: string): string[] {
  const suffixes = new Set<string>();
  let rest = searchKey(name);
  for (let level = 0; level < maxSuffixes; level += 1) {
    if (rest !== '') suffixes.add(rest.slice(0, suffixLength));
    const dot = rest.indexOf('.');
    if (dot < 0) break;
    rest = rest.slice(dot + 1);
  }
  return [...suffixes];
}

/** A search text: a name must have a suffix that begins with `start`, and contain all `others`. */
export interface NameQuery {
  start: string;
  others: readonly string[];
}

/** Undefined for a text without a word. */
export function nameQuery(text: string): NameQuery | undefined {
  const words = text
    .split(/\s+/, maxWords + 1)
    .map(searchKey)
    .filter(Boolean)
    .slice(0, maxWords);
  const [longest, ...others] = words.sort((a, b) => b.length - a.length);
  return longest === undefined ? undefined : { start: longest, others };
}

/** A place in the table, from which a search continues. */
type WordPlace = readonly [suffix: string, ...keys: string[]];

/** A place as text; empty for the start. */
export function placeOf(position: string): WordPlace | undefined {
  if (position === '') return undefined;
  const place: unknown = JSON.parse(position);
  return Array.isArray(place) && place.length > 0 ? (place.map(String) as [string, ...string[]]) : undefined;
}

/** What a search reads: a SELECT from a table of words as `w`, with a condition, and its values. */
interface WordTable {
  sql: string;
  values: readonly Value[];
  /** The columns of the key after the suffix. */
  keys: readonly string[];
}

/**
 * The rows of a table of words that match `query`, after `place`, in the order of suffixes. Each name comes once for each
 * upstream. Reads up to 5,000 rows.
 */
export async function* matchingNames<Row extends { suffix: string; name: string }>(
  database: Database,
  { sql, values, keys }: WordTable,
  { start, others }: NameQuery,
  place?: WordPlace,
): AsyncGenerator<Row> {
  const prefix = start.slice(0, suffixLength);
  let [from, ...after] = place ?? [prefix];
  for (let read = 0; read < maxRows; read += batch) {
    const passed = after.length > 0 ? `AND (w.suffix > ? OR ${beyond(keys)})` : '';
    const rows = await database.select<Row>(
      `${sql} AND w.suffix >= ? AND w.suffix < ? ${passed}
       ORDER BY w.suffix, ${keys.map((key) => `w.${key}`).join(', ')} LIMIT ?`,
      [...values, from, `${prefix}\u{10ffff}`, ...(after.length > 0 ? [from, ...beyondValues(after)] : []), batch],
    );
    for (const row of rows) {
      const key = searchKey(row.name);
      const isFirst =
        suffixesOf(row.name)
          .filter((each) => each.startsWith(prefix))
          .sort(byBytes)[0] === row.suffix;
      if (isFirst && key.includes(start) && others.every((each) => key.includes(each))) yield row;
    }
    const last = rows.at(-1) as (Row & Record<string, string>) | undefined;
    if (!last || rows.length < batch) return;
    [from, after] = [last.suffix, keys.map((each) => last[each]!)];
  }
}

/** A condition for the rows of the same suffix whose other keys are greater. */
function beyond(keys: readonly string[]): string {
  const [first, ...rest] = keys;
  return rest.length === 0 ? `w.${first} > ?` : `(w.${first} > ? OR (w.${first} = ? AND ${beyond(rest)}))`;
}

function beyondValues([first, ...rest]: readonly string[]): string[] {
  return rest.length === 0 ? [first!] : [first!, first!, ...beyondValues(rest)];
}

/** Writes the words of an entry's name, if they are not written yet. */
export async function addWords(tx: Transaction, { kind, upstream, name }: EntryKey): Promise<void> {
  const suffixes = suffixesOf(name);
  const [whole] = suffixes;
  if (whole === undefined) return;
  const known = 'SELECT name FROM mirror_words WHERE kind = ? AND suffix = ? AND upstream = ? AND name = ?';
  if (await tx.get(known, [kind, whole, upstream, name])) return;
  await tx.insertNew(
    'mirror_words',
    suffixes.map((suffix) => ({ kind, suffix, upstream, name })),
  );
}

/** A stored name of an upstream that a search found. */
interface FoundName {
  suffix: string;
  /** The upstream's ID. */
  upstream: string;
  name: string;
}

/** The names of `kind` with stored entries that match `query`; with `upstreams`, of the upstreams with these IDs only. */
export async function* storedNames(
  database: Database,
  kind: string,
  query: NameQuery,
  { upstreams, place }: { upstreams?: readonly string[] | undefined; place?: WordPlace | undefined },
): AsyncGenerator<FoundName> {
  const sql = `SELECT w.suffix, w.upstream, w.name, (SELECT 1 FROM mirror_entries e
      WHERE e.upstream = w.upstream AND e.kind = w.kind AND e.name = w.name LIMIT 1) AS here
    FROM mirror_words w WHERE w.kind = ?`;
  const table = { sql, values: [kind], keys: ['upstream', 'name'] };
  for await (const row of matchingNames<FoundName & { here: number | null }>(database, table, query, place)) {
    if (row.here !== null && (upstreams?.includes(row.upstream) ?? true)) yield row;
  }
}

/** Up to `limit` results of `pick`, which gets the items of `source` in parts. */
export async function takeFrom<Item, Result>(
  source: AsyncIterable<Item>,
  limit: number,
  pick: (items: readonly Item[]) => Promise<Result[]>,
): Promise<Result[]> {
  const results: Result[] = [];
  let part: Item[] = [];
  for await (const item of source) {
    part.push(item);
    if (part.length < limit) continue;
    results.push(...(await pick(part)));
    part = [];
    if (results.length >= limit) break;
  }
  if (part.length > 0) results.push(...(await pick(part)));
  return results.slice(0, limit);
}
