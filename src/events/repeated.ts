import { currentOrigin, type Origin } from '../runtime/caller.ts';
import type { Database } from '../database/database.ts';
import type { EventType, NewEvent } from './event.ts';
import { recordFrom } from './record.ts';

/** Milliseconds in which repetitions become one event; 0 for the others, which wait only for the next flush. */
const periods: Partial<Record<EventType, number>> = {
  'sign_in.failed': 60_000,
  'limit.reached': 60_000,
  'policy.refused': 60_000,
  'upstream.digest_mismatch': 60_000,
};

/**
 * Most different events of a type in memory. Further ones are counted together, without their addresses and details: first as many
 * names, then all of an account.
 */
const maxKept = 1000;
/** Events that are written in one transaction. */
const batch = 100;

interface Kept {
  event: NewEvent;
  origin: Origin;
  count: number;
  /** Milliseconds since 1970. */
  first: number;
  last: number;
}

/**
 * Events without a change in the database, such as failed sign-ins. A client can repeat them as often as it likes, so
 * repetitions are counted in memory, and each period gets one event with the count. A process that is killed loses
 * at most the last period.
 */
export class RepeatedEvents {
  readonly #database: Database;
  readonly #now: () => number;
  readonly #clientOf: (address: string) => string;
  /** By what repetitions have in common; in the order of the last ones. */
  readonly #kept = new Map<string, Kept>();

  /** Addresses for which `clientOf` returns the same are those of one client. */
  constructor(database: Database, now: () => number, clientOf: (address: string) => string = (address) => address) {
    this.#database = database;
    this.#now = now;
    this.#clientOf = clientOf;
  }

  /**
   * Notes an event; the next flush after its period writes it. Repetitions have the same type, account, subject and
   * client. The address and the details are those of the first. `origin` is that of the running code if it is left out.
   */
  note(event: NewEvent, origin = currentOrigin()): void {
    const { type, accountId, subject } = event;
    const { kind, name } = subject;
    const now = this.#now();
    const times = { count: 1, first: now, last: now };
    const client = origin.address === null ? null : this.#clientOf(origin.address);
    const key = JSON.stringify([type, accountId, subject, client]);
    if (this.#hasRoom(key, type, maxKept)) {
      this.#add(key, { event, origin, ...times });
      return;
    }
    const shortKey = (known: string | null) => JSON.stringify([type, accountId, kind, known]);
    const kept = this.#hasRoom(shortKey(name), type, 2 * maxKept) ? name : null;
    this.#add(shortKey(kept), {
      event: { type, accountId, subject: { kind, name: kept } },
      origin: { ...origin, address: null, requestId: null },
      ...times,
    });
  }

  /** Whether the event is in memory, or fewer than `max` of its type are. */
  #hasRoom(key: string, type: EventType, max: number): boolean {
    if (this.#kept.has(key)) return true;
    let count = 0;
    for (const { event } of this.#kept.values()) if (event.type === type) count += 1;
    return count < max;
  }

  /** Writes the events whose period is over; with `all`, all of them. Those that cannot be written are kept. */
  async flush(all = false): Promise<void> {
    const now = this.#now();
    // After the clock was set back, the end of a period may be too far away.
    const isDue = ({ event, first }: Kept) => all || now < first || now - first >= (periods[event.type] ?? 0);
    for (;;) {
      const some = [...this.#kept].filter(([, each]) => isDue(each)).slice(0, batch);
      if (some.length === 0) return;
      for (const [key] of some) this.#kept.delete(key);
      const due = some.map(([, each]) => each);
      try {
        await this.#database.transaction(
          async (tx) => {
            for (const each of due) await recordFrom(tx, counted(each), each.last, each.origin);
          },
          { uncached: true },
        );
      } catch (error) {
        // The commit may have succeeded all the same. Twice is better than never.
        for (const [key, each] of some) this.#add(key, each);
        throw error;
      }
    }
  }

  #add(key: string, added: Kept): void {
    const before = this.#kept.get(key);
    this.#kept.delete(key);
    if (!before) {
      this.#kept.set(key, added);
      return;
    }
    this.#kept.set(key, {
      ...before,
      count: before.count + added.count,
      first: Math.min(before.first, added.first),
      last: Math.max(before.last, added.last),
    });
  }
}

function counted({ event, count, first }: Kept): NewEvent {
  return { ...event, details: { ...event.details, count, since: new Date(first).toISOString() } };
}
