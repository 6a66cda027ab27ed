/** Milliseconds. */
const min = 1000;
const max = 60_000;

/** A time in which requests are refused after a failure. */
export interface Pause {
  /** The reason, for the operator. */
  reason: string;
  /** Failures in a row; those of requests that overlap count once. */
  failures: number;
  /** Begin and end, milliseconds since 1970 UTC. */
  from: number;
  until: number;
  /** Its number in the order of events: a request with a smaller number began before it. */
  sequence: number;
}

/** A failure that begins or extends a pause. */
export interface Failed {
  reason: string;
  now: number;
  /** The numbers of the request's begin and of its failure in the order of events. Left out if requests do not overlap. */
  began?: number;
  sequence?: number;
  /** The pause that the upstream asked for, milliseconds. */
  retryAfter?: number;
}

/**
 * The pause after a failure: 1 s, doubled with each failure up to a minute, or the pause that the upstream asked for if
 * that is longer. Failures of overlapping requests count once.
 */
export function pauseAfter(previous: Pause | undefined, failed: Failed): Pause {
  const { reason, now, began = Infinity, sequence = 0, retryAfter = 0 } = failed;
  const together = previous !== undefined && began < previous.sequence;
  const failures = together ? previous.failures : (previous?.failures ?? 0) + 1;
  const own = together ? 0 : Math.min(max, min * 2 ** Math.min(failures - 1, 6));
  // After the clock was set back, the end of the previous pause is too far away.
  const extended = together && previous.from <= now ? previous.until : 0;
  const until = Math.max(extended, now + Math.max(own, retryAfter));
  return { reason, failures, from: now, until, sequence };
}

/** Milliseconds until the end of a pause, 0 for none. A clock that was set back ends the pause. */
export function remaining(pause: Pause | undefined, now: number): number {
  return pause === undefined || now < pause.from ? 0 : Math.max(0, pause.until - now);
}
