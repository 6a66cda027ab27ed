/** A calendar month in UTC; milliseconds since 1970, `end` exclusive. */
export interface Period {
  start: number;
  end: number;
}

export const hour = 3_600_000;
const day = 24 * hour;

/** How long after a month's end what was counted in it is still written into it. */
const grace = 300_000;

/** The month that `now` lies in. */
export function periodAt(now: number): Period {
  const date = new Date(now);
  return monthOf(date.getUTCFullYear(), date.getUTCMonth());
}

/** The month written `YYYY-MM`; undefined when `text` is none. */
export function parsePeriod(text: string): Period | undefined {
  const match = /^(\d{4})-(0[1-9]|1[0-2])$/.exec(text);
  return match ? monthOf(Number(match[1]), Number(match[2]) - 1) : undefined;
}

/** The first moment of the day that `now` lies in. */
export function dayOf(now: number): number {
  return now - (now % day);
}

/** The first moment of the hour that `now` lies in. */
export function hourOf(now: number): number {
  return now - (now % hour);
}

/** Whether nothing of a month changes any more: twice the grace after its end, so that no write is under way. */
export function isClosed({ end }: Period, now: number): boolean {
  return now >= end + 2 * grace;
}

/**
 * The day to which what happened on `counted` is written at `now`: that day, until the grace after its month is over;
 * then the present one, because a closed month stays as it is and nothing is lost.
 */
export function dayToWrite(counted: number, now: number): number {
  return now < periodAt(counted).end + grace ? counted : dayOf(now);
}

function monthOf(year: number, month: number): Period {
  return { start: Date.UTC(year, month), end: Date.UTC(year, month + 1) };
}
