import { Names, parsePatterns, type Patterns } from '../accounts/names.ts';
import { nameKinds } from '../config/protocols.ts';
import { jsonItem } from '../runtime/json-item.ts';
import { DomainError } from '../runtime/errors.ts';
import { isKnownPattern, type Details, type EventType, type NewEvent } from '../events/event.ts';

/** Most webhooks of an account. */
export const maxWebhooks = 20;
/** Characters of a name, and of a URL. */
export const maxNameLength = 100;
export const maxUrlLength = 2000;
/** Patterns of a webhook. */
export const maxEventPatterns = 20;

export interface Webhook {
  id: string;
  accountId: number;
  /** For people; may be empty. */
  name: string;
  url: string;
  /** Types of events, groups such as `package.*`, or `*`. */
  events: readonly string[];
  /** The names of packages and images of which it gets events; null for all. */
  patterns: Patterns | null;
  /** These names; undefined for all. */
  names: Names | undefined;
  enabled: boolean;
  /** Why the server disabled it; null while it is enabled, or if a user disabled it. */
  disabledReason: string | null;
  /** Whether it also gets events that concern no account. */
  operate: boolean;
  /** Since when the latest attempt has failed, in milliseconds since 1970 UTC; null if it succeeded. */
  failingSince: number | null;
  /** Milliseconds since 1970 UTC. */
  createdAt: number;
}

export const webhookStates = ['enabled', 'failing', 'disabled'] as const;

/** Whether it is enabled, and whether its receiver accepts the events. */
export function stateOfWebhook({
  enabled,
  failingSince,
}: Pick<Webhook, 'enabled' | 'failingSince'>): (typeof webhookStates)[number] {
  if (!enabled) return 'disabled';
  return failingSince === null ? 'enabled' : 'failing';
}

export interface WebhookRow {
  id: string;
  account_id: number;
  name: string;
  url: string;
  events: string;
  patterns: string | null;
  enabled: number;
  disabled_reason: string | null;
  operate: number;
  secret: string;
  old_secret: string | null;
  old_until: number | null;
  since_position: number;
  paused_until: number;
  failing_since: number | null;
  created_at: number;
  deleted_at: number | null;
}

export function toWebhook(row: WebhookRow): Webhook {
  const patterns = row.patterns === null ? null : (JSON.parse(row.patterns) as Patterns);
  return {
    id: row.id,
    accountId: row.account_id,
    name: row.name,
    url: row.url,
    events: JSON.parse(row.events) as string[],
    patterns,
    names: patterns ? new Names(patterns) : undefined,
    enabled: row.enabled !== 0,
    disabledReason: row.disabled_reason,
    operate: row.operate !== 0,
    failingSince: row.failing_since,
    createdAt: row.created_at,
  };
}

/** A webhook as readers get it, in `/v1/webhooks` and from `entrepot webhook`. */
export function webhookItem({ accountId: _accountId, names: _names, failingSince, patterns, ...webhook }: Webhook) {
  const since = failingSince === null ? null : new Date(failingSince).toISOString();
  return { ...jsonItem(webhook), events: [...webhook.events], patterns, failing_since: since };
}
export type WebhookItem = ReturnType<typeof webhookItem>;

/** The event of a change of a webhook. The URL can contain a secret, so the subject is the ID. */
export function eventOf(
  type: Extract<EventType, `webhook.${string}`>,
  { id, account_id: accountId }: Pick<WebhookRow, 'id' | 'account_id'>,
  details?: Details,
): NewEvent {
  return { type, accountId, subject: { kind: 'webhook', name: id }, details };
}

/** What the event of a change says of the webhook: of its URL only the host. */
export function factsOf({ url, events, patterns, enabled, disabled_reason: reason, operate }: WebhookRow): Details {
  const facts = { host: new URL(url).host, events: JSON.parse(events) as string[], enabled: enabled !== 0 };
  const names = patterns !== null && { patterns: JSON.parse(patterns) as Patterns };
  return { ...facts, ...names, operate: operate !== 0, ...(reason !== null && { reason }) };
}

/** The name of a webhook without spaces around it; throws `Invalid`. */
export function parseWebhookName(name: string): string {
  const trimmed = name.trim();
  if (trimmed.length <= maxNameLength) return trimmed;
  throw new DomainError('Invalid', `Invalid name of the webhook: expected at most ${maxNameLength} characters.`);
}

/** Checks the patterns of a webhook and removes duplicates; throws `Invalid`. */
export function parseEvents(patterns: readonly string[]): string[] {
  const unique = [...new Set(patterns)];
  if (unique.length === 0 || unique.length > maxEventPatterns) {
    throw wrongEvents(`expected 1 to ${maxEventPatterns} types of events, or * for all.`);
  }
  const unknown = unique.find((each) => !isKnownPattern(each));
  if (unknown === undefined) return unique;
  throw wrongEvents(
    `there is no type "${unknown.slice(0, 50)}". Use types such as package.published, groups such as package.*, or * for all.`,
  );
}

function wrongEvents(message: string): DomainError {
  return new DomainError('Invalid', `events: ${message}`, { detail: { errors: [{ field: 'events', message }] } });
}

/** Whether a webhook gets events about `subject`: only the names of content are limited. */
export function wantsSubject({ names }: Pick<Webhook, 'names'>, { kind, name }: NewEvent['subject']): boolean {
  if (!names || !nameKinds.includes(kind)) return true;
  return name !== null && names.of(kind).includes(name.toLowerCase());
}

/** Patterns as they are stored; throws `Invalid`. */
export function storedPatterns(patterns: Patterns | null | undefined): string | null {
  const parsed = parsePatterns(patterns);
  return parsed && JSON.stringify(parsed);
}
