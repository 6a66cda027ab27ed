import { DomainError } from './errors.ts';

const day = 86_400_000;

/**
 * The last millisecond of a day in UTC, which is written as in `2026-09-01`. Throws `Invalid` for another text and for a day in the
 * future.
 */
export function endOfDay(text: string, now: number): number {
  const start = /^\d{4}-\d\d-\d\d$/.test(text) ? Date.parse(`${text}T00:00:00Z`) : NaN;
  // Some engines read 2026-02-30 as a day in March.
  if (Number.isNaN(start) || dayText(start) !== text) {
    throw new DomainError('Invalid', `"${text.slice(0, 20)}" is not a date. Write it as in as-of/2026-09-01.`);
  }
  if (start > now) {
    throw new DomainError('Invalid', `${text} is in the future. The latest date is today's: ${dayText(now)} (UTC).`);
  }
  return start + day - 1;
}

/** The day of a time, in UTC. */
export function dayText(time: number): string {
  return new Date(time).toISOString().slice(0, 10);
}
