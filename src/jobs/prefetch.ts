import type { Config } from '../config/schema.ts';
import { parsePlatform } from '../prefetch/platform.ts';
import type { Inputs } from '../prefetch/inputs.ts';
import { prefetch, type PrefetchParts } from '../prefetch/prefetch.ts';
import { readPathInThread } from '../prefetch/reader-thread.ts';
import { things, type PrefetchReport } from '../prefetch/report.ts';
import { locationText, type PrefetchItem } from '../prefetch/item.ts';
import { parseWindow } from '../prefetch/daily-times.ts';
import type { Work } from './jobs.ts';
import type { Counts } from './runs.ts';

export interface ScheduledPrefetchParts extends PrefetchParts {
  config: Config;
  inputs: Inputs;
  /** Names that this account hosts are not fetched. */
  accountId: number;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
}

/** Fetches the content that the settings list, and content in use. Reports everything that is missing. */
export async function prefetchBySettings(
  parts: ScheduledPrefetchParts,
  { signal, dryRun, say }: Work,
): Promise<Counts> {
  const { accountId, now, config } = parts;
  const settings = config.prefetch;
  const items: PrefetchItem[] = [];
  for (const file of settings.files) {
    const found = await readPathInThread(parts.inputs.modules, file, signal);
    for (const each of found) items.push(each);
  }
  const report = await prefetch(parts, {
    accountId,
    items,
    inUse: settings.inUse ? { newest: settings.newest, since: now() - settings.usedWithin } : undefined,
    platforms: settings.platforms.map((each) => parsePlatform(each)!),
    frameworks: settings.frameworks,
    referrers: settings.referrers,
    dryRun,
    concurrency: settings.concurrency,
    rate: settings.rate,
    rateLimitShare: settings.rateLimitShare / 100,
    window: settings.window === undefined ? undefined : parseWindow(settings.window),
    signal,
    now,
  });
  signal.throwIfAborted();
  for (const { what, reason, location } of report.missing)
    say(`missing: ${what} (${locationText(location)}): ${reason}`);
  return countsOf(report);
}

function countsOf({ fetched, present, missing }: PrefetchReport): Counts {
  const counts: Counts = {};
  for (const thing of things) counts[`${thing}s`] = fetched[thing].count;
  counts['bytes'] = things.reduce((sum, thing) => sum + fetched[thing].bytes, 0);
  counts['present'] = things.reduce((sum, thing) => sum + present[thing].count, 0);
  counts['missing'] = missing.length;
  return counts;
}
