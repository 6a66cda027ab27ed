import type { NameKind } from '../accounts/names.ts';
import type { Database, Value } from '../database/database.ts';
import { pause } from '../runtime/event-loop.ts';
import { pagesOf } from '../runtime/pages.ts';
import { counterNames, noCounts, type Counters } from './counters.ts';
import type { Period } from './period.ts';
import type { Stored, StorageMeter } from './stored.ts';

/** Groups of a report: `token`, or a kind of names. `name` is then the ID of the token, or such a name. */
export type Grouping = NameKind;

/** One line of a report: for a day, a name, or a name on a day. */
export interface UsageItem {
  day: number | null;
  name: string | null;
  counters: Counters;
}

interface StorageUse {
  current: Stored;
  peak: number;
  average: number;
  byteHours: number;
  /**
   * When `current` was measured; now, if it is the last sample of a closed month. Undefined if the account was never
   * measured: then `current` is 0.
   */
  asOf: number | undefined;
}

type CountRow = Counters & { name: string; day: number };

const inBounds = 'account_id = ? AND hour >= ? AND hour < ?';
const sums = counterNames.map((name) => `SUM(${name}) AS ${name}`).join(', ');

/** The usage of an account in a period, without counts that are not written to the database yet. */
export async function totalsOf(database: Database, accountId: number, { start }: Period): Promise<Counters> {
  const row = await database.get<Counters>(
    `SELECT ${sums} FROM usage_counts WHERE account_id = ? AND dimension = 'account' AND period_start = ? AND name = ''`,
    [accountId, start],
  );
  return countersIn(row);
}

/** Names that are summed together, and in all. */
const summedAtATime = 500;
const maxSummed = 100_000;

/** The lines of a report; without a day and a group it has none. */
interface Division {
  byDay: boolean;
  groupBy: Grouping | undefined;
}

/** Up to `limit` lines after (`name`, `day`), sorted by name, then day. */
export async function itemsOf(
  database: Database,
  accountId: number,
  { start }: Period,
  { byDay, groupBy }: Division,
  limit: number,
  after: readonly [name: string, day: number] | undefined,
): Promise<UsageItem[]> {
  if (!byDay && !groupBy) return [];
  const [name, day] = after ?? ['', -1];
  const values: Value[] = [accountId, groupBy ?? 'account', start];
  const where = 'account_id = ? AND dimension = ? AND period_start = ?';
  if (byDay) {
    const rows = await database.select<CountRow>(
      `SELECT * FROM usage_counts WHERE ${where} AND name >= ? AND (name > ? OR day > ?) ORDER BY name, day LIMIT ?`,
      [...values, name, name, day, limit],
    );
    return rows.map((row) => ({ day: row.day, name: groupBy ? row.name : null, counters: countersIn(row) }));
  }
  const rows = await database.select<CountRow>(
    `SELECT name, ${sums} FROM usage_counts WHERE ${where} AND name ${after ? '>' : '>='} ?
     GROUP BY name ORDER BY name LIMIT ?`,
    [...values, name, limit],
  );
  return rows.map((row) => ({ day: null, name: row.name, counters: countersIn(row) }));
}

/** The sums of the names of a group in a month, for reports that are sorted by one of them. */
export interface NameSums {
  names: readonly UsageItem[];
}

/** The sums of each name of a group in a period, read page by page; of 100,000 names at most. */
export async function sumsOf(
  database: Database,
  accountId: number,
  period: Period,
  groupBy: Grouping,
): Promise<NameSums> {
  const names: UsageItem[] = [];
  const division = { byDay: false, groupBy };
  const read = (after: string | undefined) =>
    itemsOf(database, accountId, period, division, summedAtATime, after === undefined ? undefined : [after, 0]);
  for await (const page of pagesOf(undefined as string | undefined, summedAtATime, read, ({ name }) => name!)) {
    names.push(...page);
    if (names.length >= maxSummed) break;
    await pause();
  }
  return { names };
}

/**
 * The bytes that an account stored in a period: from its hourly samples and, while the period is open, the latest measurement.
 * An hour in which no instance ran has no sample and counts as zero.
 */
export async function storageOf(
  database: Database,
  stored: StorageMeter,
  accountId: number,
  period: Period,
  now: number,
): Promise<StorageUse> {
  const bounds = [accountId, period.start, period.end];
  const summary = await database.get<{ samples: number; peak: number | null; total: number | null }>(
    `SELECT COUNT(*) AS samples, MAX(hosted_bytes + mirrored_bytes) AS peak, SUM(hosted_bytes + mirrored_bytes) AS total
     FROM storage_samples WHERE ${inBounds}`,
    bounds,
  );
  const measured =
    now < period.end ? await stored.of(accountId) : { ...(await lastSample(database, bounds)), asOf: now };
  const { hosted = 0, mirrored = 0, asOf } = measured ?? {};
  const current = { hosted, mirrored };
  const bytes = hosted + mirrored;
  const { samples = 0, peak, total } = summary ?? {};
  return {
    current,
    peak: Math.max(peak ?? 0, bytes),
    average: samples > 0 ? Math.round((total ?? 0) / samples) : bytes,
    byteHours: total ?? 0,
    asOf,
  };
}

async function lastSample(database: Database, bounds: readonly number[]): Promise<Stored> {
  const last = await database.get<Stored>(
    `SELECT hosted_bytes AS hosted, mirrored_bytes AS mirrored FROM storage_samples WHERE ${inBounds}
     ORDER BY hour DESC LIMIT 1`,
    bounds,
  );
  return last ?? { hosted: 0, mirrored: 0 };
}

function countersIn(row: Counters | undefined): Counters {
  const counters = noCounts();
  if (row) for (const name of counterNames) counters[name] = row[name] ?? 0;
  return counters;
}
