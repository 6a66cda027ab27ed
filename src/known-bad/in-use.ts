import { NameSet } from '../accounts/names.ts';
import type { Database, Transaction } from '../database/database.ts';
import { afterKey } from '../database/tables.ts';
import { recordEvent } from '../events/record.ts';
import { pause, withPauses } from '../runtime/event-loop.ts';
import { pagesOf } from '../runtime/pages.ts';
import type { AffectedTest, BadDetail } from './entry.ts';
import type { NewEntry } from './record.ts';

/** Mirrored content that clients use. Times are in milliseconds since 1970 UTC. */
interface UsedContent {
  kind: string;
  name: string;
  /** Further names by which clients request it. */
  otherNames?: readonly string[];
  reference: string;
  digest: string;
  usedAt: number;
}

/** Finds mirrored content that clients have used since some time. */
export interface ContentInUse {
  named(names: readonly string[], since: number): Promise<UsedContent[]>;
  withDigests(digests: readonly string[], since: number): Promise<UsedContent[]>;
  /** All stored names, in the words of clients. */
  names(): AsyncIterable<string>;
}

/** The content under one name that an entry names. */
export interface Hit {
  id: string;
  kind: string;
  name: string;
  references: string[];
  digests: string[];
  usedAt: number;
}

/** The content in use that a list names: by entries that readers do not see yet, and by others. */
export interface Hits {
  added: Hit[];
  known: Hit[];
}

interface EntryRow {
  kind: NewEntry['kind'];
  name_key: string;
  id: string;
  part: number;
  /** Whether readers see the same entry now; 0 or 1. */
  is_seen: number;
}

/** Content counts as in use for this time after its last use; milliseconds. */
export const inUseFor = 30 * 86_400_000;
/** Hits that are told one by one, and references of each. */
const maxHits = 100;
const maxReferences = 20;
/** References and digests of a hit that are stored. */
const maxStored = 5;
const pageRows = 500;

/** A list, its new entries, and those that readers see now. */
export interface Generations {
  list: string;
  next: number;
  current: number;
}

interface HitParts {
  database: Database;
  content: ContentInUse;
  isAffected: AffectedTest;
  signal: AbortSignal;
  /** Milliseconds since 1970 UTC. */
  now: number;
}

/** The content in use that the next entries of a list name. Up to 100 hits of those that the current ones do not name, and of others. */
export async function hitsOf(parts: HitParts, { list, next, current }: Generations): Promise<Hits> {
  const { database, isAffected, signal } = parts;
  const [added, known] = [new Map<string, Hit>(), new Map<string, Hit>()];
  const read = (after: (string | number)[]) => {
    const { sql, values } = afterKey(database, ['kind', 'name_key', 'id', 'part'], after);
    return database.select<EntryRow>(
      `SELECT kind, name_key, id, part, EXISTS (SELECT 1 FROM bad_entries p WHERE p.list = e.list AND p.generation = ?
         AND p.kind = e.kind AND p.name_key = e.name_key AND p.id = e.id AND p.part = e.part AND p.hash = e.hash) AS is_seen
       FROM bad_entries e WHERE list = ? AND generation = ? AND ${sql}
       ORDER BY kind, name_key, id, part LIMIT ${pageRows}`,
      [current, list, next, ...values],
    );
  };
  for await (const rows of pagesOf(['', '', '', 0], pageRows, read, keyOfRow)) {
    signal.throwIfAborted();
    for (const [kind, some] of Map.groupBy(rows, (row) => row.kind)) {
      for (const [row, uses] of await usesOf(parts, kind, some)) {
        const hits = row.is_seen === 0 ? added : known;
        const detail = await detailOf(database, { list, generation: next }, row);
        for await (const used of withPauses(uses)) {
          if (!isAffected(detail, used.reference)) continue;
          const key = JSON.stringify([row.id, used.name]);
          if (hits.size >= maxHits && !hits.has(key)) continue;
          const { kind: ofName, name } = used;
          const hit = hits.get(key) ?? { id: row.id, kind: ofName, name, references: [], digests: [], usedAt: 0 };
          hits.set(key, hit);
          add(hit.references, used.reference);
          add(hit.digests, used.digest);
          hit.usedAt = Math.max(hit.usedAt, used.usedAt);
        }
      }
    }
  }
  return { added: [...added.values()], known: [...known.values()] };
}

