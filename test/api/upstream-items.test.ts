import test from 'ava';
import type { OperationCall } from '../../src/api/framework/operation.ts';
import { upstreamOperations, upstreamState } from '../../src/api/upstreams/upstreams.ts';
import type { UpstreamFigures } from '../../src/metrics/upstreams.ts';
import type { UpstreamView } from '../../src/mirror/overview.ts';

// How upstreams are shown. test/api/upstreams.test.ts has requests to some.

const now = Date.UTC(2027, 0, 31, 12, 30);
const hour = 3_600_000;
const timeOf = (milliseconds: number) => new Date(milliseconds).toISOString();

const figures: UpstreamFigures = {
  kind: 'registry',
  id: 'up',
  startedAt: now - hour,
  processes: 2,
  statuses: { '200': 3, '404': 1, timeout: 2 },
  outcomes: { hit: 7, stale: 1, miss: 4 },
  saved: 1,
  sent: 900,
  received: 300,
  times: { bounds: [0.1, 1], counts: [4, 0, 0], sum: 0.2 },
  succeededAt: now - 1000,
  lastFailure: null,
  failures: 0,
  auditsWithout: 5,
  open: 1,
  pause: null,
  rateLimit: null,
};

function viewOf(more: Partial<UpstreamView> = {}, isOffline = false, accounts?: readonly string[]): UpstreamView {
  const upstream = {
    id: 'up',
    name: 'up.test',
    config: { kind: 'registry', accounts },
    base: new URL('https://up.test/v2/?token=secret'),
    isOffline,
  };
  return { kinds: ['manifest', 'blob'], figures: undefined, cached: undefined, ...more, upstream } as never;
}

const noWeek = { requests: 0, hits: 0, received_bytes: 0, milliseconds: 0 };

/** What the operations answer about one upstream. */
function operationsOf(view: UpstreamView, { week = noWeek, samples = [] as object[], daily = [4, 2] } = {}) {
  const asked: unknown[] = [];
  const overview = {
    list: () => Promise.resolve([viewOf(), view].slice(-1)),
    find: (id: string, kind?: string) => {
      asked.push(['find', id, kind]);
      return view.upstream;
    },
    samples: {
      since: (upstream: object, from: number) => {
        asked.push(['since', upstream, from]);
        return Promise.resolve(week);
      },
      list: (upstream: object, from: number, step: number) => {
        asked.push(['list', upstream, from, step]);
        return Promise.resolve(samples);
      },
      daily: () => Promise.resolve(() => daily),
    },
  };
  const counters = { cache_hits: 6, cache_misses: 2, upstream_bytes: 70 };
  const use = { read: () => Promise.resolve({ period: { start: now - 30 * 24 * hour }, counters, asOf: now - 10 }) };
  const all = upstreamOperations({ overview, use, now: () => now } as never);
  const run = (id: string, query: object = {}): Promise<Record<string, any>> =>
    all
      .find((each) => each.id === id)!
      .run({ params: { id: 'up' }, query } as unknown as OperationCall<never, never>) as never;
  return { run, asked };
}

const unused = {
  id: 'up',
  name: 'up.test',
  kind: 'registry',
  url: 'https://up.test/v2/',
  mode: 'online',
  accounts: null,
  state: 'unused',
  last_failure: null,
  failures: 0,
  audits_without_data: 0,
  breaker: { state: 'closed', workers: 0, open_workers: 0, since: null, reason: null, next_attempt_at: null },
  rate_limit: null,
  latency: null,
  requests: { sent: 0, received_bytes: 0, needed: 0, by_outcome: {}, hits: 0 },
  saved: { requests: 0, bytes: 0, seconds: 0 },
  week: { requests: 0, hits: 0, received_bytes: 0, saved_seconds: 0 },
  cached: null,
  works_offline: null,
  entry_kinds: ['manifest', 'blob'],
  last_success_at: null,
  since: '1970-01-01T00:00:00.000Z',
};

test('an upstream that no process has counted, and that is not counted yet, has no numbers', async (t) => {
  const { run, asked } = operationsOf(viewOf());
  t.deepEqual(await run('getUpstream', { kind: 'registry' }), unused);
  t.deepEqual(asked, [
    ['find', 'up', 'registry'],
    ['since', { kind: 'registry', id: 'up' }, now - 7 * 24 * hour],
  ]);
});

