import { randomUUID } from 'node:crypto';
import type { Database, Row, Transaction } from '../database/database.ts';
import { DomainError } from '../errors.ts';
import type { Events } from '../events/events.ts';
import type { Deliveries } from './deliveries.ts';
import type { DeliveryRow } from './delivery.ts';
import type { Receivers } from './receivers.ts';
import type { Secrets } from './secrets.ts';
import { newSecret } from './signature.ts';
import { mostWebhooks, parseEvents, toWebhook, type Webhook, type WebhookRow } from './webhook.ts';

/** Milliseconds in which deliveries have also the signature of the secret before. */
const rotationTime = 86_400_000;

export interface NewWebhook {
  url: string;
  events: readonly string[];
  /** Whether it also gets events that concern no account. Only for users with the scope `operate`. */
  operate: boolean;
}

export interface WebhookChange {
  url?: string | undefined;
  events?: readonly string[] | undefined;
  enabled?: boolean | undefined;
  /** Makes a new secret. For a day, deliveries have the signatures of both. */
  rotateSecret?: boolean | undefined;
}

export interface WebhooksParts {
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

  constructor(parts: WebhooksParts) {
    this.#parts = parts;
  }

  /** Only this result and that of a rotation contain the secret. Throws `Invalid`, or `QuotaExceeded`. */
  async create(
    accountId: number,
    { url, events: patterns, operate }: NewWebhook,
  ): Promise<{ webhook: Webhook; secret: string }> {
    const { database, events, secrets, receivers, now } = this.#parts;
    const [id, secret] = [randomUUID(), newSecret()];
    const address = receivers.parse(url);
    const types = parseEvents(patterns);
    await secrets.prepare();
    // So that events of before are not delivered.
    await events.dispatch();
    const since = await events.latest();
    const row: WebhookRow = {
      id,
      account_id: accountId,
      url: address,
      events: JSON.stringify(types),
      enabled: 1,
      disabled_reason: null,
      operate: operate ? 1 : 0,
      secret: secrets.encrypt(id, secret),
      old_secret: null,
      old_until: null,
      since_position: since,
      paused_until: 0,
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
        if (Number(own) >= mostWebhooks) {
          throw new DomainError(
            'QuotaExceeded',
            `An account has at most ${mostWebhooks} webhooks. Delete one that is not needed.`,
          );
        }
        await tx.insertNew('webhook_cursor', [{ id: 1, position: since }]);
        // Without webhooks the cursor does not move.
        if (total === 0) await tx.run('UPDATE webhook_cursor SET position = ? WHERE id = 1', [since]);
        await tx.insert('webhooks', { ...row });
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

  /** Resolves to the webhook, and to its new secret if that was rotated. Throws `Invalid` or `NotFound`. */
  async change(accountId: number, id: string, change: WebhookChange): Promise<{ webhook: Webhook; secret?: string }> {
    const { database, secrets, receivers, now } = this.#parts;
    const set: Row = {};
    if (change.url !== undefined) Object.assign(set, { url: receivers.parse(change.url), paused_until: 0 });
    if (change.events !== undefined) set['events'] = JSON.stringify(parseEvents(change.events));
    if (change.enabled !== undefined) {
      Object.assign(set, { enabled: change.enabled ? 1 : 0, disabled_reason: null, paused_until: 0 });
    }
    const secret = change.rotateSecret ? newSecret() : undefined;
    if (secret !== undefined) await secrets.prepare();
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
      },
      { uncached: true },
    );
    return { webhook: await this.get(accountId, id), ...(secret !== undefined && { secret }) };
  }

  /** Nothing more is sent. Its deliveries are deleted later. Throws `NotFound`. */
  async delete(accountId: number, id: string): Promise<void> {
    const { database, now } = this.#parts;
    await database.transaction(
      async (tx) => {
        // Creations wait for this lock, too.
        await tx.run('UPDATE webhook_key SET id = 1 WHERE id = 1');
        const deleted = await tx.run(
          `UPDATE webhooks SET deleted_at = ?, secret = '', old_secret = NULL
           WHERE id = ? AND account_id = ? AND deleted_at IS NULL`,
          [now(), id, accountId],
        );
        if (deleted === 0) throw notFound();
        await forgetKey(tx);
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
    await this.#resume(id);
    await deliveries.repeat([found]);
    return (await deliveries.get(id, deliveryId)) ?? found;
  }

  /** Makes all deliveries since a time due now; resolves to their number. Throws `NotFound`. */
  async redeliverSince(accountId: number, id: string, since: number): Promise<number> {
    await this.row(accountId, id);
    await this.#resume(id);
    return this.#parts.deliveries.repeatSince(id, since);
  }

  /** Ends a pause that the receiver asked for. */
  async #resume(id: string): Promise<void> {
    const sql = 'UPDATE webhooks SET paused_until = 0 WHERE id = ?';
    await this.#parts.database.transaction((tx) => tx.run(sql, [id]), { uncached: true });
  }
}

/** Without webhooks there are no secrets, so another key can be used. */
async function forgetKey(tx: Transaction): Promise<void> {
  const rest = await tx.get('SELECT id FROM webhooks WHERE deleted_at IS NULL LIMIT 1');
  if (!rest) await tx.run('DELETE FROM webhook_key WHERE id = 1');
}

function noDelivery(): DomainError {
  return new DomainError('NotFound', 'The webhook has no such delivery. Deliveries are kept for 14 days.');
}

function notFound(): DomainError {
  return new DomainError('NotFound', 'This account has no webhook with this ID.');
}
