import { randomUUID } from 'node:crypto';
import { forUpdate, type Database, type Row, type Transaction } from '../database/database.ts';
import { matchesType, type RecordedEvent } from '../events/event.ts';
import type { Events } from '../events/events.ts';
import { recordEvent } from '../events/record.ts';
import { bodyOf } from './cloud-event.ts';
import type { DeliveryAttempt, DeliveryRow } from './delivery.ts';
import { delayAfter, pauseOf } from './schedule.ts';
import { eventOf, factsOf, toWebhook, wantsSubject, type Webhook, type WebhookRow } from './webhook.ts';
import { webhooksIn } from './webhook-rows.ts';

/** Events that are read at once, to turn them into deliveries. */
const batch = 200;
/**
 * Bytes that one transaction inserts, unless one event makes more: SQLite writes all of them in one turn, at the commit. A row has
 * about so many bytes besides its body.
 */
const insertTogether = 500_000;
const bytesOfRow = 300;
/** Rows that one statement inserts. */
const insertAtOnce = 50;
/** Rows that one statement changes. */
const changeAtOnce = 200;
/** Deliveries of a webhook that may wait. Further ones disable it. */
const maxPending = 100_000;
/** Milliseconds that an instance has for an attempt and for recording it. Then any instance may repeat it. */
const leaseTime = 60_000;

/**
 * None of these rows is cached. They may be lost on power failure, because SQLite loses later commits before earlier ones:
 * the events are still there, and a delivery is repeated.
 */
const options = { fleeting: true };

const repeated = "UPDATE webhook_deliveries SET state = 'pending', attempts = 0, next_at = ?";

const listed =
  'number, id, webhook_id, event_position, type, state, attempts, next_at, lease, created_at, attempted_at, duration, status, failure, answer';

/** A delivery that this instance may send until its lease ends. */
export interface Claimed {
  number: number;
  id: string;
  webhookId: string;
  body: string;
  attempts: number;
  lease: string;
}

/** A webhook with deliveries that are due. */
export interface Due {
  webhook: WebhookRow;
  /** When its earliest delivery became due; milliseconds since 1970. */
  since: number;
}

export const deliveryOutcomes = ['delivered', 'retry', 'failed'] as const;
export type DeliveryOutcome = (typeof deliveryOutcomes)[number];

/** The deliveries of all webhooks. A row is made from a committed event, and is sent by one instance at a time. */
export class Deliveries {
  readonly #database: Database;
  readonly #events: Events;
  readonly #now: () => number;
  readonly #source: string;

  constructor(parts: { database: Database; events: Events; now: () => number; source: string }) {
    this.#database = parts.database;
    this.#events = parts.events;
    this.#now = parts.now;
    this.#source = parts.source;
  }

