import { protocolWords } from '../config/protocols.ts';
import type { Actor } from '../runtime/caller.ts';

/** All types of events, and what happened, as people read it. */
export const eventTexts = {
  'package.published': 'a version was published',
  'package.unlisted': 'a version was unlisted',
  'package.relisted': 'a version was listed again',
  'package.deleted': 'a version was deleted',
  'package.restored': 'a deleted version was restored',
  'package.purged': 'a deleted version was deleted for good',
  'package.deprecated': 'versions were deprecated',
  'package.undeprecated': 'versions are no longer deprecated',
  'advisory.created': 'an advisory was added',
  'advisory.deleted': 'an advisory was deleted',
  'image.pushed': 'an image was pushed',
  'tag.deleted': 'a tag was deleted',
  'tag.restored': 'a deleted tag was restored',
  'tag.purged': 'a deleted tag was deleted for good',
  'manifest.deleted': 'an image was deleted by its digest',
  'manifest.restored': 'a deleted image was restored',
  'manifest.purged': 'a deleted image was deleted for good',
  'permanence.changed': 'the rules of what cannot change or be deleted were changed',
  'token.created': 'a token was created',
  'token.revoked': 'a token was revoked',
  'token.limits_changed': 'what an account allows personal tokens was changed',
  'person.disabled': 'a person was disabled',
  'person.enabled': 'a person was let in again',
  'publisher.created': 'a rule for a CI was created',
  'publisher.updated': 'a rule for a CI was changed',
  'publisher.deleted': 'a rule for a CI was deleted',
  'grant.created': 'a grant was added',
  'grant.accepted': 'a grant of another account was accepted',
  'grant.removed': 'a grant was removed',
  'claim.released': 'a name was released',
  'account.created': 'an account was created',
  'account.bills_changed': 'whether images that jobs push get bills of materials was changed',
  'session.ended': 'a session of the console ended',
  'webhook.created': 'a webhook was created',
  'webhook.updated': 'a webhook was changed',
  'webhook.deleted': 'a webhook was deleted',
  'webhook.redelivered': 'a delivery of a webhook was sent again',
  'job.started': 'a job was started',
  'job.cancelled': 'a job was cancelled',
  'storage.adopted': 'another storage was adopted',
  'storage.cleaned': 'the storage was cleaned',
  'sign_in.failed': 'a sign-in failed',
  'upstream.opened': 'an upstream fails: requests to it are paused',
  'upstream.closed': 'an upstream works again',
  'upstream.withdrawn': 'an upstream does not offer stored content any more',
  'upstream.restored': 'an upstream offers withdrawn content again',
  'upstream.republished': 'an upstream sent other content for a version than before',
  'upstream.digest_mismatch': 'an upstream sent content with a wrong digest',
  'upstream.entry_dropped': 'a stored entry of an upstream was dropped',
  'limit.reached': 'a limit was reached',
  'policy.changed': 'the policy for mirrored content was changed',
  'policy.suspended': 'the policy for mirrored content is not enforced for a time',
  'policy.resumed': 'the policy for mirrored content is enforced again',
  'policy.refused': 'the policy refused content that a client requested',
  'waiver.requested': 'a waiver of the policy was requested',
  'waiver.approved': 'a waiver of the policy was approved',
  'waiver.rejected': 'a waiver of the policy was rejected',
  'waiver.expiring': 'a waiver of the policy ends soon',
  'waiver.ended': 'a waiver of the policy has ended',
  'promotion.requested': 'a promotion to an account was requested',
  'promotion.approved': 'content was promoted to another account or name',
  'promotion.rejected': 'a promotion was rejected or withdrawn',
  'promotion.rules_changed': 'the rules for promotions to an account were changed',
  'policy.released': 'a version passed the minimum age, because it fixes a vulnerability',
  'known_bad.refreshed': 'a list of known bad content has changed',
  'known_bad.in_use': 'content that clients use is known to be bad',
  'known_bad.failed': 'a list of known bad content cannot be read',
  'exposure.found': 'content that was pulled before is vulnerable or bad, as is known now',
  'bundle.created': 'a bundle for another installation was made',
  'bundle.imported': 'a bundle of another installation was imported',
  'bundle.receipt': 'a receipt of what is mirrored was written',
  'bundle.key_trusted': 'a key that signs bundles is trusted',
  'bundle.key_removed': 'a key that signs bundles is not trusted any more',
  'bundle.key_revoked': 'a key that signs bundles was revoked, and is never trusted again',
  'takeover.left': 'a name of a server that is replaced was left to the upstreams',
  'takeover.finished': 'the takeover of another server was finished',
} as const;
export type EventType = keyof typeof eventTexts;
export const eventTypes = Object.keys(eventTexts) as EventType[];

export const subjectKinds = [
  ...protocolWords.map(({ kind }) => kind),
  'token',
  'person',
  'upstream',
  'account',
  'session',
  'webhook',
  'job',
  'storage',
  'list',
  'bundle',
  'takeover',
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
