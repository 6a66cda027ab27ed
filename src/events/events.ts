import { setImmediate as nextTurn } from 'node:timers/promises';
import { callerLeft, currentCaller, type Actor } from '../caller.ts';
import { forUpdate, placeholders, type Database, type Transaction, type Value } from '../database/database.ts';
import type { Details, EventType, RecordedEvent, Subject } from './event.ts';
import { keyOfSubject } from './record.ts';

/** Events that get their positions in one transaction, and that are deleted in one. */
const batch = 200;
/** Positions that one statement reads. On SQLite a statement stops all other work of the process. */
const window = 5000;
/**
 * Events near a time that are examined to find the first position with that time. Positions follow the order of commits,
 * which differs a little from that of times.
 */
const aroundTime = 1000;
const mostCounted = 10_000;

/** Conditions for events. All of them apply. */
export interface EventFilter {
  /** Undefined: the events of all accounts, and those that concern none. */
  accountId?: number | undefined;
  /** A type, `package.*`, or `*`. */
  type?: string | undefined;
  /** The ID or the name of the actor. */
  actor?: string | undefined;
  /** The name of the subject, in any letter case. */
  subject?: string | undefined;
  /** Milliseconds since 1970; events at this time or later, and before `until`. */
  since?: number | undefined;
  until?: number | undefined;
  /** Only packages and containers with these names. */
  names?: Record<'package' | 'container', { where(column: string): Condition }> | undefined;
}

interface Condition {
  sql: string;
  values: readonly Value[];
}

interface EventRow {
  position: number;
  time: number;
  type: EventType;
  account_id: number;
  actor_kind: Actor['kind'];
  actor_id: string | null;
  actor_name: string | null;
  subject_kind: Subject['kind'];
  subject_name: string | null;
  subject_reference: string | null;
  address: string | null;
  request_id: string | null;
  details: string;
}

/**
 * The record of events of all instances. An event is visible when it has its position. Positions have no gaps, and no
 * event gets a position below one that is visible: a reader that remembers the last position misses nothing.
 */
export class Events {
  readonly #database: Database;
  readonly #accountName: (id: number) => Promise<string | undefined>;

  constructor(database: Database, accountName: (id: number) => Promise<string | undefined>) {
    this.#database = database;
    this.#accountName = accountName;
  }

  /**
   * Gives all committed events their positions. IDs do not serve as positions, because a transaction can commit later than
   * one with a greater ID. One caller of all instances does this at a time. Called every second, and before reads.
   */
  async dispatch(): Promise<void> {
    while (await this.#database.get('SELECT id FROM events WHERE position IS NULL LIMIT 1')) {
      await this.#database.transaction(givePositions, { uncached: true });
    }
  }