function keyOfRow({ kind, name_key: name, id, part }: EntryRow): (string | number)[] {
  return [kind, name, id, part];
}

/** What is stored of the hits of a list: the new ones first, with a few references and digests of each. */
export function hitsText({ added, known }: Hits): string {
  const hits = [...added, ...known].slice(0, maxHits);
  return JSON.stringify(
    hits.map((each) => ({
      ...each,
      references: each.references.slice(0, maxStored),
      digests: each.digests.slice(0, maxStored),
    })),
  );
}

/** Records an event about each hit. */
export async function recordHits(tx: Transaction, list: string, hits: readonly Hit[], now: number): Promise<void> {
  for (const { id, kind, name, references, digests, usedAt } of hits) {
    const details = { list, id, references, digests, last_used_at: new Date(usedAt).toISOString() };
    await recordEvent(tx, { type: 'known_bad.in_use', accountId: 0, subject: { kind, name }, details }, now);
  }
}

/** What each entry of one kind names, if it names something that is in use. */
async function usesOf(
  { content, now }: HitParts,
  kind: EntryRow['kind'],
  rows: readonly EntryRow[],
): Promise<ReadonlyMap<EntryRow, UsedContent[]>> {
  const since = now - inUseFor;
  if (kind === 'pattern') return usesOfPatterns(content, rows, since);
  const byKey = Map.groupBy(rows, (row) => row.name_key);
  const keys = [...byKey.keys()];
  const found = kind === 'digest' ? await content.withDigests(keys, since) : await content.named(keys, since);
  const used = new Map<string, UsedContent[]>();
  for (const each of found)
    for (const key of kind === 'digest' ? [each.digest] : namesOf(each).map((name) => name.toLowerCase())) {
      const known = used.get(key) ?? [];
      known.push(each);
      used.set(key, known);
    }
  return new Map(rows.flatMap((row) => (used.has(row.name_key) ? [[row, used.get(row.name_key)!]] : [])));
}

/** Reads all stored names, and up to 500 uses for each pattern. */
async function usesOfPatterns(
  content: ContentInUse,
  rows: readonly EntryRow[],
  since: number,
): Promise<ReadonlyMap<EntryRow, UsedContent[]>> {
  const patterns = rows.map((row) => ({ row, names: new NameSet([row.name_key]) }));
  const uses = new Map<EntryRow, UsedContent[]>();
  let waiting = new Map<string, EntryRow[]>();
  const flush = async () => {
    for (const used of await content.named([...waiting.keys()], since))
      for (const row of new Set(namesOf(used).flatMap((name) => waiting.get(name) ?? []))) {
        const known = uses.get(row) ?? [];
        if (known.length < pageRows) known.push(used);
        uses.set(row, known);
      }
    waiting = new Map();
  };
  for await (const name of content.names()) {
    await pause();
    const matching = patterns.filter(({ names }) => names.includes(name.toLowerCase()));
    if (matching.length === 0) continue;
    waiting.set(
      name,
      matching.map(({ row }) => row),
    );
    if (waiting.size === pageRows) await flush();
  }
  await flush();
  return uses;
}

function namesOf({ name, otherNames = [] }: UsedContent): string[] {
  return [name, ...otherNames];
}

/** Read only for an entry that names something in use: it can be large. */
async function detailOf(
  database: Database,
  { list, generation }: { list: string; generation: number },
  { kind, name_key: name, id, part }: EntryRow,
): Promise<BadDetail> {
  const row = await database.get<{ detail: string }>(
    'SELECT detail FROM bad_entries WHERE list = ? AND generation = ? AND kind = ? AND name_key = ? AND id = ? AND part = ?',
    [list, generation, kind, name, id, part],
  );
  return JSON.parse(row!.detail) as BadDetail;
}

function add(list: string[], text: string): void {
  if (list.length < maxReferences && !list.includes(text)) list.push(text);
}
