import type { ImportOutcome } from '../item.ts';

/** `interrupted`: its server was closed; `lost`: its process died; `stopped`: it ended before the source was read whole. */
export const importRunStates = ['running', 'done', 'stopped', 'failed', 'cancelled', 'interrupted', 'lost'] as const;
export type ImportRunState = (typeof importRunStates)[number];

/** What an import by `/v1` reads, and how. It is stored, so it has no secret. */
export interface ImportRunSettings {
  /** One of `serverKinds`. */
  kind: string;
  url: string;
  user?: string | undefined;
  /** Whether the source gets a secret, which each start of the run has to bring. */
  needsSecret: boolean;
  dryRun: boolean;
  /** Milliseconds since 1970 UTC. */
  since?: number | undefined;
  only: readonly string[];
  names: readonly string[];
  rename: readonly string[];
  moveTags: boolean;
  hosted: boolean;
  concurrency: number;
  /** Bytes per second. */
  rate?: number | undefined;
}

/** What a run has done until now; after its end, its whole result. */
export interface ImportRunProgress {
  /** Versions and images that are known, and those that are done. */
  known: number;
  ended: number;
  /** Bytes from the source. */
  received: number;
  counts: Record<ImportOutcome, { count: number; bytes: number }>;
  warnings: string[];
  /** Why it failed, or ended early. */
  error?: string | undefined;
}

export interface ImportRun {
  id: string;
  state: ImportRunState;
  createdAt: number;
  endedAt: number | null;
  settings: ImportRunSettings;
  progress: ImportRunProgress;
}

/** A conflict or a failure of a run, at its place in the list of them. */
export interface ImportProblem {
  position: number;
  outcome: ImportOutcome;
  name: string;
  reference: string;
  note: string;
}

/** Warnings, and problems, of a run that are kept. */
export const maxWarnings = 20;
export const maxRunProblems = 10_000;
