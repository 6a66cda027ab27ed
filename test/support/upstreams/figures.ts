import type { UpstreamFigures } from '../../../src/metrics/upstreams.ts';

/** What a process has counted of the registry `up.test`. */
export function figuresOf(changes: Partial<UpstreamFigures> = {}): UpstreamFigures {
  return {
    kind: 'registry',
    id: 'up.test',
    startedAt: 0,
    processes: 1,
    statuses: {},
    outcomes: {},
    saved: 0,
    sent: 0,
    received: 0,
    times: { bounds: [], counts: [], sum: 0 },
    succeededAt: null,
    lastFailure: null,
    failures: 0,
    auditsWithout: 0,
    open: 0,
    pause: null,
    rateLimit: null,
    ...changes,
  };
}
