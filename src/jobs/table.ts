import type { Logger } from 'pino';
import type { Config } from '../config/schema.ts';
import type { Database } from '../database/database.ts';
import type { Entries } from '../mirror/entries.ts';
import { evict } from '../mirror/eviction.ts';
import { matcher } from '../mirror/upstream-policy.ts';
import { retainPackages } from '../nuget/hosted/retention.ts';
import { dropAbandonedBlobs } from '../oci/abandoned-blobs.ts';
import { retainImages } from '../oci/retention.ts';
import type { Uploads } from '../oci/uploads.ts';
import type { Collector } from '../storage/collector.ts';
import type { Damage, Scrubber } from '../storage/scrub.ts';
import { hourOf } from '../usage/period.ts';
import type { StoredBytes } from '../usage/stored.ts';
import type { Job, Work } from './jobs.ts';
import { prefetchAsSet, type ScheduledPrefetchParts } from './prefetch.ts';
import type { Counts } from './runs.ts';
import { Schedule } from './schedule.ts';

export interface TableParts {
  config: Config;
  database: Database;
  entries: Entries;
  uploads: Uploads;
  collector: Collector;
  scrubber: Scrubber;
  stored: StoredBytes;
  prefetch: ScheduledPrefetchParts;
  log: Logger;
  /** Milliseconds since 1970 UTC. */
  now: () => number;
}

/** Milliseconds that a push may take to store its bytes, whatever the grace. */
const longestPut = 3_600_000;

/** Every job there is, by what it is called in the settings. */
export function jobTable(parts: TableParts): Job[] {
  const { config, uploads, stored, now } = parts;
  const job = (
    name: keyof Config['jobs'],
    summary: string,
    canDryRun: boolean,
    run: (work: Work) => Promise<Counts>,
  ): Job => {
    const expression = config.jobs[name];
    return { name, summary, schedule: expression === 'off' ? undefined : new Schedule(expression), canDryRun, run };
  };
  return [
    job('uploads', 'drop abandoned uploads', false, async () => {
      await uploads.expire(now());
      return {};
    }),
    job('retention', 'apply the rules for hosted content', true, (work) => retain(parts, work)),
    job('evict', 'cut upstream content down to its limit', true, (work) => evictBeyondLimit(parts, work)),
    job('collect', 'remove bytes that nothing refers to', true, (work) => collect(parts, work)),
    job('sample', 'measure what accounts store, once in an hour', false, async () => {
      await stored.sample(hourOf(now()));
      return {};
    }),
    job('prefetch', 'fetch ahead what is listed and what has been used', true, (work) =>
      prefetchAsSet(parts.prefetch, work),
    ),
    job('scrub', 'read stored bytes again and check them', false, (work) => scrub(parts, work)),
  ];
}

async function retain({ config, database, now }: TableParts, work: Work): Promise<Counts> {
  const { packages, containers, protect } = config.retention;
  const isProtected = matcher(protect);
  const counts: Counts = {};
  if (packages.keepVersions !== undefined) {
    const rules = {
      now: now(),
      keepVersions: packages.keepVersions,
      isProtected: (id: string, version: string) => isProtected(id) || isProtected(`${id}:${version}`),
    };
    Object.assign(counts, await retainPackages(database, { ...work, ...rules }));
  }
  if (containers.untaggedAfter !== undefined) {
    const rules = { now: now(), untaggedAfter: containers.untaggedAfter, isProtected };
    counts['manifests'] = await retainImages(database, { ...work, ...rules });
  }
  return counts;
}

async function evictBeyondLimit({ config, database, entries }: TableParts, work: Work): Promise<Counts> {
  const { maxSize } = config.mirror;
  if (maxSize === undefined || config.offline) return {};
  const offline = config.upstreams.filter(({ mode }) => mode === 'offline').map(({ name }) => name);
  return evict(database, entries, { ...work, maxSize, offline });
}

async function collect({ config, database, collector, now }: TableParts, work: Work): Promise<Counts> {
  const before = now() - config.gc.grace;
  const abandoned = await dropAbandonedBlobs(database, { ...work, before, now: now() });
  const pendingBefore = Math.min(before, now() - longestPut);
  return { ...abandoned, ...(await collector.collect({ ...work, before, pendingBefore })) };
}

async function scrub({ scrubber, log }: TableParts, { signal, say }: Work): Promise<Counts> {
  const report = (damage: Damage) => {
    const { digest, kind, hosted, mirrored } = damage;
    say(`${kind} ${digest}: ${needOf(damage)}`);
    if (hosted.length > 0) log.error({ digest, kind, hosted }, 'hosted content is damaged: push it again');
    else if (mirrored)
      log.warn({ digest, kind }, 'upstream content is damaged: it is fetched anew when it is asked for');
  };
  return { ...(await scrubber.scrub({ signal, report })) };
}

function needOf({ hosted, mirrored }: Damage): string {
  if (hosted.length > 0) return `needed by ${hosted.join(', ')}; push it again`;
  return mirrored ? 'from an upstream; fetched anew when it is asked for' : 'nothing needs it';
}
