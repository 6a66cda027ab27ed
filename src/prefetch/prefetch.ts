import { BackgroundTask } from '../upstream/background-task.ts';
import type { Upstream } from '../upstream/upstream.ts';
import type { Platform } from './platform.ts';
import type { Report } from './report.ts';
import { PrefetchRun } from './run.ts';
import { isUnclear, type Requirement, type Spot } from './requirement.ts';
import type { Window } from './window.ts';

/** What a protocol does in a prefetch. */
export interface Prefetchable {
  /** Adds to `run` what the options ask of this protocol; requirements of kinds that it does not know are not for it. */
  prefetch(run: PrefetchRun, options: PrefetchOptions): Promise<void>;
}

export interface PrefetchParts {
  upstreams: readonly Upstream[];
  protocols: readonly Prefetchable[];
}

export interface PrefetchOptions {
  /** What this account hosts is not fetched. */
  accountId: number;
  requirements: readonly Requirement[];
  /** Also what has been used through the mirror. */
  inUse?: { newest: number; since: number } | undefined;
  /** Of multi-platform images only these; none means all. */
  platforms: readonly Platform[];
  /** For references that do not say what they are for; none means those of the projects in `requirements`. */
  frameworks: readonly string[];
  referrers: boolean;
  dryRun: boolean;
  concurrency: number;
  /** Bytes a second, from all upstreams together. */
  rate?: number | undefined;
  /** How much of an upstream's announced rate limit may be used up, from 0 to 1. */
  rateLimitShare: number;
  window?: Window | undefined;
  signal: AbortSignal;
  now: () => number;
  /** Milliseconds after which an upstream that gives nothing is given up. */
  patience?: number;
  /** Hears how far it is, now and then. */
  watch?: (progress: Progress) => void;
}

export interface Progress {
  /** Things that are known to be wanted by now, and those of them that are done. */
  known: number;
  ended: number;
  /** Bytes from upstreams. */
  received: number;
  /** Why nothing moves. */
  waiting: string | undefined;
}

/** Where something is asked for that is in use and stands in no file. */
export const inUseSpot: Spot = { file: 'what is in use', line: 0 };

/**
 * Fills the mirror with what will be needed, through the doors that clients use. What is stored is passed over, so that
 * one that was called off goes on where it stopped. What cannot be had is in the report; it rejects only for faults of
 * our own, such as a full disk.
 */
export async function prefetch(parts: PrefetchParts, options: PrefetchOptions): Promise<Report> {
  const { signal, watch, patience = 30_000 } = options;
  const task = new BackgroundTask(signal, options.rate);
  let why: string | undefined;
  const run = new PrefetchRun({
    ...options,
    upstreams: parts.upstreams,
    share: options.rateLimitShare,
    patience,
    waiting: (reason) => {
      why = reason;
    },
  });
  const tell = () => watch?.({ ...run.progress, received: task.received, waiting: why });
  const timer = watch && setInterval(tell, 200);
  try {
    await task.run(async () => {
      for (const requirement of options.requirements) {
        if (isUnclear(requirement)) run.missing(requirement.what, requirement.reason, requirement.spot);
      }
      for (const each of parts.protocols) await each.prefetch(run, options);
      await run.done();
    });
  } finally {
    clearInterval(timer);
    tell();
  }
  run.report.received = task.received;
  return run.report;
}
