/** A part of each day, in local time; minutes since midnight. If `to` is before `from`, it ends on the next day. */
export interface DailyTimes {
  from: number;
  to: number;
}

/** Parses a window (`22:00-06:00`); undefined if `text` is not one. */
export function parseWindow(text: string): DailyTimes | undefined {
  const match = /^\s*([01]?\d|2[0-4]):([0-5]\d)\s*-\s*([01]?\d|2[0-4]):([0-5]\d)\s*$/.exec(text);
  if (!match) return undefined;
  const [from = 0, fromMinute = 0, to = 0, toMinute = 0] = match.slice(1).map(Number);
  const window = { from: from * 60 + fromMinute, to: to * 60 + toMinute };
  const isDay = window.from <= 1440 && window.to <= 1440 && window.from % 1440 !== window.to % 1440;
  return isDay ? window : undefined;
}

/** Milliseconds until the window opens; 0 while it is open. `now` in milliseconds since 1970 UTC. */
export function untilOpen({ from, to }: DailyTimes, now: number): number {
  const date = new Date(now);
  const minute = date.getHours() * 60 + date.getMinutes();
  const isOpen = from < to ? minute >= from && minute < to : minute >= from || minute < to;
  if (isOpen) return 0;
  const wait = ((from - minute + 1440) % 1440) * 60_000;
  return wait - date.getSeconds() * 1000 - date.getMilliseconds();
}
