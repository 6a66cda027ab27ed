import type { Rank } from '../../runtime/ranked.ts';
import { jsonItem } from '../../runtime/json-item.ts';
import { z } from 'zod';
import { allow } from '../../accounts/allow.ts';
import { quantileOf } from '../../metrics/upstreams.ts';
import { alternatives, upstreamKinds } from '../../config/protocols.ts';
import type { Sums } from '../../mirror/upstream-samples.ts';
import type { MirrorOverview, StoredEntry, UpstreamView } from '../../mirror/overview.ts';
import type { AllAccountsUse } from '../../usage/all-accounts.ts';
import { lastDays } from '../../usage/daily.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { pageQuery, readPage } from '../framework/paging.ts';
import { dailyFlag, sortedPage, totalFlag, totalOf } from '../framework/sorted.ts';
import { timeOf, timeOrNull } from '../framework/schemas.ts';
import { upstreamEntry, upstreamEntryList, upstreamHistory, upstreamItem, upstreamList } from './upstream-schemas.ts';

export interface UpstreamOperationParts {
  overview: MirrorOverview;
  use: AllAccountsUse;
  now: () => number;
}

const day = 86_400_000;
/** What a history shows, and the time of each of its items in milliseconds. */
const periods = {
  day: { days: 1, step: day / 24 },
  month: { days: 30, step: day },
  year: { days: 365, step: day },
};

const id = 'The ID of the upstream in the settings';
const kindQuery = z.object({
  kind: z
    .enum(upstreamKinds, `expected ${alternatives(upstreamKinds)}`)
    .optional()
    .meta({ description: 'Needed if a feed and a registry have this ID' }),
});
const entriesQuery = pageQuery.extend({
  ...kindQuery.shape,
  name: z
    .string('expected one name')
    .max(255)
    .optional()
    .meta({ description: 'Only names that begin with this text, in any letter case' }),
  sort: z
    .enum(['size', 'used', 'stored'], 'expected size, used, stored, or no order')
    .optional()
    .meta({ description: 'The largest, or those that were used or stored last, first; by kind and name without it' }),
  total: totalFlag,
  entry_kind: z.string('expected one kind').max(32).optional().meta({ description: 'Only entries of this kind' }),
});

