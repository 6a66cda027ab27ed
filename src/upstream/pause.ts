const shortest = 1000;
const longest = 60_000;

/** A time in which something that failed is not asked for. */
export interface Pause {
  /** Why, in words for an operator. */
  reason: string;
  /** Failures in a row; those that came together count once. */
  failures: number;
  /** From when and until when, milliseconds by the clock. */
  from: number;
  until: number;
  /** Its place in the order of events: a request of a smaller number was under way before. */
  turn: number;
}

/** What a request that failed says. */
export interface Failed {
  reason: string;
  now: number;
  /** The place of the request's beginning and of its failure in the order of events; for requests that may overlap. */
  began?: number;
  turn?: number;
  /** How long the upstream asked to be left alone, milliseconds. */
  retryAfter?: number;
}

/**
 * The pause after a failure: 1 s, doubled each time to a minute, or as long as the upstream asked where that is longer.
 * Requests that were under way together and fail together count once.
 */
export function pauseAfter(previous: Pause | undefined, failed: Failed): Pause {
  const { reason, now, began = Infinity, turn = 0, retryAfter = 0 } = failed;
  const together = previous !== undefined && began < previous.turn;
  const failures = together ? previous.failures : (previous?.failures ?? 0) + 1;
  const own = together ? 0 : Math.min(longest, shortest * 2 ** Math.min(failures - 1, 6));
  const until = Math.max(together ? previous.until : 0, now + Math.max(own, retryAfter));
  return { reason, failures, from: now, until, turn };
}

/** Milliseconds that are left of a pause, 0 for none. A clock that was set back ends it. */
export function restOf(pause: Pause | undefined, now: number): number {
  return pause === undefined || now < pause.from ? 0 : Math.max(0, pause.until - now);
}