  /** Turns all events with a position into deliveries. A webhook with too many is disabled. */
  async make(): Promise<void> {
    while (await this.#makeSome());
  }

  /** Events up to this position have been turned into deliveries; infinite without webhooks. */
  async cursor(): Promise<number> {
    if (!(await this.#hasWebhooks())) return Infinity;
    return (await this.#readCursor()) ?? Infinity;
  }

  /** Webhooks with deliveries that are due, the earliest first. */
  async due(): Promise<Due[]> {
    const now = this.#now();
    const columns = `webhooks.*, (SELECT MIN(next_at) FROM webhook_deliveries
      WHERE webhook_id = webhooks.id AND state = 'pending') AS due`;
    const found: Due[] = [];
    for await (const row of webhooksIn<WebhookRow & { due: number | null }>(this.#database, columns)) {
      const { due, ...webhook } = row;
      if (webhook.enabled === 0 || webhook.paused_until > now || due === null || due > now) continue;
      found.push({ webhook, since: due });
    }
    return found.sort((a, b) => a.since - b.since);
  }

  /** Takes up to `count` due deliveries of each webhook, which no other instance then gets before their leases end. */
  async claim(wanted: readonly { webhookId: string; count: number }[]): Promise<Claimed[]> {
    const now = this.#now();
    const found: DeliveryRow[] = [];
    for (const { webhookId, count } of wanted) {
      found.push(
        ...(await this.#database.select<DeliveryRow>(
          `SELECT * FROM webhook_deliveries WHERE webhook_id = ? AND state = 'pending' AND next_at <= ?
           ORDER BY next_at, number LIMIT ?`,
          [webhookId, now, count],
        )),
      );
    }
    if (found.length === 0) return [];
    return this.#database.transaction(async (tx) => {
      const claimed: Claimed[] = [];
      // In one order, so that instances do not wait for each other in a circle.
      for (const row of found.toSorted((a, b) => a.number - b.number)) {
        const lease = randomUUID();
        const taken = await tx.run(
          "UPDATE webhook_deliveries SET lease = ?, next_at = ? WHERE number = ? AND state = 'pending' AND next_at = ?",
          [lease, now + leaseTime, row.number, row.next_at],
        );
        const { number, id, webhook_id: webhookId, body, attempts } = row;
        if (taken > 0) claimed.push({ number, id, webhookId, body, attempts, lease });
      }
      return claimed;
    }, options);
  }

  /** Records an attempt, unless another instance has taken the delivery since. `url` is where it was sent. */
  async finish(claimed: Claimed, url: string, attempt: DeliveryAttempt): Promise<DeliveryOutcome> {
    const { at, duration, status, failure, answer } = attempt;
    const now = this.#now();
    const attempts = claimed.attempts + 1;
    const isGone = status === 410;
    const delay = isGone ? undefined : delayAfter(attempts);
    const outcome = failure === null ? 'delivered' : delay === undefined ? 'failed' : 'retry';
    await this.#database.transaction(async (tx) => {
      // A user may have changed the address while the attempt was made: then its outcome says nothing of the new one.
      const receiver = await tx.get('SELECT id FROM webhooks WHERE id = ? AND url = ?', [claimed.webhookId, url]);
      const pause = failure === null || !receiver ? 0 : pauseOf(attempt.retryAfter, now);
      const nextAt = now + Math.max(delay ?? 0, pause);
      await tx.run(
        `UPDATE webhook_deliveries SET state = ?, attempts = ?, next_at = ?, lease = NULL, attempted_at = ?, duration = ?,
         status = ?, failure = ?, answer = ? WHERE number = ? AND lease = ?`,
        [outcome === 'retry' ? 'pending' : outcome, attempts, nextAt, at, duration, status, failure, answer].concat(
          claimed.number,
          claimed.lease,
        ),
      );
      const known = failure === null ? 'failing_since IS NOT NULL' : 'failing_since IS NULL';
      const since = failure === null ? null : at;
      const sql = `UPDATE webhooks SET failing_since = ? WHERE id = ? AND url = ? AND ${known}`;
      await tx.run(sql, [since, claimed.webhookId, url]);
      if (pause > 0) {
        const values = [now + pause, claimed.webhookId, url, now + pause];
        await tx.run('UPDATE webhooks SET paused_until = ? WHERE id = ? AND url = ? AND paused_until < ?', values);
      }
      if (isGone) await disable(tx, claimed.webhookId, 'the receiver answered 410 Gone', url, now);
    }, options);
    return outcome;
  }

