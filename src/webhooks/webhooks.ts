import { randomUUID } from 'node:crypto';
import { forUpdate, type Database, type Row, type Transaction } from '../database/database.ts';
import type { Patterns } from '../accounts/names.ts';
import { typed } from '../runtime/command-name.ts';
import { DomainError } from '../runtime/errors.ts';
import type { Details } from '../events/event.ts';
import type { Events } from '../events/events.ts';
import { recordEvent } from '../events/record.ts';
import type { Deliveries } from './deliveries.ts';
import type { DeliveryRow } from './delivery.ts';
import type { Receivers } from './receivers.ts';
import type { Secrets } from './secrets.ts';
import { newSecret } from './signature.ts';
import {
  eventOf,
  factsOf,
  maxWebhooks,
  parseEvents,
  parseWebhookName,
  storedPatterns,
  toWebhook,
  type Webhook,
  type WebhookRow,
} from './webhook.ts';

/** Milliseconds in which deliveries have also the signature of the secret before. */
const rotationTime = 86_400_000;
/** Webhooks that one transaction disables or enables. */
const changedAtOnce = 100;

export interface NewWebhook {
  name?: string | undefined;
  url: string;
  events: readonly string[];
  patterns?: Patterns | null | undefined;
  /** Whether it also gets events that concern no account. Only for users with the scope `operate`. */
  operate: boolean;
}

export interface WebhookChange {
  name?: string | undefined;
  url?: string | undefined;
  events?: readonly string[] | undefined;
  /** Null for all names. */
  patterns?: Patterns | null | undefined;
  enabled?: boolean | undefined;
  /** Makes a new secret. For a day, deliveries have the signatures of both. */
  rotateSecret?: boolean | undefined;
}

interface WebhooksParts {
  database: Database;
  events: Events;
  deliveries: Deliveries;
  secrets: Secrets;
  receivers: Receivers;
  now: () => number;
}

/** The webhooks of accounts. A webhook of another account is "not found". */
export class Webhooks {
  readonly #parts: WebhooksParts;
  /** The accounts for which all deliveries since a time are being made due. */
  readonly #redelivering = new Set<number>();

  constructor(parts: WebhooksParts) {
    this.#parts = parts;
  }

  /** Only this result and that of a rotation contain the secret. Throws `Invalid`, `QuotaExceeded` or `KeyUnavailable`. */
  async create(
    accountId: number,
    { name = '', url, events: wanted, patterns, operate }: NewWebhook,
  ): Promise<{ webhook: Webhook; secret: string }> {
    const { database, events, secrets, receivers, now } = this.#parts;
    const [id, secret] = [randomUUID(), newSecret()];
    const address = receivers.parse(url);
    const types = parseEvents(wanted);
    await secrets.prepare();
    // So that events of before are not delivered.
    await events.dispatch();
    const since = await events.latest();
    const row: WebhookRow = {
      id,
      account_id: accountId,
      name: parseWebhookName(name),
      url: address,
      events: JSON.stringify(types),
      patterns: storedPatterns(patterns),
      enabled: 1,
      disabled_reason: null,
      operate: operate ? 1 : 0,
      secret: secrets.encrypt(id, secret),
      old_secret: null,
      old_until: null,
      since_position: since,
      paused_until: 0,
      failing_since: null,
      created_at: now(),
      deleted_at: null,
    };
    await database.transaction(
      async (tx) => {
        // The lock on its row makes concurrent creations wait.
        await secrets.claim(tx);
        const { total, own } = (await tx.get<{ total: number; own: number | string | null }>(
          'SELECT COUNT(*) AS total, SUM(account_id = ?) AS own FROM webhooks WHERE deleted_at IS NULL',
          [accountId],
        ))!;
        if (Number(own) >= maxWebhooks) {
          throw new DomainError(
            'QuotaExceeded',
            `An account has at most ${maxWebhooks} webhooks. Delete one that is not needed.`,
          );
        }
        await tx.insertNew('webhook_cursor', [{ id: 1, position: since }]);
        // Without webhooks the cursor does not move.
        if (total === 0) await tx.run('UPDATE webhook_cursor SET position = ? WHERE id = 1', [since]);
        await tx.insert('webhooks', { ...row });
        await recordEvent(tx, eventOf('webhook.created', row, factsOf(row)), row.created_at);
      },
      { uncached: true },
    );
    return { webhook: toWebhook(row), secret };
  }

