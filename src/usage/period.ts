/** A calendar month in UTC; milliseconds since 1970, `end` exclusive. */
export interface Period {
  start: number;
  end: number;
}

export const hour = 3_600_000;
const day = 24 * hour;

/** Counts of a month are written to that month until this long after its end; milliseconds. */
const grace = 300_000;

/** The month of `now`. */
export function periodAt(now: number): Period {
  const date = new Date(now);
  return monthOf(date.getUTCFullYear(), date.getUTCMonth());
}

/** Parses a month `YYYY-MM`; undefined if `text` is not one. */
export function parsePeriod(text: string): Period | undefined {
  const match = /^(\d{4})-(0[1-9]|1[0-2])$/.exec(text);
  return match ? monthOf(Number(match[1]), Number(match[2]) - 1) : undefined;
}

/** The start of the day of `now`. */
export function dayOf(now: number): number {
  return now - (now % day);
}

/** The start of the hour of `now`. */
export function hourOf(now: number): number {
  return now - (now % hour);
}

/** Whether a month never changes again: twice the grace after its end, so that all writes have ended. */
export function isClosed({ end }: Period, now: number): boolean {
  return now >= end + 2 * grace;
}

/**
 * The day to which counts of the day `counted` are written at `now`: the same day until the grace of its month ends, then
 * the current day, because a closed month must not change and no count may be lost.
 */
export function dayToWrite(counted: number, now: number): number {
  return now < periodAt(counted).end + grace ? counted : dayOf(now);
}

function monthOf(year: number, month: number): Period {
  return { start: Date.UTC(year, month), end: Date.UTC(year, month + 1) };
}
