import { batches } from '../database/batches.ts';
import { pagesOf } from '../runtime/pages.ts';
import { placeholders, type Database, type Transaction } from '../database/database.ts';
import type { Details, EventType } from '../events/event.ts';
import { recordEvent } from '../events/record.ts';

/**
 * `new`: nothing of it came. `partial`: all of it was asked for, and some could not come. `whole`: all of it is here.
 * `alike`: a version that was asked for is at an upstream, too; `mirrored`: all of it is. `conflict`: an upstream has other content.
 * A `mirrored` name with a note was a conflict that a person left to the upstream.
 */
export const nameStates = ['new', 'partial', 'whole', 'alike', 'mirrored', 'conflict'] as const;
export type NameState = (typeof nameStates)[number];

/** A name of hosted content that a predecessor has. */
export interface InventoryName {
  id: number;
  predecessor: string;
  /** As the predecessor writes it. */
  name: string;
  /** As it is here, in lower case. */
  name_key: string;
  state: NameState;
  note: string | null;
}

/** What is known of a predecessor as a whole. Times are in milliseconds since 1970 UTC. */
export interface TakeoverRow {
  predecessor: string;
  source: string;
  /** When the list of its names was read whole last. */
  read_at: number | null;
  warning: string | null;
  finished_at: number | null;
}

/** Whether upstreams serve a name. */
export function isMirroredName({ state }: Pick<InventoryName, 'state'>): boolean {
  return state === 'mirrored' || state === 'alike';
}

/** Whether a person left a name to an upstream that has other content. */
export function isLeftName({ state, note }: Pick<InventoryName, 'state' | 'note'>): boolean {
  return state === 'mirrored' && note !== null;
}

const columns = 'id, predecessor, name, name_key, state, note';
const byKey = `SELECT ${columns} FROM takeover_names WHERE name_key = ?`;
const ofPredecessor = 'SELECT * FROM takeovers WHERE predecessor = ?';

/** The names that predecessors have, and what became of them. */
export class Inventory {
  readonly #database: Database;
  readonly #now: () => number;

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  /** Undefined if it was never begun. From memory while nothing changes. */
  takeover(predecessor: string): Promise<Readonly<TakeoverRow> | undefined> {
    return this.#database.getCached<TakeoverRow>(ofPredecessor, [predecessor]);
  }

  /** The rows of a name here, of all predecessors. From memory while nothing changes. */
  find(key: string): Promise<readonly Readonly<InventoryName>[]> {
    return this.#database.selectCached<InventoryName>(byKey, [key]);
  }

