/** How the mirror answered a request: with content, with "not found" (`absent`), or not at all (`failed`). */
export const outcomes = ['hit', 'revalidated', 'stale', 'miss', 'passed', 'withdrawn', 'absent', 'failed'] as const;
type CountedOutcome = (typeof outcomes)[number];
const none = (): Record<CountedOutcome, number> => ({
  hit: 0,
  revalidated: 0,
  stale: 0,
  miss: 0,
  passed: 0,
  withdrawn: 0,
  absent: 0,
  failed: 0,
});

/** What requests needed from one upstream. */
export interface UpstreamUse {
  /** Requests for entries, by outcome. */
  readonly requests: Record<CountedOutcome, number>;
  /** Bytes of stored entries that the upstream has confirmed with 304, and so did not send again. */
  saved: number;
  /** Bytes of stored content that clients got. */
  sent: number;
}

/** What the mirror of this process has done since its start. */
export class MirrorCounts {
  readonly #uses = new Map<string, Map<string, UpstreamUse>>();
  /** Requests that joined a fetch which another request had started. */
  joined = 0;

  /** The counts of the upstream with this kind and ID. */
  of(kind: string, id: string): UpstreamUse {
    let uses = this.#uses.get(kind);
    if (!uses) this.#uses.set(kind, (uses = new Map()));
    let use = uses.get(id);
    if (!use) uses.set(id, (use = { requests: none(), saved: 0, sent: 0 }));
    return use;
  }

  /** Requests for entries of all upstreams of a kind, by outcome. */
  requests(kind: string): Record<CountedOutcome, number> {
    const sum = none();
    for (const { requests } of this.#uses.get(kind)?.values() ?? [])
      for (const each of outcomes) sum[each] += requests[each];
    return sum;
  }

  /** Bytes that the upstreams of a kind did not send again. */
  saved(kind: string): number {
    return [...(this.#uses.get(kind)?.values() ?? [])].reduce((sum, { saved }) => sum + saved, 0);
  }
}