/** `/upstreams`: they concern all accounts. What is stored of them needs a token without name patterns, too. */
export function upstreamOperations({ overview, use, now }: UpstreamOperationParts): Operation[] {
  const action = 'operate';
  const allNames = 'A token with name patterns cannot see what is stored of an upstream.';
  const described = async (view: UpstreamView) => {
    const { config, id: upstream } = view.upstream;
    return itemOf(view, await overview.samples.since({ kind: config.kind, id: upstream }, now() - 7 * day));
  };
  const shown = async (upstream: UpstreamView['upstream']) =>
    described((await overview.list()).find((each) => each.upstream === upstream)!);
  return [
    operation({
      method: 'get',
      path: '/upstreams',
      id: 'listUpstreams',
      summary: 'List the upstreams with their state, what is stored of them, and what the mirror saved',
      action,
      query: z.object({ daily: dailyFlag }),
      status: 200,
      answer: upstreamList,
      run: async ({ query }) => {
        const [views, { period, counters, asOf }] = await Promise.all([overview.list(), use.read()]);
        const upstreams = views.map(({ upstream }) => upstream);
        const dailyOf = query.daily === '1' && (await overview.samples.daily(upstreams, lastDays(now())));
        const shownOf = async (each: UpstreamView) => ({
          ...(await described(each)),
          ...(dailyOf && { daily_requests: dailyOf(each.upstream) }),
        });
        const items = await Promise.all(views.map(shownOf));
        const { cache_hits: hits, cache_misses: misses, upstream_bytes } = counters;
        const month = {
          start: timeOf(period.start),
          as_of: timeOf(asOf),
          requests: hits + misses,
          hits,
          upstream_bytes,
        };
        return { items, next_cursor: null, month };
      },
    }),
    operation({
      method: 'get',
      path: '/upstreams/:id',
      id: 'getUpstream',
      summary: 'Show one upstream',
      action,
      params: { id },
      query: kindQuery,
      status: 200,
      answer: upstreamItem,
      run: ({ params, query }) => shown(overview.find(params['id']!, query.kind)),
    }),
    operation({
      method: 'get',
      path: '/upstreams/:id/history',
      id: 'getUpstreamHistory',
      summary:
        'Show what was asked of an upstream, by all instances: of a day by the hour, of a month or a year by the day',
      action,
      params: { id },
      query: kindQuery.extend({
        period: z
          .enum(['day', 'month', 'year'], 'expected day, month or year')
          .default('day')
          .meta({ description: 'The last 24 hours, 30 days or 365 days' }),
      }),
      status: 200,
      answer: upstreamHistory,
      run: async ({ params, query }) => {
        const upstream = overview.find(params['id']!, query.kind);
        const { days, step } = periods[query.period];
        const from = now() - days * day;
        const samples = await overview.samples.list(
          { kind: upstream.config.kind, id: upstream.id },
          from - (from % step),
          step,
        );
        const items = samples.map(({ start, milliseconds: sum, ...each }) => ({
          ...each,
          start: timeOf(start),
          mean_ms: each.requests === 0 ? null : Math.round((10 * sum) / each.requests) / 10,
        }));
        return { step_seconds: step / 1000, items };
      },
    }),
    operation({
      method: 'post',
      path: '/upstreams/:id/retry',
      id: 'retryUpstream',
      summary: 'End the pause of an upstream in the worker that answers, and send it a request now',
      action,
      params: { id },
      query: kindQuery,
      status: 200,
      answer: upstreamItem,
      run: async ({ params, query }) => {
        const upstream = overview.find(params['id']!, query.kind);
        await overview.retry(upstream);
        return shown(upstream);
      },
    }),
    operation({
      method: 'get',
      path: '/upstreams/:id/entries',
      id: 'listUpstreamEntries',
      summary: 'List what is stored of an upstream, by kind and name, or the largest or latest first',
      action,
      allNames,
      params: { id },
      query: entriesQuery,
      status: 200,
      answer: upstreamEntryList,
      run: async ({ params, query }) => {
        const upstream = overview.find(params['id']!, query.kind);
        const filter = { kind: query.entry_kind, prefix: query.name?.trim().toLowerCase() };
        const { sort } = query;
        const name = `upstreams/${upstream.config.kind}/${upstream.id}`;
        const total = await totalOf(query, [{ total: () => overview.total(upstream, filter) }]);
        if (sort !== undefined) {
          const read = (limit: number, after: Rank | undefined) =>
            overview.sortedEntries(upstream, sort, filter, limit, after);
          const { entries, next_cursor } = await sortedPage(query, name, [{ ranked: read }]);
          return { items: entries.map(jsonItem), next_cursor, ...total };
        }
        const { entries, next_cursor } = await readPage<StoredEntry, [string, string, string]>(query, {
          name,
          key: z.tuple([z.string(), z.string(), z.string()]),
          keyOf: ({ kind, name, id: entry }) => [kind, name, entry],
          read: (limit, after) => overview.entries(upstream, filter, limit, after),
        });
        return { items: entries.map(jsonItem), next_cursor, ...total };
      },
    }),
    operation({
      method: 'get',
      path: '/upstreams/:id/entries/:entry',
      id: 'getUpstreamEntry',
      summary: 'Show one stored entry of an upstream',
      action,
      allNames,
      params: { id, entry: 'The ID of the entry' },
      query: kindQuery,
      status: 200,
      answer: upstreamEntry,
      run: async ({ params, query }) =>
        jsonItem(await overview.entry(overview.find(params['id']!, query.kind), params['entry']!)),
    }),
    operation({
      method: 'delete',
      path: '/upstreams/:id/entries/:entry',
      id: 'dropUpstreamEntry',
      summary: 'Drop a stored entry of an upstream; the next request fetches it again. Needs the scope operate, too',
      action: 'delete',
      allNames,
      params: { id, entry: 'The ID of the entry' },
      query: kindQuery,
      status: 204,
      run: async ({ principal, params, query }) => {
        allow(principal, 'operate');
        await overview.drop(overview.find(params['id']!, query.kind), params['entry']!, principal.accountId);
      },
    }),
  ];
}

/** Whether an answer came, of any status: see `UpstreamCounts.statuses`. */
function isAnswer(status: string): boolean {
  return !['timeout', 'error', 'cancelled'].includes(status);
}

/** The outcomes for which no request was sent to the upstream. */
const unsent = ['hit', 'stale'];