  /** Begins the takeover of a predecessor; another source of the same name begins anew. */
  async begin(predecessor: string, source: string): Promise<void> {
    const before = await this.#database.get<TakeoverRow>(ofPredecessor, [predecessor]);
    if (before?.source === source) return;
    // What came keeps its row until the last of them, so that a stop in the middle is repeated.
    const some = 'SELECT id FROM takeover_names WHERE predecessor = ? LIMIT 500';
    for (;;) {
      const ids = (await this.#database.select<{ id: number }>(some, [predecessor])).map(({ id }) => id);
      if (ids.length === 0) break;
      await this.#database.transaction(async (tx) => {
        await tx.run(`DELETE FROM takeover_references WHERE name_row IN (${placeholders(ids)})`, ids);
        await tx.run(`DELETE FROM takeover_names WHERE id IN (${placeholders(ids)})`, ids);
      });
    }
    await this.#database.transaction(async (tx) => {
      await tx.run('DELETE FROM takeovers WHERE predecessor = ?', [predecessor]);
      await tx.insertNew('takeovers', [{ predecessor, source, read_at: null, warning: null, finished_at: null }]);
    });
  }

  /**
   * Adds names that are not known yet. None is removed: a list that a predecessor sends short must not give its names to upstreams.
   * Resolves to pairs of names of which only the first is kept, because they have one key.
   */
  async add(
    predecessor: string,
    names: readonly { name: string; key: string }[],
  ): Promise<[kept: string, other: string][]> {
    const pairs: [string, string][] = [];
    for (const some of batches(names)) {
      const keys = some.map(({ key }) => key);
      const rows = some.map(({ name, key }) => ({ predecessor, name, name_key: key, state: 'new', note: null }));
      await this.#database.transaction(async (tx) => {
        await tx.insertNew('takeover_names', rows);
      });
      const known = `SELECT name, name_key FROM takeover_names WHERE predecessor = ? AND name_key IN (${placeholders(keys)})`;
      const kept = await this.#database.select<{ name: string; name_key: string }>(known, [predecessor, ...keys]);
      const byKey = new Map(kept.map((row) => [row.name_key, row.name]));
      for (const { name, key } of some) {
        const first = byKey.get(key);
        if (first !== undefined && first.toLowerCase() !== name.toLowerCase()) pairs.push([first, name]);
      }
    }
    return pairs;
  }

  /** Notes that the names were read to their end. */
  async noteRead(predecessor: string, warning: string | null): Promise<void> {
    const values = [this.#now(), warning?.slice(0, 500) ?? null, predecessor];
    const sql = 'UPDATE takeovers SET read_at = ?, warning = ? WHERE predecessor = ?';
    await this.#database.transaction((tx) => tx.run(sql, values));
  }

  /** All names of a predecessor in these states, 200 at a time. */
  pages(predecessor: string, states: readonly NameState[]): AsyncGenerator<readonly InventoryName[]> {
    return pagesOf(
      0,
      namesAtATime,
      (after) => this.#page(predecessor, states, after),
      ({ id }) => id,
    );
  }

  #page(predecessor: string, states: readonly NameState[], after: number): Promise<InventoryName[]> {
    return this.#database.select<InventoryName>(
      `SELECT ${columns} FROM takeover_names
       WHERE predecessor = ? AND state IN (${placeholders(states)}) AND id > ? ORDER BY id LIMIT ${namesAtATime}`,
      [predecessor, ...states, after],
    );
  }

  /** How many names are in which state. */
  async counts(predecessor: string): Promise<Map<NameState, number>> {
    const sql = 'SELECT state, COUNT(*) AS n FROM takeover_names WHERE predecessor = ? GROUP BY state';
    const rows = await this.#database.select<{ state: NameState; n: number }>(sql, [predecessor]);
    return new Map(rows.map(({ state, n }) => [state, n]));
  }

  async settle(row: Pick<InventoryName, 'id'>, state: NameState, note: string | null): Promise<void> {
    const values = [state, note?.slice(0, 500) ?? null, row.id];
    await this.#database.transaction((tx) =>
      tx.run('UPDATE takeover_names SET state = ?, note = ? WHERE id = ?', values),
    );
  }

  /** The versions or tags of a name that have come. */
  async came(row: Pick<InventoryName, 'id'>): Promise<Set<string>> {
    const sql = 'SELECT reference FROM takeover_references WHERE name_row = ?';
    const rows = await this.#database.select<{ reference: string }>(sql, [row.id]);
    return new Set(rows.map(({ reference }) => reference));
  }

  async hasCome(row: Pick<InventoryName, 'id'>, reference: string): Promise<boolean> {
    const sql = 'SELECT reference FROM takeover_references WHERE name_row = ? AND reference = ?';
    return (await this.#database.get(sql, [row.id, reference])) !== undefined;
  }

  async record(row: Pick<InventoryName, 'id'>, reference: string): Promise<void> {
    const added = { name_row: row.id, reference: reference.slice(0, 255), came_at: this.#now() };
    await this.#database.transaction((tx) => tx.insertNew('takeover_references', [added]));
  }

  /** Leaves a name whose content upstreams have otherwise to them, and records it. False if there is none. */
  async leave(predecessor: string, key: string): Promise<boolean> {
    const sql =
      "UPDATE takeover_names SET state = 'mirrored' WHERE predecessor = ? AND name_key = ? AND state = 'conflict'";
    const name = key.toLowerCase();
    return this.#database.transaction(async (tx) => {
      const isLeft = (await tx.run(sql, [predecessor, name])) > 0;
      if (isLeft) await this.#record(tx, 'takeover.left', predecessor, { name });
      return isLeft;
    });
  }

  /** Ends a takeover, and records the names that were accepted although they differ. */
  async finish(predecessor: string, accepted: readonly string[]): Promise<void> {
    await this.#database.transaction(async (tx) => {
      await tx.run('UPDATE takeovers SET finished_at = ? WHERE predecessor = ?', [this.#now(), predecessor]);
      await this.#record(tx, 'takeover.finished', predecessor, { accepted: accepted.slice(0, 100) });
    });
  }

  #record(tx: Transaction, type: EventType, predecessor: string, details: Details): Promise<void> {
    return recordEvent(
      tx,
      { type, accountId: 0, subject: { kind: 'takeover', name: predecessor }, details },
      this.#now(),
    );
  }
}

/** Names that are read at a time. */
export const namesAtATime = 200;
