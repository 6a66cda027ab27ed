/** A calendar month in UTC; milliseconds since 1970, `end` exclusive. */
export interface Period {
  start: number;
  end: number;
}

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

function monthOf(year: number, month: number): Period {
  return { start: Date.UTC(year, month), end: Date.UTC(year, month + 1) };
}
