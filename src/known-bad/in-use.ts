import { NameSet } from '../accounts/names.ts';
import type { Database, Transaction } from '../database/database.ts';
import { afterKey } from '../database/tables.ts';
import { recordEvent } from '../events/record.ts';
import { pagesOf } from '../runtime/pages.ts';
import type { AffectedTest, BadDetail } from './entry.ts';
import type { NewEntry } from './record.ts';

/** Mirrored content that clients use. Times are in milliseconds since 1970 UTC. */
interface UsedContent {
  kind: string;
  name: string;
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

/** The content under one name that a new entry names. */
export interface Hit {
  id: string;
  kind: string;
  name: string;
  references: string[];
  digests: string[];
  usedAt: number;
}

interface EntryRow {
  kind: NewEntry['kind'];
  name_key: string;
  id: string;
  part: number;
  detail: string;
}

/** Content counts as in use for this time after its last use; milliseconds. */
const inUseFor = 30 * 86_400_000;
/** Hits that are told one by one, and references of each. */
const maxHits = 100;
const maxReferences = 20;
const pageRows = 500;

/** A list, its new entries, and those that readers see now. */
export interface Generations {
  list: string;
  next: number;
  current: number;
}

/** The content in use that entries of a list name which is read again, and did not before. Up to 100 hits. */
export async function hitsOf(
  database: Database,
  { list, next, current }: Generations,
  content: ContentInUse,
  isAffected: AffectedTest,
  now: number,
): Promise<Hit[]> {
  const hits = new Map<string, Hit>();
  const since = now - inUseFor;
  const read = (after: (string | number)[]) => {
    const { sql, values } = afterKey(database, ['kind', 'name_key', 'id', 'part'], after);
    return database.select<EntryRow>(
      `SELECT kind, name_key, id, part, detail FROM bad_entries e WHERE list = ? AND generation = ? AND ${sql}
         AND NOT EXISTS (SELECT 1 FROM bad_entries p WHERE p.list = e.list AND p.generation = ? AND p.kind = e.kind
           AND p.name_key = e.name_key AND p.id = e.id AND p.part = e.part AND p.hash = e.hash)
       ORDER BY kind, name_key, id, part LIMIT ${pageRows}`,
      [list, next, ...values, current],
    );
  };
  for await (const rows of pagesOf(['', '', '', 0], pageRows, read, keyOfRow)) {
    for (const kind of new Set(rows.map((row) => row.kind))) {
      const some = rows.filter((row) => row.kind === kind);
      for (const [row, used] of await usesOf(content, kind, some, since)) {
        if (!isAffected(JSON.parse(row.detail) as BadDetail, used.reference)) continue;
        const key = JSON.stringify([row.id, used.name]);
        const hit = hits.get(key) ?? {
          id: row.id,
          kind: used.kind,
          name: used.name,
          references: [],
          digests: [],
          usedAt: 0,
        };
        if (hits.size >= maxHits && !hits.has(key)) return [...hits.values()];
        hits.set(key, hit);
        add(hit.references, used.reference);
        add(hit.digests, used.digest);
        hit.usedAt = Math.max(hit.usedAt, used.usedAt);
      }
    }
  }
  return [...hits.values()];
}

function keyOfRow({ kind, name_key: name, id, part }: EntryRow): (string | number)[] {
  return [kind, name, id, part];
}

/** Records an event about each hit. */
export async function recordHits(tx: Transaction, list: string, hits: readonly Hit[], now: number): Promise<void> {
  for (const { id, kind, name, references, digests, usedAt } of hits) {
    const details = { list, id, references, digests, last_used_at: new Date(usedAt).toISOString() };
    await recordEvent(tx, { type: 'known_bad.in_use', accountId: 0, subject: { kind, name }, details }, now);
  }
}

async function usesOf(
  content: ContentInUse,
  kind: EntryRow['kind'],
  rows: readonly EntryRow[],
  since: number,
): Promise<[EntryRow, UsedContent][]> {
  if (kind === 'pattern') {
    const uses: [EntryRow, UsedContent][] = [];
    const patterns = rows.map((row) => ({ row, names: new NameSet([row.name_key]) }));
    for await (const name of content.names()) {
      const matching = patterns.filter(({ names }) => names.includes(name.toLowerCase()));
      if (matching.length === 0) continue;
      for (const used of await content.named([name], since)) for (const { row } of matching) uses.push([row, used]);
      if (uses.length >= pageRows) break;
    }
    return uses;
  }
  const keys = [...new Set(rows.map((row) => row.name_key))];
  const used = kind === 'digest' ? await content.withDigests(keys, since) : await content.named(keys, since);
  const keyOf = (each: UsedContent) => (kind === 'digest' ? each.digest : each.name.toLowerCase());
  return used.flatMap((each) =>
    rows.filter((row) => row.name_key === keyOf(each)).map((row): [EntryRow, UsedContent] => [row, each]),
  );
}

function add(list: string[], text: string): void {
  if (list.length < maxReferences && !list.includes(text)) list.push(text);
}
