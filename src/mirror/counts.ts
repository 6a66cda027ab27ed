/** How the mirror answered a request: with content, with "not found" (`absent`), or not at all (`failed`). */
export const outcomes = ['hit', 'revalidated', 'stale', 'miss', 'passed', 'absent', 'failed'] as const;
export type CountedOutcome = (typeof outcomes)[number];
/** The kinds of upstreams. */
export const kinds = ['nuget', 'registry'] as const;
export type UpstreamKind = (typeof kinds)[number];

type ByKind<T> = Record<UpstreamKind, T>;

const none = (): Record<CountedOutcome, number> => ({
  hit: 0,
  revalidated: 0,
  stale: 0,
  miss: 0,
  passed: 0,
  absent: 0,
  failed: 0,
});

/** What the mirror of this process has done since its start. */
export class MirrorCounts {
  /** Requests for entries, by outcome. */
  readonly requests: ByKind<Record<CountedOutcome, number>> = { nuget: none(), registry: none() };
  /** Bytes of stored entries that an upstream has confirmed with 304, and so did not send again. */
  readonly saved: ByKind<number> = { nuget: 0, registry: 0 };
  /** Requests that joined a fetch which another request had started. */
  joined = 0;
}
