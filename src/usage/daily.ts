import type { NameKind } from '../accounts/names.ts';
import { batches } from '../database/batches.ts';
import { placeholders, type Database } from '../database/database.ts';
import { dayOf, periodAt } from './period.ts';

/** Days that small plots in lists have. */
const shownDays = 30;

const day = 86_400_000;

/** The last days, each by its start, today last; milliseconds since 1970 UTC. */
export function lastDays(now: number): number[] {
  return Array.from({ length: shownDays }, (_, index) => dayOf(now) - (shownDays - 1 - index) * day);
}

/** The account's downloads of each of `names` in the last days together, as far as they are written to the database. */
export async function recentDownloads(
  database: Database,
  accountId: number,
  kind: NameKind,
  names: readonly string[],
  now: number,
): Promise<Map<string, number>> {
  const recent = new Map<string, number>();
  for (const some of batches(names)) {
    const daysOf = await dailyDownloads(database, accountId, kind, some, now);
    for (const name of some)
      recent.set(
        name,
        daysOf(name).reduce((sum, each) => sum + each, 0),
      );
  }
  return recent;
}

/** The account's downloads of each of `names` on each of the last days, today last, as far as they are written to the database. */
export async function dailyDownloads(
  database: Database,
  accountId: number,
  kind: NameKind,
  names: readonly string[],
  now: number,
): Promise<(name: string) => number[]> {
  const days = lastDays(now);
  if (names.length === 0) return () => days.map(() => 0);
  const months = [...new Set(days.map((each) => periodAt(each).start))];
  const rows = await database.select<{ name: string; day: number; downloads: number }>(
    `SELECT name, day, downloads FROM usage_counts WHERE account_id = ? AND dimension = ?
     AND period_start IN (${placeholders(months)}) AND name IN (${placeholders(names)}) AND day >= ? AND downloads > 0`,
    [accountId, kind, ...months, ...names, days[0]!],
  );
  const byName = Map.groupBy(rows, ({ name }) => name);
  return (name) => {
    const found = new Map(byName.get(name)?.map((row) => [row.day, row.downloads]));
    return days.map((each) => found.get(each) ?? 0);
  };
}