test('an upstream is shown with all that its processes and the database know', async (t) => {
  const cached = {
    entries: 6,
    bytes: 60,
    expired: 2,
    unusedBytes: 20,
    byKind: new Map(),
    confirmedAt: now - 2000,
    asOf: now - 5,
  };
  const more: Partial<UpstreamFigures> = {
    pause: { reason: 'does not answer', since: now - 3000, until: now + 4000 },
    failures: 4,
    lastFailure: { at: now - 3000, subject: 'app', reason: 'answered 500', isRefusal: false },
    rateLimit: { limit: 100, remaining: 40, until: now + hour },
  };
  const week = { requests: 8, hits: 6, received_bytes: 500, milliseconds: 1000 };
  const { run } = operationsOf(viewOf({ figures: { ...figures, ...more }, cached }), { week });
  t.deepEqual(await run('getUpstream'), {
    ...unused,
    state: 'paused',
    last_failure: { time: timeOf(now - 3000), subject: 'app', reason: 'answered 500' },
    failures: 4,
    audits_without_data: 5,
    breaker: {
      state: 'open',
      workers: 2,
      open_workers: 1,
      since: timeOf(now - 3000),
      reason: 'does not answer',
      next_attempt_at: timeOf(now + 4000),
    },
    rate_limit: { limit: 100, remaining: 40, resets_at: timeOf(now + hour) },
    latency: { median_ms: 50, p95_ms: 95, requests: 4 },
    requests: { sent: 6, received_bytes: 300, needed: 12, by_outcome: { hit: 7, stale: 1, miss: 4 }, hits: 8 },
    // Eight times the mean of 0.05 s; in the week six times the mean of 125 ms.
    saved: { requests: 8, bytes: 900, seconds: 0.4 },
    week: { requests: 8, hits: 6, received_bytes: 500, saved_seconds: 0.8 },
    cached: { entries: 6, size_bytes: 60, expired_documents: 2, unused_bytes: 20, as_of: timeOf(now - 5) },
    works_offline: 'partly',
    last_success_at: timeOf(now - 1000),
    since: timeOf(now - hour),
  });

  const read = async (view: UpstreamView) => operationsOf(view).run('getUpstream');
  const silent = { ...figures, statuses: { timeout: 2, error: 1, cancelled: 1, '200': 0 }, succeededAt: null };
  t.like(await read(viewOf({ figures: silent, cached })), { latency: null, last_success_at: timeOf(now - 2000) });
  const untimed = { ...figures, times: { ...figures.times, counts: [0, 0, 0] } };
  t.is((await read(viewOf({ figures: untimed })))['latency'], null);
  t.is((await read(viewOf({ figures: silent, cached: { ...cached, confirmedAt: 0 } })))['last_success_at'], null);
  t.deepEqual((await read(viewOf({}, false, ['team'])))['accounts'], ['team']);
  const limited = { ...figures, rateLimit: { remaining: 3, until: now } };
  t.deepEqual((await read(viewOf({ figures: limited })))['rate_limit'], {
    limit: null,
    remaining: 3,
    resets_at: timeOf(now),
  });
  for (const [changes, isOffline, works] of [
    [{ entries: 0, expired: 0 }, true, 'nothing'],
    [{ expired: 0 }, false, 'all'],
    [{}, true, 'all'],
    [{}, false, 'partly'],
  ] as const)
    t.is((await read(viewOf({ cached: { ...cached, ...changes } }, isOffline)))['works_offline'], works);
});

const stateOf = (more: Partial<UpstreamFigures>, isOffline = false) =>
  upstreamState({ upstream: viewOf({}, isOffline).upstream, figures: { ...figures, ...more } });

test('the state of an upstream follows from its failures since its last success', (t) => {
  const failure = { at: now - 1000, subject: 'app', reason: 'answered 500', isRefusal: false };
  const pause = { reason: 'x', since: now, until: now };
  for (const [more, state] of [
    [{}, 'working'],
    [{ succeededAt: null }, 'unused'],
    [{ pause }, 'paused'],
    [{ failures: 2, lastFailure: failure }, 'working'],
    [{ failures: 3, lastFailure: failure }, 'failing'],
    [{ failures: 3, lastFailure: { ...failure, isRefusal: true } }, 'refused'],
    [{ failures: 3, lastFailure: { ...failure, at: now - 1001 } }, 'working'],
    [{ failures: 1, lastFailure: failure, succeededAt: null }, 'failing'],
  ] as const) {
    t.is(stateOf(more), state, JSON.stringify(more));
    t.is(stateOf(more, true), 'offline');
  }
});

test('the list has the use of the month, and with daily=1 the requests of each day', async (t) => {
  const { run } = operationsOf(viewOf());
  const month = {
    start: timeOf(now - 30 * 24 * hour),
    as_of: timeOf(now - 10),
    requests: 8,
    hits: 6,
    upstream_bytes: 70,
  };
  t.deepEqual(await run('listUpstreams', { daily: '0' }), { items: [unused], next_cursor: null, month });
  const item = { ...unused, daily_requests: [4, 2] };
  t.deepEqual(await run('listUpstreams', { daily: '1' }), { items: [item], next_cursor: null, month });
});

test('a history begins at a whole hour or day, and has the mean of the times', async (t) => {
  const start = Date.UTC(2027, 0, 30, 12);
  const sample = { start, requests: 3, hits: 1, failures: 0, milliseconds: 100 };
  const { run, asked } = operationsOf(viewOf(), { samples: [sample, { ...sample, requests: 0 }] });
  const item = { start: timeOf(start), requests: 3, hits: 1, failures: 0, mean_ms: 33.3 };
  t.deepEqual(await run('getUpstreamHistory', { period: 'day' }), {
    step_seconds: 3600,
    items: [item, { ...item, requests: 0, mean_ms: null }],
  });
  await run('getUpstreamHistory', { period: 'month' });
  t.is((await run('getUpstreamHistory', { period: 'year' }))['step_seconds'], 86_400);
  const upstream = { kind: 'registry', id: 'up' };
  t.deepEqual(
    asked.filter(([what]: any) => what === 'list'),
    [
      ['list', upstream, start, hour],
      ['list', upstream, Date.UTC(2027, 0, 1), 24 * hour],
      ['list', upstream, Date.UTC(2026, 0, 31), 24 * hour],
    ],
  );
});