  /** Ends the leases of deliveries whose attempts were broken off, so that any instance may send them at once. */
  async release(some: readonly Claimed[]): Promise<void> {
    const now = this.#now();
    await this.#database.transaction(async (tx) => {
      for (const { number, lease } of some) {
        const sql = 'UPDATE webhook_deliveries SET lease = NULL, next_at = ? WHERE number = ? AND lease = ?';
        await tx.run(sql, [now, number, lease]);
      }
    }, options);
  }

  /** Up to `limit` deliveries of a webhook before the number `before`, the latest first; without their bodies. */
  list(webhookId: string, limit: number, before = Number.MAX_SAFE_INTEGER): Promise<DeliveryRow[]> {
    const sql = `SELECT ${listed} FROM webhook_deliveries WHERE webhook_id = ? AND number < ? ORDER BY number DESC LIMIT ?`;
    return this.#database.select<DeliveryRow>(sql, [webhookId, before, limit]);
  }

  get(webhookId: string, id: string): Promise<DeliveryRow | undefined> {
    const sql = `SELECT ${listed} FROM webhook_deliveries WHERE id = ? AND webhook_id = ?`;
    return this.#database.get<DeliveryRow>(sql, [id, webhookId]);
  }

  /** As `get`, with the body of its requests. */
  withBody(webhookId: string, id: string): Promise<DeliveryRow | undefined> {
    const sql = 'SELECT * FROM webhook_deliveries WHERE id = ? AND webhook_id = ?';
    return this.#database.get<DeliveryRow>(sql, [id, webhookId]);
  }

  /** Makes a delivery due again with all attempts, unless it is being sent. */
  async repeat(number: number): Promise<void> {
    const sql = `${repeated} WHERE lease IS NULL AND number = ?`;
    await this.#database.transaction((tx) => tx.run(sql, [this.#now(), number]), options);
  }

  /**
   * As `repeat`, for all deliveries of a webhook that were made at `since` (milliseconds since 1970) or later; resolves to
   * their number. It changes a bounded number of rows at a time.
   */
  async repeatSince(webhookId: string, since: number): Promise<number> {
    const page = `SELECT MAX(number) AS last FROM (
        SELECT number FROM webhook_deliveries WHERE webhook_id = ? AND number > ? ORDER BY number LIMIT ${changeAtOnce}
      ) AS page`;
    const sql = `${repeated} WHERE lease IS NULL AND webhook_id = ? AND number > ? AND number <= ? AND created_at >= ?`;
    let total = 0;
    for (let after = 0; ;) {
      const { last } = (await this.#database.get<{ last: number | null }>(page, [webhookId, after]))!;
      if (last === null) return total;
      const values = [this.#now(), webhookId, after, last, since];
      total += await this.#database.transaction((tx) => tx.run(sql, values), options);
      after = last;
    }
  }

  /** The number of deliveries that wait, of all webhooks. Counts those of one webhook at a time. */
  async pending(): Promise<number> {
    let pending = 0;
    for await (const { id } of webhooksIn(this.#database, 'id')) {
      const sql = "SELECT COUNT(*) AS pending FROM webhook_deliveries WHERE webhook_id = ? AND state = 'pending'";
      pending += (await this.#database.get<{ pending: number }>(sql, [id]))!.pending;
    }
    return pending;
  }

  async #hasWebhooks(): Promise<boolean> {
    return (await this.#database.get('SELECT id FROM webhooks WHERE deleted_at IS NULL LIMIT 1')) !== undefined;
  }

  async #readCursor(): Promise<number | undefined> {
    const row = await this.#database.get<{ position: number }>('SELECT position FROM webhook_cursor WHERE id = 1');
    return row?.position;
  }

  /** Resolves to whether there may be more events. */
  async #makeSome(): Promise<boolean> {
    const cursor = (await this.#hasWebhooks()) ? await this.#readCursor() : undefined;
    if (cursor === undefined) return false;
    const { events } = await this.#events.listAfter({}, batch, cursor);
    for (let rest = events, after = cursor; rest.length > 0;) {
      const made = await this.#database.transaction((tx) => this.#insert(tx, rest, after), options);
      // Another instance does the same.
      if (made === 0) break;
      after = rest[made - 1]!.position;
      rest = rest.slice(made);
    }
    return events.length === batch;
  }

  /** Makes the deliveries of the first ones of `events`, which come after the cursor `after`; resolves to the number of events. */
  async #insert(tx: Transaction, events: readonly RecordedEvent[], after: number): Promise<number> {
    const cursor = await tx.get<{ position: number }>(
      `SELECT position FROM webhook_cursor WHERE id = 1${forUpdate(tx)}`,
    );
    if (cursor?.position !== after) return 0;
    const rows = await tx.select<WebhookRow>('SELECT * FROM webhooks WHERE enabled = 1 AND deleted_at IS NULL');
    const webhooks = rows.map((row) => ({ ...toWebhook(row), since: row.since_position }));
    const now = this.#now();
    const fixed = { state: 'pending', attempts: 0, next_at: now, created_at: now };
    const deliveries: Row[] = [];
    const wanting = new Set<Webhook>();
    let [made, bytes] = [0, 0];
    for (const event of events) {
      const some = webhooks.filter((webhook) => event.position > webhook.since && isFor(webhook, event));
      const { position, type } = event;
      const body = some.length === 0 ? '' : bodyOf(event, this.#source);
      bytes += some.length * (body.length + bytesOfRow);
      if (made > 0 && bytes > insertTogether) break;
      for (const webhook of some) {
        wanting.add(webhook);
        deliveries.push({
          id: randomUUID(),
          webhook_id: webhook.id,
          event_position: position,
          type,
          body,
          ...fixed,
        });
      }
      made += 1;
    }
    for (let from = 0; from < deliveries.length; from += insertAtOnce)
      await tx.insertNew('webhook_deliveries', deliveries.slice(from, from + insertAtOnce));
    for (const webhook of wanting) {
      const beyond = await tx.get(
        `SELECT number FROM webhook_deliveries WHERE webhook_id = ? AND state = 'pending' LIMIT 1 OFFSET ${maxPending}`,
        [webhook.id],
      );
      if (beyond) await disable(tx, webhook.id, `more than ${maxPending} deliveries waited`, webhook.url, now);
    }
    await tx.run('UPDATE webhook_cursor SET position = ? WHERE id = 1', [events[made - 1]!.position]);
    return made;
  }
}

/** A webhook gets no events about itself. */
function isFor(webhook: Webhook, event: RecordedEvent): boolean {
  const { id, accountId, operate, events } = webhook;
  if (event.subject.kind === 'webhook' && event.subject.name === id) return false;
  const isOwn = event.accountId === 0 ? operate : event.accountId === accountId;
  return isOwn && events.some((pattern) => matchesType(pattern, event.type)) && wantsSubject(webhook, event.subject);
}

/** Does nothing if it is disabled already, or if a user has changed its address since. */
async function disable(tx: Transaction, id: string, reason: string, url: string, now: number): Promise<void> {
  const sql = 'UPDATE webhooks SET enabled = 0, disabled_reason = ? WHERE id = ? AND url = ? AND enabled = 1';
  if ((await tx.run(sql, [reason, id, url])) === 0) return;
  const row = (await tx.get<WebhookRow>('SELECT * FROM webhooks WHERE id = ?', [id]))!;
  await recordEvent(tx, eventOf('webhook.updated', row, { changed: ['enabled'], ...factsOf(row) }), now);
}
