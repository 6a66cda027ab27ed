import type { Spot } from './requirement.ts';

export interface Tally {
  count: number;
  bytes: number;
}

/** What is counted apart. */
export const things = ['package', 'manifest', 'blob'] as const;
export type Thing = (typeof things)[number];

/** What is not here, and why. */
export interface Missing {
  what: string;
  reason: string;
  spot: Spot;
}

/** What a prefetch has come to. */
export class Report {
  /** What came from upstream; in a dry run, what would. */
  readonly fetched = tallies();
  /** What was here already. */
  readonly present = tallies();
  /** What no upstream is asked for, and why. */
  readonly skipped = new Map<string, string>();
  readonly missing: Missing[] = [];
  /** Things whose size no upstream tells. */
  unmeasured = 0;
  /** Whether versions were chosen here, by a rule simpler than that of a restore. */
  approximate = false;
  /** Whether it was called off before its end. */
  interrupted = false;
  /** Bytes of bodies from upstreams. */
  received = 0;

  add(thing: Thing, where: 'fetched' | 'present', bytes: number): void {
    const tally = this[where][thing];
    tally.count += 1;
    tally.bytes += bytes;
  }
}

function tallies(): Record<Thing, Tally> {
  return { package: { count: 0, bytes: 0 }, manifest: { count: 0, bytes: 0 }, blob: { count: 0, bytes: 0 } };
}
