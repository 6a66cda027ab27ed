import type { Logger } from 'pino';
import type { Config } from '../config/schema.ts';
import type { Database } from '../database/database.ts';
import type { Events } from '../events/events.ts';
import type { ListRefresh } from '../known-bad/refresh.ts';
import type { Waivers } from '../policy/waivers.ts';
import type { Promotions } from '../promotion/promotions.ts';
import type { Entries, EntryKey } from '../mirror/store/entries.ts';
import type { ListedKinds } from '../mirror/store/entry-kinds.ts';
import { UsedEntries } from '../mirror/store/used-entries.ts';
import { evict } from '../mirror/store/eviction.ts';
import type { DeletedItems } from '../permanence/deleted.ts';
import { typed } from '../runtime/command-name.ts';
import type { Collector } from '../storage/upkeep/collector.ts';
import { logDamage, type Damage } from '../storage/blobs/damage.ts';
import type { Driver } from '../storage/drivers/driver.ts';
import type { Scrubber } from '../storage/upkeep/scrub.ts';
import { Pace } from '../storage/upkeep/pace.ts';
import { hourOf } from '../usage/period.ts';
import type { StorageMeter } from '../usage/stored.ts';
import type { Job, Work } from './jobs.ts';
import { prefetchBySettings, type ScheduledPrefetchParts } from './prefetch.ts';
import { countsText, type Counts } from './runs.ts';
import { Schedule } from './schedule.ts';

/** A job without its schedule. The setting of the same name has the schedule. */
export interface JobDefinition extends Omit<Job, 'schedule' | 'name'> {
  name: keyof Config['jobs'];
}

/** The parts of jobs that a protocol implements. */
export interface JobParts {
  readonly upstreams: { readonly kind: Config['upstreams'][number]['kind']; readonly entries: ListedKinds };
  /** Jobs that only this protocol has. */
  readonly jobs: readonly JobDefinition[];
  /** Applies the retention rules to hosted content; resolves to counts of what was deleted. */
  retain(work: Work): Promise<Counts>;
  /** Passes the keys of the stored entries that withdrawn content needs besides its own to `use`. */
  contentsOfWithdrawn?(signal: AbortSignal, use: (keys: readonly EntryKey[]) => Promise<void>): Promise<void>;
  /** Deletes unneeded references older than `before` (milliseconds since 1970 UTC), before blobs are collected. */
  release?(work: Work, before: number): Promise<Counts>;
}

interface TableParts {
  config: Config;
  database: Database;
  entries: Entries;
  protocols: readonly JobParts[];
  collector: Collector;
  deleted: DeletedItems;
  driver: Driver;
  scrubber: Scrubber;
  stored: StorageMeter;
  events: Events;
  /** Events up to this position have been turned into deliveries of webhooks. */
  deliveredTo: () => Promise<number>;
  listRefresh: ListRefresh;
  waivers: Waivers;
  /** Compares what was pulled with what is known now. */
  exposure: JobDefinition['run'];
  promotions: Promotions;
  /** Brings what servers have that are replaced. */
  takeover: JobDefinition['run'];
  prefetch: ScheduledPrefetchParts;
  log: Logger;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
  /** The same for deletions by age. */
  deletionTime: () => number;
}

/** Milliseconds that a push may take to store its bytes, even with a shorter grace. */
const maxPut = 3_600_000;

/** Damaged blobs stay in the quarantine for 30 days, and only the newest 10 GiB of them. */
const quarantineAge = 30 * 86_400_000;
const quarantineBytes = 10 * 1024 ** 3;

/** All jobs. The setting `jobs.<name>` has the schedule of each. */
export function jobTable(parts: TableParts): Job[] {
  const { config, protocols, stored, now } = parts;
  const job = (
    name: JobDefinition['name'],
    summary: string,
    canDryRun: boolean,
    run: JobDefinition['run'],
  ): JobDefinition => ({ name, summary, canDryRun, run });
  const jobs: JobDefinition[] = [
    ...protocols.flatMap((each) => each.jobs),
    job('retention', 'apply the rules for hosted content', true, (work) =>
      runAll(protocols.map((each) => () => each.retain(work))),
    ),
    job('evict', 'reduce mirrored content to its limit', true, (work) => evictBeyondLimit(parts, work)),
    job('gc', 'delete unreferenced bytes and old quarantined ones', true, (work) => collectGarbage(parts, work)),
    job('sample', 'measure the bytes that accounts store, once per hour', false, async () => {
      await stored.sample(hourOf(now()));
      return {};
    }),
    job('prefetch', 'fetch listed content and content in use', true, (work) =>
      prefetchBySettings(parts.prefetch, work),
    ),
    job('scrub', 'read and verify stored bytes', false, (work) => scrub(parts, work)),
    job('audit', 'delete events and decided promotions older than the setting "audit.keep"', false, (work) =>
      deleteOldEvents(parts, work),
    ),
    job('knownBad', 'read lists of known bad content again', false, (work) =>
      parts.listRefresh.run(work, contentInUse(parts)),
    ),
    job(
      'exposure',
      'tell what was pulled and is now known to be vulnerable or bad, and delete old pulls',
      false,
      parts.exposure,
    ),
    job('takeover', 'bring what predecessors have and this server lacks', false, parts.takeover),
    job('waivers', 'record the ends of waivers, and announce those that end soon', false, (work) =>
      reviewWaivers(parts, work),
    ),
  ];
  return jobs.map((each) => {
    const expression = config.jobs[each.name];
    const name = each.name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    return { ...each, name, schedule: expression === 'off' ? undefined : new Schedule(expression) };
  });
}

