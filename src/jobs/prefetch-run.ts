import type { Platform } from '../prefetch/platform.ts';
import { things, type PrefetchReport, type Tally, type Thing } from '../prefetch/report.ts';

/** `interrupted`: its server was closed; `lost`: its process died. */
export const prefetchStates = ['running', 'done', 'failed', 'cancelled', 'interrupted', 'lost'] as const;
export type PrefetchState = (typeof prefetchStates)[number];

/** A file that lists what to fetch. */
export interface PrefetchFile {
  /** Without folders. */
  file: string;
  text: string;
}

export interface PrefetchSettings {
  dryRun: boolean;
  platforms: readonly Platform[];
  frameworks: readonly string[];
  referrers: boolean;
  /** The kind of the files; by their names if it is left out. */
  kind?: string | undefined;
  /** The names of the files. */
  files: readonly string[];
}

/** What a run has done until now; after its end, its whole result. */
export interface PrefetchProgress {
  known: number;
  ended: number;
  /** Bytes from upstreams. */
  received: number;
  waiting?: string | undefined;
  /** Why it failed. */
  error?: string | undefined;
  result?: PrefetchResult | undefined;
}

/** The report with bounds on its lists. */
export interface PrefetchResult {
  fetched: Record<Thing, Tally>;
  present: Record<Thing, Tally>;
  unmeasured: number;
  approximate: boolean;
  skipped: { what: string; reason: string }[];
  skippedTotal: number;
  missing: { file: string; line: number; what: string; reason: string }[];
  missingTotal: number;
}

export interface PrefetchRunItem {
  id: string;
  state: PrefetchState;
  createdAt: number;
  endedAt: number | null;
  settings: PrefetchSettings;
  progress: PrefetchProgress;
  /** Whether it is a dry run whose files are kept, so that they can be fetched. */
  canFetch: boolean;
}

/** Entries of each list, and characters of each text, that are kept. */
const maxKept = 500;
const maxTextLength = 300;

export function resultOf({
  fetched,
  present,
  unmeasured,
  approximate,
  skipped,
  missing,
}: PrefetchReport): PrefetchResult {
  return {
    fetched: copyOf(fetched),
    present: copyOf(present),
    unmeasured,
    approximate,
    skipped: [...skipped].slice(0, maxKept).map(([what, reason]) => ({ what: cut(what), reason: cut(reason) })),
    skippedTotal: skipped.size,
    missing: missing.slice(0, maxKept).map(({ what, reason, location: { file, line } }) => ({
      file: cut(file),
      line,
      what: cut(what),
      reason: cut(reason),
    })),
    missingTotal: missing.length,
  };
}

function copyOf(tallies: Record<Thing, Tally>): Record<Thing, Tally> {
  return Object.fromEntries(things.map((thing) => [thing, { ...tallies[thing] }])) as Record<Thing, Tally>;
}

function cut(text: string): string {
  return text.length > maxTextLength ? `${text.slice(0, maxTextLength)}…` : text;
}
