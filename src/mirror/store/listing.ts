import { pagesOf } from '../../runtime/pages.ts';
import { rankedRows } from '../../database/ranked-rows.ts';
import type { Rank, Ranked } from '../../runtime/ranked.ts';
import { placeholders, type Database, type Value } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import type { EntryMetadata } from './entries.ts';

// Queries over the stored entries, for lists and for jobs that read all of them.

/** A stored entry as a list shows it. */
export interface ListedEntry {
  /** The upstream's ID. */
  upstream: string;
  name: string;
  reference: string;
  digest: Digest;
  type: string;
  size: number;
  attributes: EntryMetadata['attributes'];
  lastModified: string | null;
  storedAt: number;
  usedAt: number;
}

type UsedEntry = Pick<ListedEntry, 'upstream' | 'name' | 'reference' | 'digest' | 'usedAt'>;

/** Entries of one kind; with `upstreams`, of the upstreams with these IDs only. */
interface Selection {
  kind: string;
  upstreams?: readonly string[] | undefined;
  /** A further condition on `name`. */
  among?: { sql: string; values: readonly Value[] } | undefined;
}

/** The totals of the entries under one name of an upstream. */
export interface NameTotals {
  /** The upstream's ID. */
  upstream: string;
  name: string;
  /** References other than digests. */
  refs: number;
  /** Each content counted once. */
  bytes: number;
  /** The last time; milliseconds since 1970 UTC. */
  storedAt: number;
  usedAt: number;
}

const page = 500;
/** Names and rows of one statement, where all rows are read. More than these rows are read name by name. */
const namesTogether = 20;
const rowsTogether = 500;
const columns = `upstream, name, reference, digest, content_type AS type, size_bytes AS size, attributes,
  last_modified AS lastModified, stored_at AS storedAt, used_at AS usedAt`;

type Row = Omit<ListedEntry, 'attributes'> & { attributes: string };

/** A digest has a colon and a tag has none. */
const isTag = "reference NOT LIKE '%:%'";

/** Up to `limit` names, each once, in byte order after `after`. */
export async function entryNames(
  database: Database,
  { kind, upstreams, among }: Selection,
  after: string,
  limit: number,
): Promise<string[]> {
  if (upstreams?.length === 0) return [];
  const conditions = ['kind = ?', 'name > ?'];
  const values: Value[] = [kind, after];
  if (upstreams) {
    conditions.push(`upstream IN (${placeholders(upstreams)})`);
    values.push(...upstreams);
  }
  if (among) {
    conditions.push(among.sql);
    values.push(...among.values);
  }
  const rows = await database.select<{ name: string }>(
    `SELECT DISTINCT name FROM mirror_entries WHERE ${conditions.join(' AND ')} ORDER BY name LIMIT ?`,
    [...values, limit],
  );
  return rows.map(({ name }) => name);
}

/** Up to 50 contents of an upstream whose digest is `beginning` or begins with it, each with a name under which it is stored. */
export async function contentsWithDigest(
  database: Database,
  { upstream, kind }: { upstream: string; kind: string },
  beginning: string,
): Promise<{ name: string; digest: Digest }[]> {
  return database.select<{ name: string; digest: Digest }>(
    `SELECT DISTINCT name, digest FROM mirror_entries WHERE digest >= ? AND digest < ? AND kind = ? AND upstream = ?
     ORDER BY digest, name LIMIT 50`,
    // The letter sorts after each digit of a digest.
    [beginning, `${beginning}g`, kind, upstream],
  );
}

/** When a stored content of a name was last used under any reference; milliseconds since 1970 UTC. Null if it is not stored. */
export async function lastUseOf(
  database: Database,
  { upstream, kind, name }: { upstream: string; kind: string; name: string },
  digest: Digest,
): Promise<number | null> {
  const row = await database.get<{ usedAt: number | null }>(
    'SELECT MAX(used_at) AS usedAt FROM mirror_entries WHERE digest = ? AND kind = ? AND upstream = ? AND name = ?',
    [digest, kind, upstream, name],
  );
  return row!.usedAt;
}

/** All names that a selection has, each once, read page by page. */
export async function* allNames(database: Database, selection: Selection): AsyncGenerator<string> {
  const read = (after: string) => entryNames(database, selection, after, page);
  for await (const names of pagesOf('', page, read, String)) yield* names;
}

/** All entries of a kind under these names, read in several statements if they are many. */
export async function entriesUnder(database: Database, kind: string, names: readonly string[]): Promise<ListedEntry[]> {
  const entries: ListedEntry[] = [];
  for (let start = 0; start < names.length; start += namesTogether) {
    const some = names.slice(start, start + namesTogether);
    const rows = await database.select<Row>(
      `SELECT ${columns} FROM mirror_entries WHERE kind = ? AND name IN (${placeholders(some)}) LIMIT ?`,
      [kind, ...some, rowsTogether],
    );
    if (rows.length < rowsTogether) for (const row of rows) entries.push(listed(row));
    else for (const name of some) entries.push(...(await allEntriesUnder(database, kind, name)));
  }
  return entries;
}

/** All entries of a kind under one name, which may be very many. */
async function allEntriesUnder(database: Database, kind: string, name: string): Promise<ListedEntry[]> {
  const entries: ListedEntry[] = [];
  for (let from = ''; ;) {
    const rows = await database.select<Row>(
      `SELECT ${columns} FROM mirror_entries WHERE kind = ? AND name = ? AND reference >= ? ORDER BY reference LIMIT ?`,
      [kind, name, from, rowsTogether],
    );
    const isLast = rows.length < rowsTogether;
    const last = rows.at(-1)?.reference;
    // Several upstreams can have the last reference: it is read again, with all of them.
    for (const row of rows) if (isLast || row.reference !== last) entries.push(listed(row));
    if (isLast) return entries;
    from = last!;
  }
}

