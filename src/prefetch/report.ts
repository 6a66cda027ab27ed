import { entryId, type EntryKey, type EntryMetadata } from '../mirror/store/entries.ts';
import type { ItemLocation } from './item.ts';

export interface Tally {
  count: number;
  bytes: number;
}

/** Things that are counted separately. */
export const things = ['package', 'manifest', 'blob'] as const;
export type Thing = (typeof things)[number];

/** Something that could not be fetched, and the reason. */
export interface Missing {
  what: string;
  reason: string;
  location: ItemLocation;
}

/** An entry of the mirror that clients need for what a prefetch was for. */
export interface NeededEntry {
  key: EntryKey;
  /** What clients get under the key. */
  metadata: EntryMetadata;
}

/** The results of a prefetch. */
export class PrefetchReport {
  /** Fetched from upstreams; in a dry run, what would be fetched. */
  readonly fetched = tallies();
  /** Already stored before. */
  readonly present = tallies();
  /** Names that are not fetched from upstreams, and the reasons. */
  readonly skipped = new Map<string, string>();
  readonly missing: Missing[] = [];
  /** Number of things whose size is unknown. */
  unmeasured = 0;
  /** Whether versions were chosen by a simpler rule than that of a restore. */
  approximate = false;
  /** Whether the prefetch was cancelled. */
  interrupted = false;
  /** Bytes of bodies from upstreams. */
  received = 0;

  /** By the ids of their keys. Only if they are wanted. */
  readonly needed = new Map<string, NeededEntry>();

  need(key: EntryKey, metadata: EntryMetadata): void {
    this.needed.set(entryId(key), { key, metadata });
  }

  add(thing: Thing, where: 'fetched' | 'present', bytes: number): void {
    const tally = this[where][thing];
    tally.count += 1;
    tally.bytes += bytes;
  }
}

function tallies(): Record<Thing, Tally> {
  return { package: { count: 0, bytes: 0 }, manifest: { count: 0, bytes: 0 }, blob: { count: 0, bytes: 0 } };
}