  /** Events without a position yet; counts up to 10,000. */
  async undispatched(): Promise<number> {
    const row = await this.#database.get<{ events: number }>(
      `SELECT COUNT(*) AS events FROM (SELECT id FROM events WHERE position IS NULL LIMIT ${mostCounted}) AS waiting`,
    );
    return row!.events;
  }

  /** The position of the latest visible event; 0 if there was none. */
  async latest(): Promise<number> {
    const row = await this.#database.get<{ position: number }>('SELECT position FROM event_positions WHERE id = 1');
    return row?.position ?? 0;
  }

  /** Up to `limit` events before the position `before`, the latest first. */
  async listBefore(filter: EventFilter, limit: number, before?: number): Promise<RecordedEvent[]> {
    const { lowest, highest } = await this.#range(filter);
    const rows: EventRow[] = [];
    let end = Math.min(highest + 1, before ?? Infinity);
    while (end > lowest && rows.length < limit) {
      const from = Math.max(lowest, end - window);
      rows.push(...(await this.#read(filter, [from, end], 'DESC', limit - rows.length)));
      end = from;
    }
    return this.#named(rows);
  }

  /** Up to `limit` events after the position `after`, the earliest first. */
  async listAfter(filter: EventFilter, limit: number, after: number): Promise<RecordedEvent[]> {
    const { lowest, highest } = await this.#range(filter);
    const rows: EventRow[] = [];
    let from = Math.max(lowest, after + 1);
    while (from <= highest && rows.length < limit) {
      const end = Math.min(highest + 1, from + window);
      rows.push(...(await this.#read(filter, [from, end], 'ASC', limit - rows.length)));
      from = end;
    }
    return this.#named(rows);
  }

  /**
   * Deletes up to 200 visible events from before `time`, milliseconds since 1970, and none after the position `last`;
   * resolves to their number.
   */
  async deleteSome(time: number, last = Infinity): Promise<number> {
    const rows = await this.#database.select<{ id: number }>(
      `SELECT id FROM events WHERE time < ? AND position <= ? ORDER BY time LIMIT ${batch}`,
      [time, Math.min(last, Number.MAX_SAFE_INTEGER)],
    );
    if (rows.length === 0) return 0;
    const ids = rows.map(({ id }) => id);
    const sql = `DELETE FROM events WHERE id IN (${placeholders(ids)})`;
    return this.#database.transaction((tx) => tx.run(sql, ids), { uncached: true });
  }

  /** The positions that can match the times of `filter`. */
  async #range({ since, until }: EventFilter): Promise<{ lowest: number; highest: number }> {
    const first = await this.#database.get<{ position: number | null }>('SELECT MIN(position) AS position FROM events');
    let lowest = first?.position ?? 1;
    let highest = await this.latest();
    if (since !== undefined) lowest = Math.max(lowest, (await this.#nearest('MIN', 'time >= ?', since)) ?? Infinity);
    if (until !== undefined) highest = Math.min(highest, (await this.#nearest('MAX', 'time < ?', until)) ?? 0);
    return { lowest, highest };
  }

  async #nearest(which: 'MIN' | 'MAX', condition: string, time: number): Promise<number | null> {
    const order = which === 'MIN' ? 'ASC' : 'DESC';
    const row = await this.#database.get<{ position: number | null }>(
      `SELECT ${which}(position) AS position FROM (
         SELECT position FROM events WHERE ${condition} AND position IS NOT NULL ORDER BY time ${order} LIMIT ${aroundTime}
       ) AS near`,
      [time],
    );
    return row!.position;
  }

  async #read(
    filter: EventFilter,
    [from, end]: [from: number, end: number],
    order: 'ASC' | 'DESC',
    limit: number,
  ): Promise<EventRow[]> {
    await nextTurn();
    if (currentCaller()?.gone) throw callerLeft();
    const conditions = [{ sql: 'position >= ? AND position < ?', values: [from, end] }, ...conditionsOf(filter)];
    return this.#database.select<EventRow>(
      `SELECT * FROM events WHERE ${conditions.map(({ sql }) => sql).join(' AND ')} ORDER BY position ${order} LIMIT ?`,
      [...conditions.flatMap(({ values }) => values), limit],
    );
  }

  async #named(rows: readonly EventRow[]): Promise<RecordedEvent[]> {
    const events: RecordedEvent[] = [];
    for (const row of rows) {
      const account = row.account_id === 0 ? undefined : await this.#accountName(row.account_id);
      events.push(toEvent(row, account ?? null));
    }
    return events;
  }
}

/** The lock on the row with the last position makes concurrent callers wait, also those of other instances. */
async function givePositions(tx: Transaction): Promise<void> {
  await tx.insertNew('event_positions', [{ id: 1, position: 0 }]);
  const { position: last } = (await tx.get<{ position: number }>(
    `SELECT position FROM event_positions WHERE id = 1${forUpdate(tx)}`,
  ))!;
  const rows = await tx.select<{ id: number }>(
    `SELECT id FROM events WHERE position IS NULL ORDER BY id LIMIT ${batch}`,
  );
  if (rows.length === 0) return;
  const ids = rows.map(({ id }) => id);
  await tx.run(
    `UPDATE events SET position = CASE id ${ids.map(() => 'WHEN ? THEN ?').join(' ')} END WHERE id IN (${placeholders(ids)})`,
    [...ids.flatMap((id, index) => [id, last + index + 1]), ...ids],
  );
  await tx.run('UPDATE event_positions SET position = ? WHERE id = 1', [last + ids.length]);
}

function conditionsOf({ accountId, type, actor, subject, since, until, names }: EventFilter): Condition[] {
  const conditions: Condition[] = [];
  const add = (sql: string, ...values: Value[]) => conditions.push({ sql, values });
  if (accountId !== undefined) add('account_id = ?', accountId);
  // "/" is the character after ".".
  if (type?.endsWith('.*')) add('type > ? AND type < ?', type.slice(0, -1), type.slice(0, -2).concat('/'));
  else if (type !== undefined && type !== '*') add('type = ?', type);
  if (actor !== undefined) add('(actor_id = ? OR actor_name = ?)', actor, actor);
  if (subject !== undefined) add('subject_key = ?', keyOfSubject(subject));
  if (since !== undefined) add('time >= ?', since);
  if (until !== undefined) add('time < ?', until);
  if (names) {
    const [packages, containers] = [names.package.where('subject_key'), names.container.where('subject_key')];
    add(
      `((subject_kind = 'package' AND ${packages.sql}) OR (subject_kind = 'container' AND ${containers.sql}))`,
      ...packages.values,
      ...containers.values,
    );
  }
  return conditions;
}

function toEvent(row: EventRow, account: string | null): RecordedEvent {
  return {
    position: row.position,
    time: row.time,
    type: row.type,
    accountId: row.account_id,
    account,
    actor: { kind: row.actor_kind, id: row.actor_id, name: row.actor_name },
    subject: { kind: row.subject_kind, name: row.subject_name, reference: row.subject_reference },
    address: row.address,
    requestId: row.request_id,
    details: JSON.parse(row.details) as Details,
  };
}