/** Up to `limit` entries of a name whose reference is a tag, in the order of the tags. */
export async function taggedEntries(
  database: Database,
  { kind, upstream }: { kind: string; upstream: string },
  name: string,
  limit: number,
): Promise<ListedEntry[]> {
  const rows = await database.select<Row>(
    `SELECT ${columns} FROM mirror_entries
     WHERE kind = ? AND name = ? AND upstream = ? AND ${isTag} ORDER BY reference LIMIT ?`,
    [kind, name, upstream, limit],
  );
  return rows.map(listed);
}

/** The entries of a name that have these references. */
export async function entriesOf(
  database: Database,
  { kind, upstream }: { kind: string; upstream: string },
  name: string,
  references: readonly string[],
): Promise<ListedEntry[]> {
  const entries: ListedEntry[] = [];
  for (let start = 0; start < references.length; start += page) {
    const some = references.slice(start, start + page);
    const rows = await database.select<Row>(
      `SELECT ${columns} FROM mirror_entries
       WHERE kind = ? AND name = ? AND upstream = ? AND reference IN (${placeholders(some)})`,
      [kind, name, upstream, ...some],
    );
    entries.push(...rows.map(listed));
  }
  return entries;
}

/**
 * Up to `limit` entries of a name whose reference is a digest, in the order of the digests, after `after`. Each with whether
 * a tag of the name has the digest.
 */
export async function entriesOfName(
  database: Database,
  { kind, upstream }: { kind: string; upstream: string },
  name: string,
  after: string,
  limit: number,
): Promise<(ListedEntry & { isTagged: boolean })[]> {
  const rows = await database.select<Row & { tagged: number | null }>(
    `SELECT ${columns}, (SELECT 1 FROM mirror_entries t WHERE t.digest = e.digest AND t.upstream = e.upstream
       AND t.kind = e.kind AND t.name = e.name AND t.reference NOT LIKE '%:%' LIMIT 1) AS tagged
     FROM mirror_entries e WHERE kind = ? AND name = ? AND reference > ? AND reference LIKE '%:%' AND upstream = ?
     ORDER BY reference LIMIT ?`,
    [kind, name, after, upstream, limit],
  );
  return rows.map(({ tagged, ...row }) => ({ ...listed(row), isTagged: tagged !== null }));
}

/** The totals of each of `names` at each upstream: references and times of the first of `kinds`, bytes of all of them. */
export async function totalsOfNames(
  database: Database,
  kinds: readonly [string, ...string[]],
  names: readonly string[],
): Promise<NameTotals[]> {
  const totals: NameTotals[] = [];
  for (let start = 0; start < names.length; start += namesTogether) {
    const some = names.slice(start, start + namesTogether);
    const among = `name IN (${placeholders(some)})`;
    const rows = await database.select<NameTotals>(
      `SELECT upstream, name, SUM(CASE WHEN ${isTag} THEN 1 ELSE 0 END) AS refs, MAX(stored_at) AS storedAt,
         MAX(used_at) AS usedAt, 0 AS bytes
       FROM mirror_entries WHERE kind = ? AND ${among} GROUP BY upstream, name`,
      [kinds[0], ...some],
    );
    const stored = await database.select<Pick<NameTotals, 'upstream' | 'name' | 'bytes'>>(
      `SELECT upstream, name, SUM(size_bytes) AS bytes FROM (
         SELECT DISTINCT upstream, name, digest, size_bytes FROM mirror_entries
         WHERE kind IN (${placeholders(kinds)}) AND ${among}
       ) AS stored GROUP BY upstream, name`,
      [...kinds, ...some],
    );
    const bytes = new Map(stored.map((each) => [`${each.upstream}/${each.name}`, each.bytes]));
    totals.push(...rows.map((each) => ({ ...each, bytes: bytes.get(`${each.upstream}/${each.name}`) ?? 0 })));
  }
  return totals;
}

/** Up to `limit` entries of a kind whose reference is no digest, those first that were stored last. */
export function newestEntries(
  database: Database,
  { upstream, kind }: { upstream: string; kind: string },
  limit: number,
  after: Rank | undefined,
): Promise<Ranked<Pick<ListedEntry, 'name' | 'reference'>>[]> {
  const from = `mirror_entries WHERE upstream = ? AND kind = ? AND ${isTag}`;
  const ranked = { columns: 'name, reference', from, values: [upstream, kind], value: 'stored_at', name: 'id' };
  return rankedRows(database, ranked, limit, after);
}

/** The entries of a kind that were used at `since` (milliseconds since 1970 UTC) or later, read page by page. */
export async function* usedEntries(database: Database, kind: string, since: number): AsyncGenerator<UsedEntry> {
  let [id, usedAt] = ['', since];
  for (;;) {
    const rows = await database.select<UsedEntry & { id: string }>(
      `SELECT id, upstream, name, reference, digest, used_at AS usedAt FROM mirror_entries
       WHERE (used_at > ? OR (used_at = ? AND id > ?)) AND kind = ? ORDER BY used_at, id LIMIT ?`,
      [usedAt, usedAt, id, kind, page],
    );
    yield* rows;
    const last = rows.at(-1);
    if (!last || rows.length < page) return;
    [id, usedAt] = [last.id, last.usedAt];
  }
}

function listed<T extends Row>({ attributes, ...row }: T) {
  return { ...row, attributes: JSON.parse(attributes) as EntryMetadata['attributes'] };
}
