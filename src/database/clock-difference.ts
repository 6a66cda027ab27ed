import { databaseTime } from './clock.ts';
import type { Queryable } from './database.ts';

const timeSql = `SELECT ${databaseTime.mysql} AS time`;

/**
 * Milliseconds by which `now` is at least ahead of the clock of a MySQL database, negative if it is behind. The time that the
 * query takes is not counted, so that a slow database does not look like a wrong clock.
 */
export async function clockDifference(from: Queryable, now: () => number): Promise<number> {
  const before = now();
  const { time } = (await from.get<{ time: number }>(timeSql))!;
  const after = now();
  if (time < before) return before - time;
  return time > after ? after - time : 0;
}
