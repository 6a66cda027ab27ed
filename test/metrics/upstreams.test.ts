import test from 'ava';
import { lastingFigures, mergeUpstreams, quantileOf, type UpstreamFigures } from '../../src/metrics/upstreams.ts';

const figures = (changes: Partial<UpstreamFigures> = {}): UpstreamFigures => ({
  kind: 'registry',
  id: 'up',
  startedAt: 100,
  processes: 1,
  statuses: { '200': 1 },
  outcomes: { hit: 2, miss: 1 },
  saved: 10,
  sent: 20,
  received: 30,
  times: { bounds: [0.1, 1], counts: [1, 2, 3], sum: 4 },
  succeededAt: null,
  lastFailure: null,
  failures: 0,
  auditsWithout: 0,
  open: 0,
  pause: null,
  rateLimit: null,
  ...changes,
});

const failure = (at: number) => ({ at, subject: 'a', reason: 'failed', isRefusal: false });

test('the figures of processes add up, and those of one that has ended keep only what it counted', (t) => {
  const pause = { reason: 'answered 500', since: 1, until: 50 };
  const ended = lastingFigures(
    figures({
      startedAt: 50,
      succeededAt: 60,
      lastFailure: failure(70),
      failures: 9,
      auditsWithout: 1,
      open: 1,
      pause,
      rateLimit: { remaining: 1, until: 90 },
    }),
  );
  const [sum, other, ...rest] = mergeUpstreams([
    [figures({ succeededAt: 500, lastFailure: failure(80), failures: 2 }), figures({ kind: 'nuget' })],
    [figures({ statuses: { '200': 1, '429': 2 }, open: 1, pause, rateLimit: { remaining: 7, limit: 9, until: 90 } })],
    [
      figures({
        lastFailure: failure(60),
        failures: 1,
        auditsWithout: 2,
        open: 1,
        pause: { ...pause, until: 40 },
        rateLimit: { remaining: 8, until: 90 },
      }),
    ],
    [ended],
  ]);
  t.deepEqual(rest, []);
  t.deepEqual(sum, {
    ...figures(),
    startedAt: 50,
    processes: 3,
    statuses: { '200': 4, '429': 2 },
    outcomes: { hit: 8, miss: 4 },
    saved: 40,
    sent: 80,
    received: 120,
    times: { bounds: [0.1, 1], counts: [4, 8, 12], sum: 16 },
    succeededAt: 500,
    lastFailure: failure(80),
    failures: 3,
    auditsWithout: 3,
    open: 2,
    pause,
    rateLimit: { remaining: 7, limit: 9, until: 90 },
  });
  t.deepEqual(other, figures({ kind: 'nuget' }));
});

test('the median and the 95th percentile come from the buckets', (t) => {
  const bounds = [1, 2, 4];
  t.is(quantileOf({ bounds, counts: [0, 0, 0, 0], sum: 0 }, 0.5), undefined);
  t.is(quantileOf({ bounds, counts: [0, 10, 0, 0], sum: 0 }, 0.5), 1.5);
  t.is(quantileOf({ bounds, counts: [10, 0, 10, 0], sum: 0 }, 0.5), 1);
  t.is(quantileOf({ bounds, counts: [0, 0, 100, 0], sum: 0 }, 0.95), 3.9);
  t.is(quantileOf({ bounds, counts: [0, 0, 0, 5], sum: 0 }, 0.5), 4, 'the last bucket has no bound');
});
