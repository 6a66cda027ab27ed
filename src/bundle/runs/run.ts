import type { PrefetchSettings } from '../../jobs/prefetch-run.ts';
import type { Digest } from '../../runtime/digest.ts';
import type { BundleSummary } from '../bundles.ts';
import type { BundleCounts } from '../format.ts';
import type { AnnouncedKey } from '../trust.ts';

/**
 * `receiving`: an import whose segments are being sent; `incomplete`: all that was sent is stored, and more segments are needed;
 * `checked`: its signature and all bytes that were sent are right, and nothing was imported; `interrupted`: its server was closed; `lost`: its process died; `expired`: an import that was not used for a day; its files are removed.
 */
export const bundleRunStates = [
  'receiving',
  'running',
  'incomplete',
  'checked',
  'done',
  'failed',
  'cancelled',
  'interrupted',
  'lost',
  'expired',
] as const;
export type BundleRunState = (typeof bundleRunStates)[number];

/** What a bundle is made of, and how. */
export interface MakeSettings extends Omit<PrefetchSettings, 'dryRun'> {
  /** Also everything that is mirrored now. */
  stored: boolean;
  /** The digest of the receipt that it is made against. */
  against?: Digest | undefined;
  /** Most bytes of a segment. */
  segment?: number | undefined;
  /** How long it may be imported; milliseconds. */
  validFor?: number | undefined;
  /** Also the policy of all accounts. */
  policy: boolean;
  /** Also the lists of known bad content. */
  knownBad?: boolean | undefined;
  /** A signed statement about a new key. */
  newKey?: string | undefined;
  /** Also without what could not be fetched. */
  allowMissing: boolean;
}

/** What an import may bring in. */
export interface ImportSettings {
  unsigned: boolean;
  older: boolean;
  /** Only checks the signature and all bytes. */
  check?: boolean | undefined;
}

/** What a run has done until now; after its end, its whole result. */
export interface BundleRunProgress {
  /** While content is fetched: things that are known, those that are done, and bytes from upstreams. */
  known?: number | undefined;
  ended?: number | undefined;
  received?: number | undefined;
  waiting?: string | undefined;
  /** Bytes of content that are written or stored, and of how many. */
  bytes?: number | undefined;
  of?: number | undefined;
  /** Why it failed. */
  error?: string | undefined;
  /** What could not be fetched; the first of them. */
  missing?: { file: string; line: number; what: string; reason: string }[] | undefined;
  missingTotal?: number | undefined;
  /** The numbers of the segments that an import still needs. */
  lacking?: number[] | undefined;
  result?: BundleRunResult | undefined;
}

/** The bundle that was made or imported. */
interface BundleRunResult {
  id: Digest;
  counts: BundleCounts;
  segments: number;
  /** Bytes of its content. */
  bytes: number;
  /** The key that signed it; null without a signature. */
  key: string | null;
  /** Of an import, the entries that it has written. */
  written?: number | undefined;
  /** Whether it has a policy. An import does not apply it. */
  policy: boolean;
  /** The lists of known bad content that it has. An import does not use them. */
  knownBad?: BundleSummary['knownBad'];
  /** A new key that it announces, and that was not trusted at the import. */
  newKey?: AnnouncedKey | undefined;
}

interface BundleRunBase {
  id: string;
  state: BundleRunState;
  createdAt: number;
  endedAt: number | null;
  progress: BundleRunProgress;
}

export type BundleRun = BundleRunBase &
  ({ direction: 'made'; settings: MakeSettings } | { direction: 'imported'; settings: ImportSettings });
export type MadeRun = Extract<BundleRun, { direction: 'made' }>;
export type ImportedRun = Extract<BundleRun, { direction: 'imported' }>;
