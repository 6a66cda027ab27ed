import { protocolWords } from '../config/protocols.ts';
import type { Actor } from '../runtime/caller.ts';

/** All types of events. */
export const eventTypes = [
  'package.published',
  'package.unlisted',
  'package.relisted',
  'package.deleted',
  'package.deprecated',
  'package.undeprecated',
  'advisory.created',
  'advisory.deleted',
  'image.pushed',
  'tag.deleted',
  'manifest.deleted',
  'token.created',
  'token.revoked',
  'publisher.created',
  'publisher.updated',
  'publisher.deleted',
  'claim.released',
  'account.created',
  'session.ended',
  'webhook.created',
  'webhook.updated',
  'webhook.deleted',
  'webhook.redelivered',
  'job.started',
  'job.cancelled',
  'storage.adopted',
  'storage.cleaned',
  'sign_in.failed',
  'upstream.opened',
  'upstream.closed',
  'upstream.digest_mismatch',
  'upstream.entry_dropped',
  'limit.reached',
] as const;
export type EventType = (typeof eventTypes)[number];

export const subjectKinds = [
  ...protocolWords.map(({ kind }) => kind),
  'token',
  'upstream',
  'account',
  'session',
  'webhook',
  'job',
  'storage',
];

/** What an event is about. */
export interface Subject {
  kind: string;
  /** Null for a token that is unknown. */
  name: string | null;
  /** The version of a package; the tag or digest of an image. */
  reference?: string | null | undefined;
}

/** Facts of an event as JSON, with names in snake_case. No secret may be in them. */
export type Details = Readonly<Record<string, unknown>>;

/** An event that is being recorded. */
export interface NewEvent {
  type: EventType;
  /** 0 for an event that concerns no account: only the scope `operate` sees it. */
  accountId: number;
  subject: Subject;
  details?: Details | undefined;
}

/** A recorded event. Its position is its place in the record: greater than those of all events that readers saw before. */
export interface RecordedEvent extends NewEvent {
  position: number;
  /** Milliseconds since 1970 UTC. */
  time: number;
  /** The name of the account; null for an event that concerns no account. */
  account: string | null;
  actor: Actor;
  address: string | null;
  requestId: string | null;
  details: Details;
}

/** An event as readers get it, in `/v1/audit`, from `entrepot audit` and in webhooks. */
export interface EventItem {
  id: string;
  /** RFC 3339, UTC. */
  time: string;
  type: EventType;
  account: string | null;
  actor: Actor;
  subject: { kind: Subject['kind']; name: string | null; version?: string; reference?: string };
  address: string | null;
  request_id: string | null;
  details: Record<string, unknown>;
}

export function itemOf(event: RecordedEvent): EventItem {
  const { kind, name, reference } = event.subject;
  const part = kind === 'package' ? 'version' : 'reference';
  return {
    id: String(event.position),
    time: new Date(event.time).toISOString(),
    type: event.type,
    account: event.account,
    actor: event.actor,
    subject: { kind, name, ...(typeof reference === 'string' && { [part]: reference }) },
    address: event.address,
    request_id: event.requestId,
    details: { ...event.details },
  };
}

/** A type, a group of types such as `package.*`, or `*` for all. */
const typePattern = /^(?:\*|[a-z_]{1,20}\.(?:\*|[a-z_]{1,20}))$/;

/** Whether `pattern`, which matches `typePattern`, stands for any type. */
export function isKnownPattern(pattern: string): boolean {
  return typePattern.test(pattern) && eventTypes.some((type) => matchesType(pattern, type));
}

/** Whether `pattern` stands for `type`. */
export function matchesType(pattern: string, type: EventType): boolean {
  if (pattern === '*') return true;
  return pattern.endsWith('.*') ? type.startsWith(pattern.slice(0, -1)) : type === pattern;
}
