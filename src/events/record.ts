import { currentOrigin, type Origin } from '../runtime/caller.ts';
import type { Database, Transaction } from '../database/database.ts';
import type { NewEvent } from './event.ts';

/**
 * Records an event in the transaction of its change: both are committed, or none. The actor, the address and the request
 * are those of the running code. Readers see the event when it has its position. `now` is in milliseconds since 1970.
 */
export function recordEvent(tx: Transaction, event: NewEvent, now: number): Promise<void> {
  return recordFrom(tx, event, now, currentOrigin());
}

/** As `recordEvent`, for a change outside of the database. */
export async function recordOutside(database: Database, event: NewEvent, now: number): Promise<void> {
  await database.transaction((tx) => recordEvent(tx, event, now), { uncached: true });
}

/** As `recordEvent`, for an event with another origin than the running code. */
export async function recordFrom(
  tx: Transaction,
  { type, accountId, subject, details }: NewEvent,
  now: number,
  { actor, address, requestId }: Origin,
): Promise<void> {
  const name = short(subject.name);
  await tx.insert('events', {
    time: now,
    type,
    account_id: accountId,
    actor_kind: actor.kind,
    actor_id: short(actor.id),
    actor_name: short(actor.name),
    subject_kind: subject.kind,
    subject_name: name,
    subject_key: name && keyOfSubject(name),
    subject_reference: short(subject.reference ?? null),
    address: short(address, 64),
    request_id: short(requestId, 64),
    details: JSON.stringify(details ?? {}),
  });
}

/** Names are compared without letter case. */
export function keyOfSubject(name: string): string {
  return short(name.toLowerCase())!;
}

/** A text that is too long for its column is cut: it must not make the change itself fail. */
function short(text: string | null, length = 255): string | null {
  return text === null ? null : text.slice(0, length);
}
