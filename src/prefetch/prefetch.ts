import { BackgroundTask } from '../runtime/background-task.ts';
import type { Upstream } from '../upstream/upstream.ts';
import type { Platform } from './platform.ts';
import type { PrefetchReport } from './report.ts';
import { PrefetchRun } from './run.ts';
import { isUnclear, type PrefetchItem, type ItemLocation } from './item.ts';
import type { DailyTimes } from './daily-times.ts';

/** The part of a prefetch that a protocol implements, over the mirror or another source. */
export interface Prefetchable {
  /** Adds the work of this protocol to `run`. Ignores items of unknown kinds: they are for other protocols. */
  prefetch(run: PrefetchRun, options: PrefetchOptions): Promise<void>;
}

export interface PrefetchParts {
  upstreams: readonly Upstream[];
  protocols: readonly Prefetchable[];
}

export interface PrefetchOptions {
  /** Names that this account hosts are not fetched. */
  accountId: number;
  items: readonly PrefetchItem[];
  /** Also fetch content in use: the `newest` versions of mirrored packages, and tags that were pulled since `since`. */
  inUse?: { newest: number; since: number } | undefined;
  /** Platforms to fetch of multi-platform images; all if empty. */
  platforms: readonly Platform[];
  /** Target frameworks of references without one; if empty, those of the projects in `items`. */
  frameworks: readonly string[];
  referrers: boolean;
  dryRun: boolean;
  /** Nothing is fetched: the protocols read only what is there. */
  isOffline?: boolean;
  /** Also everything that is stored now. */
  stored?: boolean;
  /** Collect the entries that clients need, with the documents that they read beside the content. */
  collect?: boolean;
  concurrency: number;
  /** Bytes per second, from all upstreams together. */
  rate?: number | undefined;
  /** Share of an upstream's announced rate limit that may be used, from 0 to 1. */
  rateLimitShare: number;
  window?: DailyTimes | undefined;
  /** Ends it at once, with what it is fetching. */
  signal: AbortSignal;
  /** Ends it after what it is fetching, for which clients may wait, too. */
  stop?: AbortSignal | undefined;
  now: () => number;
  /** An upstream that is unavailable for this many milliseconds is not tried again. */
  patience?: number;
  /** Called with the progress several times per second. */
  watch?: (progress: Progress) => void;
}

interface Progress {
  /** Number of things to fetch that are known so far, and of those that are done. */
  known: number;
  ended: number;
  /** Bytes from upstreams. */
  received: number;
  /** Why the prefetch waits; undefined while it does not. */
  waiting: string | undefined;
}

/** The location of items that are there because they are stored. */
export const storedLocation: ItemLocation = { file: 'stored content', line: 0 };

/** The location of items that come from use, not from a file. */
export const inUseLocation: ItemLocation = { file: 'content in use', line: 0 };

/**
 * Fetches content into the mirror by the same code as requests of clients. Stored content is skipped, so that a cancelled
 * prefetch continues where it stopped. Missing content is in the report. Rejects only for errors of this server, for
 * example a full disk.
 */
export async function prefetch(parts: PrefetchParts, options: PrefetchOptions): Promise<PrefetchReport> {
  const { watch, patience = 30_000 } = options;
  const signal = options.stop ? AbortSignal.any([options.signal, options.stop]) : options.signal;
  const task = new BackgroundTask(options.signal, options.rate);
  let waitReason: string | undefined;
  const run = new PrefetchRun({
    ...options,
    collect: options.collect === true,
    signal,
    upstreams: parts.upstreams,
    share: options.rateLimitShare,
    patience,
    waiting: (reason) => {
      waitReason = reason;
    },
  });
  const reportProgress = () => watch?.({ ...run.progress, received: task.received, waiting: waitReason });
  const timer = watch && setInterval(reportProgress, 200);
  try {
    await task.run(async () => {
      for (const item of options.items) {
        if (isUnclear(item)) run.missing(item.what, item.reason, item.location);
      }
      for (const each of parts.protocols) await each.prefetch(run, { ...options, signal });
      await run.done();
    });
  } finally {
    clearInterval(timer);
    reportProgress();
  }
  run.report.received = task.received;
  return run.report;
}
