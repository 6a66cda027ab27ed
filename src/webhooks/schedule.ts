const second = 1000;
const minute = 60 * second;
const hour = 60 * minute;

/** Milliseconds before each attempt, after the one before. */
const delays = [0, 5 * second, 5 * minute, 30 * minute, ...[2, 5, 10, 14, 20, 24].map((hours) => hours * hour)];

/** Attempts of a delivery. */
export const maxAttempts = delays.length;
/** Longest pause that a receiver can ask for. */
const maxPause = 24 * hour;

/** Milliseconds until the next attempt after `attempts` failed ones; undefined if there is none. */
export function delayAfter(attempts: number): number | undefined {
  return delays[attempts];
}

/** The milliseconds that the header `Retry-After` asks for (RFC 9110, 10.2.3), at most a day; 0 if it is malformed. */
export function pauseOf(header: string | undefined, now: number): number {
  if (header === undefined) return 0;
  const milliseconds = /^\d{1,10}$/.test(header) ? Number(header) * second : Date.parse(header) - now;
  return Number.isNaN(milliseconds) ? 0 : Math.min(Math.max(0, milliseconds), maxPause);
}
