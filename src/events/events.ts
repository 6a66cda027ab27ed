import { forUpdate, placeholders, type Database, type Transaction } from '../database/database.ts';
import type { Details, RecordedEvent } from './event.ts';
import { isByTime, readEvents, type EventFilter, type EventKey, type EventOrder, type EventRow } from './event-list.ts';

/** Events that get their positions in one transaction, and that are deleted in one. */
const batch = 200;
const maxCounted = 10_000;

/** A part of a list of events. */
export interface EventPage {
  events: RecordedEvent[];
  /** The place after which the next page begins; undefined after the last one. A page with it can be short, also empty. */
  next: EventKey | undefined;
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
      `SELECT COUNT(*) AS events FROM (SELECT id FROM events WHERE position IS NULL LIMIT ${maxCounted}) AS waiting`,
    );
    return row!.events;
  }

  /** The position of the latest visible event; 0 if there was none. */
  async latest(): Promise<number> {
    const row = await this.#database.get<{ position: number }>('SELECT position FROM event_positions WHERE id = 1');
    return row?.position ?? 0;
  }

  /** Up to `limit` events after the place `from`, the latest first: in the order of times if the filter has times. */
  listBefore(filter: EventFilter, limit: number, from?: EventKey): Promise<EventPage> {
    return this.#page(filter, { byTime: isByTime(filter), latestFirst: true }, limit, from);
  }

  /** As `listBefore`, the earliest first. */
  listFrom(filter: EventFilter, limit: number, from?: EventKey): Promise<EventPage> {
    return this.#page(filter, { byTime: isByTime(filter), latestFirst: false }, limit, from);
  }

  /** Up to `limit` events after the position `after`, in the order of positions. */
  listAfter(filter: EventFilter, limit: number, after: number): Promise<EventPage> {
    return this.#page(filter, { byTime: false, latestFirst: false }, limit, [0, after]);
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

  async #page(filter: EventFilter, order: EventOrder, limit: number, from?: EventKey): Promise<EventPage> {
    const { rows, next } = await readEvents(this.#database, filter, order, limit, from);
    return { events: await this.#named(rows), next };
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
