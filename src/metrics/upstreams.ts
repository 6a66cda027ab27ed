/** A request that failed, for the operator. */
export interface LastFailure {
  /** Milliseconds since 1970. */
  at: number;
  /** What was requested. */
  subject: string;
  /** Follows the name of the upstream in a sentence. */
  reason: string;
  /** Whether the upstream does not accept the credentials, or wants some. */
  isRefusal: boolean;
}

/** What the processes of an instance know about one upstream. Times are in milliseconds since 1970 UTC. */
export interface UpstreamFigures {
  kind: string;
  /** Unique among the upstreams of the kind. */
  id: string;
  /** When the first of the processes started. */
  startedAt: number;
  /** Number of processes that run. */
  processes: number;
  /** Requests to the upstream, by status of the answer. */
  statuses: Record<string, number>;
  /** Requests to the mirror, by outcome. */
  outcomes: Record<string, number>;
  /** Bytes that the upstream confirmed and did not send again. */
  saved: number;
  /** Bytes of stored content that clients got. */
  sent: number;
  /** Bytes that the upstream sent. */
  received: number;
  /** Seconds until the upstream began to answer, by bucket. */
  times: Buckets;
  succeededAt: number | null;
  lastFailure: LastFailure | null;
  /** Requests that failed since the last success of their process. */
  failures: number;
  /** See `UpstreamCounts`. */
  auditsWithout: number;
  /** Number of processes whose breaker is open. */
  open: number;
  /** The longest pause of all processes. */
  pause: { reason: string; since: number; until: number } | null;
  /** The lowest announced limit. */
  rateLimit: { remaining: number; limit?: number | undefined; until: number } | null;
}

/** Durations by size: see `Times`. */
interface Buckets {
  bounds: readonly number[];
  counts: readonly number[];
  sum: number;
}

/** The figures of all processes together, in the order of the first list. */
export function mergeUpstreams(lists: readonly (readonly UpstreamFigures[])[]): UpstreamFigures[] {
  const merged = new Map<string, UpstreamFigures>();
  for (const each of lists.flat()) {
    const key = `${each.kind} ${each.id}`;
    const before = merged.get(key);
    merged.set(key, before ? join(before, each) : each);
  }
  return [...merged.values()];
}

/** What stays of a process that has ended. */
export function lastingFigures(figures: UpstreamFigures): UpstreamFigures {
  return { ...figures, processes: 0, open: 0, failures: 0, pause: null, rateLimit: null };
}

/**
 * The duration that the share `quantile` (0 to 1) of all durations does not exceed, in seconds, from the buckets: evenly
 * distributed within a bucket. Undefined without durations. In the last bucket, which has no bound, the bound before it.
 */
export function quantileOf({ bounds, counts }: Buckets, quantile: number): number | undefined {
  const rank = quantile * counts.reduce((sum, each) => sum + each, 0);
  if (rank === 0) return undefined;
  let below = 0;
  for (const [index, upper] of bounds.entries()) {
    const count = counts[index]!;
    if (below + count >= rank) {
      const lower = bounds[index - 1] ?? 0;
      return lower + ((upper - lower) * (rank - below)) / count;
    }
    below += count;
  }
  return bounds.at(-1);
}

function join(one: UpstreamFigures, other: UpstreamFigures): UpstreamFigures {
  return {
    kind: one.kind,
    id: one.id,
    startedAt: Math.min(one.startedAt, other.startedAt),
    processes: one.processes + other.processes,
    statuses: add(one.statuses, other.statuses),
    outcomes: add(one.outcomes, other.outcomes),
    saved: one.saved + other.saved,
    sent: one.sent + other.sent,
    received: one.received + other.received,
    times: {
      bounds: one.times.bounds,
      counts: one.times.counts.map((count, index) => count + (other.times.counts[index] ?? 0)),
      sum: one.times.sum + other.times.sum,
    },
    succeededAt: Math.max(one.succeededAt ?? 0, other.succeededAt ?? 0) || null,
    lastFailure: (one.lastFailure?.at ?? 0) >= (other.lastFailure?.at ?? 0) ? one.lastFailure : other.lastFailure,
    failures: one.failures + other.failures,
    auditsWithout: one.auditsWithout + other.auditsWithout,
    open: one.open + other.open,
    pause: !other.pause || (one.pause && one.pause.until >= other.pause.until) ? one.pause : other.pause,
    rateLimit:
      !other.rateLimit || (one.rateLimit && one.rateLimit.remaining <= other.rateLimit.remaining)
        ? one.rateLimit
        : other.rateLimit,
  };
}

function add(one: Record<string, number>, other: Record<string, number>): Record<string, number> {
  const sum = { ...one };
  for (const [key, value] of Object.entries(other)) sum[key] = (sum[key] ?? 0) + value;
  return sum;
}