  /** Up to `limit` webhooks of the account in the order of creation, after `cursor` (`created_at`, `id`). */
  async list(accountId: number, limit: number, cursor?: readonly [number, string]): Promise<Webhook[]> {
    const [createdAt, id] = cursor ?? [-1, ''];
    const rows = await this.#parts.database.select<WebhookRow>(
      `SELECT * FROM webhooks WHERE account_id = ? AND deleted_at IS NULL
       AND (created_at > ? OR (created_at = ? AND id > ?)) ORDER BY created_at, id LIMIT ?`,
      [accountId, createdAt, createdAt, id, limit],
    );
    return rows.map(toWebhook);
  }

  /** Throws `NotFound` if the account does not have it. */
  async get(accountId: number, id: string): Promise<Webhook> {
    return toWebhook(await this.row(accountId, id));
  }

  /** As `get`, with its encrypted secrets. */
  async row(accountId: number, id: string): Promise<WebhookRow> {
    const sql = 'SELECT * FROM webhooks WHERE id = ? AND account_id = ? AND deleted_at IS NULL';
    const row = await this.#parts.database.get<WebhookRow>(sql, [id, accountId]);
    if (!row) throw notFound();
    return row;
  }

  /**
   * Resolves to the webhook, and to its new secret if that was rotated. Throws `Invalid`, `NotFound` or, for a rotation and
   * for enabling, `KeyUnavailable`.
   */
  async change(accountId: number, id: string, change: WebhookChange): Promise<{ webhook: Webhook; secret?: string }> {
    const { database, secrets, receivers, now } = this.#parts;
    const set: Row = {};
    if (change.name !== undefined) set['name'] = parseWebhookName(change.name);
    if (change.url !== undefined) {
      Object.assign(set, { url: receivers.parse(change.url), paused_until: 0, failing_since: null });
    }
    if (change.events !== undefined) set['events'] = JSON.stringify(parseEvents(change.events));
    if (change.patterns !== undefined) set['patterns'] = storedPatterns(change.patterns);
    if (change.enabled !== undefined) {
      Object.assign(set, { enabled: change.enabled ? 1 : 0, disabled_reason: null, paused_until: 0 });
    }
    const secret = change.rotateSecret ? newSecret() : undefined;
    // Without the key, an enabled webhook would send nothing, and would not say why.
    if (secret !== undefined || change.enabled) await secrets.prepare();
    await database.transaction(
      async (tx) => {
        const all: Row = { ...set };
        if (secret !== undefined) {
          await secrets.claim(tx);
          const sql = 'SELECT secret FROM webhooks WHERE id = ? AND account_id = ? AND deleted_at IS NULL';
          const before = await tx.get<{ secret: string }>(sql, [id, accountId]);
          if (!before) throw notFound();
          all['old_secret'] = before.secret;
          all['old_until'] = now() + rotationTime;
          all['secret'] = secrets.encrypt(id, secret);
        }
        const columns = Object.keys(all);
        if (columns.length === 0) return;
        const sql = `UPDATE webhooks SET ${columns.map((column) => `${column} = ?`).join(', ')}
          WHERE id = ? AND account_id = ? AND deleted_at IS NULL`;
        if ((await tx.run(sql, [...Object.values(all), id, accountId])) === 0) throw notFound();
        const changed = ['name', 'url', 'events', 'patterns', 'enabled', 'secret'].filter((each) => each in all);
        const row = (await tx.get<WebhookRow>('SELECT * FROM webhooks WHERE id = ?', [id]))!;
        await recordEvent(tx, eventOf('webhook.updated', row, { changed, ...factsOf(row) }), now());
      },
      { uncached: true },
    );
    return { webhook: await this.get(accountId, id), ...(secret !== undefined && { secret }) };
  }

  /** Nothing more is sent. Its deliveries are deleted later. Throws `NotFound`. */
  async delete(accountId: number, id: string): Promise<void> {
    const { database, secrets, now } = this.#parts;
    await database.transaction(
      async (tx) => {
        await secrets.hold(tx);
        const deleted = await tx.run(
          `UPDATE webhooks SET deleted_at = ?, secret = '', old_secret = NULL
           WHERE id = ? AND account_id = ? AND deleted_at IS NULL`,
          [now(), id, accountId],
        );
        if (deleted === 0) throw notFound();
        await secrets.release(tx);
        await recordEvent(tx, eventOf('webhook.deleted', { id, account_id: accountId }), now());
      },
      { uncached: true },
    );
  }

  /** Up to `limit` deliveries before the number `before`, the latest first. Throws `NotFound`. */
  async deliveries(accountId: number, id: string, limit: number, before?: number): Promise<DeliveryRow[]> {
    await this.row(accountId, id);
    return this.#parts.deliveries.list(id, limit, before);
  }

  /** A delivery with its body. Throws `NotFound`. */
  async delivery(accountId: number, id: string, deliveryId: string): Promise<DeliveryRow> {
    await this.row(accountId, id);
    const found = await this.#parts.deliveries.withBody(id, deliveryId);
    if (!found) throw noDelivery();
    return found;
  }

  /** Makes a delivery due now, with all attempts. Throws `NotFound`. */
  async redeliver(accountId: number, id: string, deliveryId: string): Promise<DeliveryRow> {
    const { deliveries } = this.#parts;
    await this.row(accountId, id);
    const found = await deliveries.get(id, deliveryId);
    if (!found) throw noDelivery();
    await this.#resume(accountId, id, { delivery: deliveryId });
    await deliveries.repeat(found.number);
    return (await deliveries.get(id, deliveryId)) ?? found;
  }

  /**
   * Makes all deliveries since a time due now; resolves to their number. One call of an account works at a time. Throws
   * `NotFound` or `TooManyRequests`.
   */
  async redeliverSince(accountId: number, id: string, since: number): Promise<number> {
    await this.row(accountId, id);
    if (this.#redelivering.has(accountId)) {
      throw new DomainError(
        'TooManyRequests',
        'This account is making deliveries of a webhook due again. Try again when that has ended.',
        { retryAfter: 5 },
      );
    }
    this.#redelivering.add(accountId);
    try {
      await this.#resume(accountId, id, { since: new Date(since).toISOString() });
      return await this.#parts.deliveries.repeatSince(id, since);
    } finally {
      this.#redelivering.delete(accountId);
    }
  }

  /**
   * Disables all webhooks, because their secrets cannot be decrypted, or enables those that were disabled for that reason.
   * Resolves to the number of webhooks that changed.
   */
  async setDecryptable(isDecryptable: boolean): Promise<number> {
    const { database, now } = this.#parts;
    const enabled = isDecryptable ? 1 : 0;
    const reason = isDecryptable ? null : keyReason;
    const change = async (tx: Transaction) => {
      const rows = await tx.select<WebhookRow>(
        `SELECT * FROM webhooks WHERE deleted_at IS NULL AND ${isDecryptable ? 'disabled_reason LIKE ?' : 'enabled = ?'}
         ORDER BY id LIMIT ${changedAtOnce}${forUpdate(tx)}`,
        [isDecryptable ? `${noKey}%` : 1],
      );
      for (const row of rows) {
        await tx.run('UPDATE webhooks SET enabled = ?, disabled_reason = ? WHERE id = ?', [enabled, reason, row.id]);
        const facts = factsOf({ ...row, enabled, disabled_reason: reason });
        await recordEvent(tx, eventOf('webhook.updated', row, { changed: ['enabled'], ...facts }), now());
      }
      return rows.length;
    };
    for (let total = 0; ;) {
      const changed = await database.transaction(change, { uncached: true });
      total += changed;
      if (changed < changedAtOnce) return total;
    }
  }

  /** Ends a pause that the receiver asked for, and records what is delivered again. */
  async #resume(accountId: number, id: string, details: Details): Promise<void> {
    const { database, now } = this.#parts;
    await database.transaction(
      async (tx) => {
        await tx.run('UPDATE webhooks SET paused_until = 0 WHERE id = ?', [id]);
        await recordEvent(tx, eventOf('webhook.redelivered', { id, account_id: accountId }, details), now());
      },
      { uncached: true },
    );
  }
}

/** How every reason about the key begins; what follows differs between versions. */
const noKey = 'its secret cannot be decrypted, because the key of the setting secretKeyFile is missing or another one';
/** Why webhooks are disabled whose secrets cannot be decrypted. At most 255 characters. */
const keyReason = `${noKey}; an operator has to put the key back ("${typed('doctor')}" says what to do if it is lost)`;

function noDelivery(): DomainError {
  return new DomainError('NotFound', 'The webhook has no such delivery. Deliveries are kept for 14 days.');
}

function notFound(): DomainError {
  return new DomainError('NotFound', 'This account has no webhook with this ID.');
}
