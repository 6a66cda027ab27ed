import { NameSet } from '../accounts/names.ts';
import { placeholders, type Database } from '../database/database.ts';
import { DomainError } from '../runtime/errors.ts';
import type { BadDetail, BadEntry, BadKind } from './entry.ts';
import { inUseFor, type Hit } from './in-use.ts';
import type { ListSettings } from './list-settings.ts';
import { recordsOf, type ListRecord } from './records.ts';

/** A list of the policy, and what is known of it. Times are in milliseconds since 1970 UTC. */
interface ListState {
  name: string;
  /** Milliseconds after which it is read again. */
  refresh: number;
  entries: number;
  /** When it was last read, or its source last said that it has not changed; null if never. */
  refreshedAt: number | null;
  /** When that was last tried. */
  checkedAt: number | null;
  /** Failed attempts since then, and the last failure ever: a text that follows the name of the list. */
  failures: number;
  failure: string | null;
  failedAt: number | null;
  /** What it names of the content that clients had used in the 30 days before it was read; not more than 100. */
  inUse: readonly Hit[];
}

interface EntryRow {
  list: string;
  id: string;
  name_key: string;
  detail: string;
}

/** Digests of one statement. */
const digestsAtATime = 500;

/** An entry for the images whose name matches a pattern. */
interface PatternEntry {
  names: NameSet;
  entry: BadEntry;
}

/** One statement, so that its rows are those of one generation of each list. */
const found = `SELECT e.list, e.id, e.name_key, e.detail FROM bad_entries e
  JOIN bad_lists l ON l.name = e.list AND l.generation = e.generation`;
const order = 'ORDER BY e.list, e.id, e.part';
const ofName = `${found} WHERE e.kind = ? AND e.name_key = ? ${order}`;
const ofKind = `${found} WHERE e.kind = ? ${order}`;
const ofDigests = `${found} WHERE e.kind = 'digest'`;
const anyDigest = `${ofDigests} LIMIT 1`;
const ofId = `SELECT e.kind, e.list, e.id, e.name_key, e.detail FROM bad_lists l
  JOIN bad_entries e ON e.list = l.name AND e.generation = l.generation AND e.id IN (?, ?) ${order} LIMIT 5000`;
const anyList = 'SELECT COUNT(*) AS lists FROM bad_lists WHERE entry_count > 0';

/**
 * The lists of content that is known to be bad. Answers come from memory until a list changes on any instance; entries are the
 * same objects until then.
 */
export class KnownBad {
  readonly #database: Database;
  /** The lists that the policy names now; the same array until it changes. */
  readonly lists: () => Promise<readonly ListSettings[]>;
  /** What the rows of a result say. */
  readonly #entries = new WeakMap<readonly EntryRow[], readonly BadEntry[]>();
  readonly #patterns = new WeakMap<readonly EntryRow[], readonly PatternEntry[]>();

  constructor(database: Database, lists: () => Promise<readonly ListSettings[]>) {
    this.#database = database;
    this.lists = lists;
  }

  /** The entries of all lists for a name, in any letter case; of an image also those whose pattern it matches. */
  async of(kind: BadKind, name: string): Promise<readonly BadEntry[]> {
    if (await this.#areEmpty()) return [];
    const key = name.toLowerCase();
    const exact = this.#entriesIn(await this.#database.selectCached<EntryRow>(ofName, [kind, key]));
    if (kind !== 'image') return exact;
    const patterns = this.#patternsIn(await this.#database.selectCached<EntryRow>(ofKind, ['pattern']));
    const matching = patterns.filter(({ names }) => names.includes(key));
    return matching.length === 0 ? exact : [...exact, ...matching.map(({ entry }) => entry)];
  }

  /** The entries of all lists with an ID, in any letter case, and what they name: a package, an image, a pattern or a digest. */
  async named(id: string): Promise<{ kind: string; key: string; entry: BadEntry }[]> {
    if (await this.#areEmpty()) return [];
    const rows = await this.#database.select<EntryRow & { kind: string }>(ofId, [id, id.toUpperCase()]);
    return rows.map((row) => ({ kind: row.kind, key: row.name_key, entry: entryOf(row) }));
  }

  /** Whether a list has entries for digests. */
  async haveDigests(): Promise<boolean> {
    if (await this.#areEmpty()) return false;
    return (await this.#database.selectCached(anyDigest)).length > 0;
  }

  /** The entries of all lists for digests of manifests and blobs; what no list has is left out. */
  async ofDigests(digests: readonly string[]): Promise<ReadonlyMap<string, readonly BadEntry[]>> {
    const found = new Map<string, BadEntry[]>();
    if (digests.length === 0 || (await this.#areEmpty())) return found;
    for (let from = 0; from < digests.length; from += digestsAtATime) {
      const some = digests.slice(from, from + digestsAtATime);
      const sql = `${ofDigests} AND e.name_key IN (${placeholders(some)}) ${order}`;
      // Requests for content have one.
      const rows =
        digests.length === 1
          ? await this.#database.selectCached<EntryRow>(sql, some)
          : await this.#database.select<EntryRow>(sql, some);
      for (const row of rows) found.set(row.name_key, [...(found.get(row.name_key) ?? []), entryOf(row)]);
    }
    return found;
  }

  /** The lists that the policy names, in their order. `now` is in milliseconds since 1970 UTC. */
  async states(now: number): Promise<ListState[]> {
    const lists = await this.lists();
    if (lists.length === 0) return [];
    const rows = await this.#database.select<Omit<ListState, 'refresh' | 'inUse'> & { hits: string | null }>(
      `SELECT name, in_use AS hits, entry_count AS entries, refreshed_at AS refreshedAt, checked_at AS checkedAt, failures, failure,
         failed_at AS failedAt FROM bad_lists`,
    );
    const none = { entries: 0, refreshedAt: null, checkedAt: null, failures: 0, failure: null, failedAt: null };
    return lists.map(({ name, refresh, except }) => {
      const { hits, ...row } = rows.find((each) => each.name === name) ?? { hits: null };
      const inUse = (JSON.parse(hits ?? '[]') as Hit[]).filter(
        ({ id, usedAt }) => usedAt >= now - inUseFor && !except.includes(id),
      );
      return { ...none, ...row, name, refresh, inUse };
    });
  }

  /** The records of all lists that the policy names, as they were read last. Throws as `recordsOf`, and `NotFound` without a list. */
  async records(): Promise<ListRecord[]> {
    const lists = await this.lists();
    if (lists.length === 0) throw new DomainError('NotFound', 'The policy names no list of known bad content.');
    return recordsOf(
      this.#database,
      lists.map(({ name }) => name),
    );
  }

  async #areEmpty(): Promise<boolean> {
    if ((await this.lists()).length === 0) return true;
    const row = await this.#database.getCached<{ lists: number }>(anyList);
    return row!.lists === 0;
  }

  #entriesIn(rows: readonly Readonly<EntryRow>[]): readonly BadEntry[] {
    let read = this.#entries.get(rows);
    if (!read) this.#entries.set(rows, (read = rows.map(entryOf)));
    return read;
  }

  #patternsIn(rows: readonly Readonly<EntryRow>[]): readonly PatternEntry[] {
    let read = this.#patterns.get(rows);
    if (!read) {
      read = rows.map((row) => ({ names: new NameSet([row.name_key]), entry: entryOf(row) }));
      this.#patterns.set(rows, read);
    }
    return read;
  }
}

function entryOf({ list, id, detail }: Readonly<EntryRow>): BadEntry {
  return { list, id, ...(JSON.parse(detail) as BadDetail) };
}
