import type { EventType } from '../../events/event.ts';

/**
 * How long an entry of a kind is valid: `immutable` forever; `document` until the upstream must confirm it; `by digest`: an
 * entry whose reference is a digest forever, another one as a document.
 */
type Validity = 'immutable' | 'document' | 'by digest';

/** The kinds of entries of a protocol, in the order of lists. */
export type EntryKinds = Readonly<Record<string, Validity>>;

/** The event about an entry that a user drops; undefined for entries that are no content by themselves, such as lists. */
interface DropEvent {
  type: EventType;
  /** The kind of its name. */
  kind: string;
  name: string;
}

/** How the entries of a protocol are listed and dropped. */
export interface ListedKinds {
  readonly kinds: EntryKinds;
  /** `upstreamName` is the name by which clients use the upstream. */
  dropEvent(entry: { kind: string; name: string; reference: string }, upstreamName: string): DropEvent | undefined;
  /** All names at the upstream of what has `name` there as one of them, the stored one first; only itself if absent. */
  namesAtUpstream?(name: string, upstreamName: string): readonly string[];
}