function contentInUse({ config, database, protocols }: TableParts): UsedEntries {
  const upstreams = config.upstreams.map(({ id, name, kind }) => {
    const { entries } = protocols.find((each) => each.upstreams.kind === kind)!.upstreams;
    return { id, name, entries };
  });
  return new UsedEntries(database, upstreams);
}

/** Runs the parts of a job one after another, and merges their counts. */
async function runAll(parts: readonly (() => Promise<Counts>)[]): Promise<Counts> {
  const counts: Counts = {};
  for (const part of parts) Object.assign(counts, await part());
  return counts;
}

async function evictBeyondLimit({ config, database, entries, protocols }: TableParts, work: Work): Promise<Counts> {
  const { maxSize } = config.mirror;
  if (maxSize === undefined || config.offline) return {};
  const offline = config.upstreams.filter(({ mode }) => mode === 'offline').map(({ id }) => id);
  const upstreams = config.upstreams.map(({ id }) => id);
  const contentsOfWithdrawn = async (use: (keys: readonly EntryKey[]) => Promise<void>) => {
    for (const each of protocols) await each.contentsOfWithdrawn?.(work.signal, use);
  };
  const { left, ...evicted } = await evict(database, entries, {
    ...work,
    maxSize,
    offline,
    upstreams,
    contentsOfWithdrawn,
  });
  if (left > maxSize)
    work.say(
      `${left - maxSize} bytes above the limit stay: they are withdrawn, or the last receipt for bundles names them`,
    );
  return evicted;
}

async function collectGarbage(parts: TableParts, work: Work): Promise<Counts> {
  const { config, driver } = parts;
  const now = parts.deletionTime();
  const before = now - config.gc.grace;
  const pendingBefore = Math.min(before, now - maxPut);
  const { ended: deleted_items } = await parts.deleted.end(now, work);
  const collected = await collectBefore(parts, work, before, pendingBefore);
  if (work.dryRun) {
    const { items, until: first } = await parts.deleted.kept(now, work.signal);
    if (first !== undefined)
      work.say(
        `kept for now: ${items} ${items === 1 ? 'deletion' : 'deletions'} that can be restored, with their content; the first until ${new Date(first).toISOString()}. "${typed('deleted list')}" shows them`,
      );
    const unused = await collectBefore(parts, work, Number.MAX_SAFE_INTEGER);
    const kept = Object.entries(unused).map(([name, count]) => [name, count - (collected[name] ?? 0)] as const);
    const until = new Date(now + Math.max(config.gc.grace, maxPut)).toISOString();
    if (kept.some(([, count]) => count > 0))
      work.say(
        `kept for now: ${countsText(Object.fromEntries(kept))}: unused, but stored within the setting "gc.grace". A run after ${until} deletes them, if they are still unused`,
      );
  }
  const bounds = { before: now - quarantineAge, maxBytes: quarantineBytes, dryRun: work.dryRun };
  const { blobs: quarantined, bytes: quarantined_bytes } = await driver.shrinkQuarantine(bounds);
  return { deleted_items, ...collected, quarantined, quarantined_bytes };
}

/** Deletes what is unused and older than these times; milliseconds since 1970 UTC. */
async function collectBefore(
  { protocols, collector }: TableParts,
  work: Work,
  before: number,
  pendingBefore = before,
): Promise<Counts> {
  const released = await runAll(protocols.map((each) => async () => (await each.release?.(work, before)) ?? {}));
  return { ...released, ...(await collector.collect({ ...work, before, pendingBefore })) };
}

/** What has ended is kept as long as its events. */
async function reviewWaivers({ config, waivers, deletionTime }: TableParts, { signal }: Work): Promise<Counts> {
  const reviewed = await waivers.review(signal);
  return { ...reviewed, deleted: await waivers.deleteEnded(deletionTime() - config.audit.keep, signal) };
}

async function scrub({ scrubber, log }: TableParts, { signal, say }: Work): Promise<Counts> {
  const report = (damage: Damage) => {
    say(`${damage.kind} ${damage.digest}: ${needOf(damage)}`);
    logDamage(log, damage);
  };
  return { ...(await scrubber.scrub({ signal, report })) };
}

/** What promotions were decided is kept as long as the events of it. */
async function deleteOldEvents(
  { config, events, promotions, deliveredTo, deletionTime }: TableParts,
  { signal }: Work,
): Promise<Counts> {
  const before = deletionTime() - config.audit.keep;
  const pace = new Pace(signal);
  let deleted = 0;
  for (let more = true; more; await pace.step()) {
    const some = await events.deleteSome(before, await deliveredTo());
    deleted += some;
    more = some > 0;
  }
  return { events: deleted, promotions: await promotions.deleteDecided(before, signal) };
}

function needOf({ kind, hosted, mirrored }: Damage): string {
  if (kind === 'unreadable') return 'it cannot be opened; check its permissions and its disk';
  if (hosted.length > 0) return `needed by ${hosted.join(', ')}; push it again`;
  return mirrored ? 'mirrored; the next request fetches it again' : 'not referenced';
}