function itemOf(
  { upstream, kinds: entryKinds, figures, cached }: UpstreamView,
  { milliseconds: sum, ...week }: Sums,
): z.input<typeof upstreamItem> {
  const { id: upstreamId, name, config, base, isOffline } = upstream;
  const outcomes = figures?.outcomes ?? {};
  const hits = unsent.reduce((sum, each) => sum + (outcomes[each] ?? 0), 0);
  const times = figures?.times ?? { bounds: [], counts: [], sum: 0 };
  const requests = times.counts.reduce((sum, each) => sum + each, 0);
  const hasAnswered = Object.entries(figures?.statuses ?? {}).some(([status, count]) => isAnswer(status) && count > 0);
  const pause = figures?.pause;
  const failure = figures?.lastFailure;
  const limit = figures?.rateLimit;
  return {
    id: upstreamId,
    name,
    kind: config.kind,
    url: `${base.origin}${base.pathname}`,
    mode: isOffline ? 'offline' : 'online',
    accounts: config.accounts ?? null,
    state: upstreamState({ upstream, figures }),
    last_failure: failure ? { time: timeOf(failure.at), subject: failure.subject, reason: failure.reason } : null,
    failures: figures?.failures ?? 0,
    audits_without_data: figures?.auditsWithout ?? 0,
    breaker: {
      state: pause ? 'open' : 'closed',
      workers: figures?.processes ?? 0,
      open_workers: figures?.open ?? 0,
      since: timeOrNull(pause?.since ?? null),
      reason: pause?.reason ?? null,
      next_attempt_at: timeOrNull(pause?.until ?? null),
    },
    rate_limit: limit
      ? { limit: limit.limit ?? null, remaining: limit.remaining, resets_at: timeOf(limit.until) }
      : null,
    latency:
      hasAnswered && requests > 0
        ? { median_ms: milliseconds(quantileOf(times, 0.5)!), p95_ms: milliseconds(quantileOf(times, 0.95)!), requests }
        : null,
    requests: {
      sent: sumOf(figures?.statuses ?? {}),
      received_bytes: figures?.received ?? 0,
      needed: sumOf(outcomes),
      by_outcome: outcomes,
      hits,
    },
    saved: {
      requests: hits,
      bytes: figures?.sent ?? 0,
      seconds: requests === 0 ? 0 : Math.round(((hits * times.sum) / requests) * 10) / 10,
    },
    week: {
      ...week,
      saved_seconds: week.requests === 0 ? 0 : Math.round((week.hits * sum) / week.requests / 100) / 10,
    },
    cached: cached
      ? {
          entries: cached.entries,
          size_bytes: cached.bytes,
          expired_documents: cached.expired,
          unused_bytes: cached.unusedBytes,
          as_of: timeOf(cached.asOf),
        }
      : null,
    works_offline: cached ? worksOffline(cached, isOffline) : null,
    entry_kinds: [...entryKinds],
    last_success_at: timeOrNull(figures?.succeededAt ?? (cached?.confirmedAt || null)),
    since: timeOf(figures?.startedAt ?? 0),
  };
}

/** Failures in a row after which an upstream that has succeeded before counts as failing. */
const failingLimit = 3;

/** The state of an upstream by its latest answers. */
export function upstreamState({
  upstream,
  figures,
}: Pick<UpstreamView, 'upstream' | 'figures'>): z.input<typeof upstreamItem>['state'] {
  if (upstream.isOffline) return 'offline';
  if (!figures) return 'unused';
  const { pause, failures, lastFailure, succeededAt } = figures;
  if (pause) return 'paused';
  const isFailing = failures > 0 && lastFailure!.at >= (succeededAt ?? 0);
  if (isFailing && (failures >= failingLimit || succeededAt === null)) {
    return lastFailure!.isRefusal ? 'refused' : 'failing';
  }
  return succeededAt === null ? 'unused' : 'working';
}

function worksOffline({ entries, expired }: NonNullable<UpstreamView['cached']>, isOffline: boolean) {
  if (entries === 0) return 'nothing';
  // Of an upstream that is set to offline, documents of any age are served.
  return expired === 0 || isOffline ? 'all' : 'partly';
}

function sumOf(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((sum, each) => sum + each, 0);
}

function milliseconds(seconds: number): number {
  return Math.round(seconds * 10_000) / 10;
}
