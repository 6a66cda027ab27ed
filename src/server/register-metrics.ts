import type { Core } from './core.ts';
import type { Probes } from '../http/probes.ts';
import type { Jobs } from '../jobs/jobs.ts';
import { EventLoopDelay } from '../metrics/delay.ts';
import type { UpstreamFigures } from '../metrics/upstreams.ts';
import { outcomes } from '../mirror/store/counts.ts';
import type { ServerCertificate } from '../tls/certificate.ts';
import type { Upstream } from '../upstream/upstream.ts';
import type { StorageMeter } from '../usage/stored.ts';

// The metrics of the parts below HTTP. docs/metrics.md describes each.

/** The kind of names of a protocol, and the kind of its upstreams. */
interface MirroringProtocol {
  readonly kind: string;
  readonly upstreams: { readonly kind: string };
}

export interface Measured {
  core: Core;
  protocols: readonly MirroringProtocol[];
  jobs: Jobs;
  stored: StorageMeter;
  certificate: ServerCertificate | undefined;
}

/** Adds the metrics of all parts to `operations`. `stack` ends what measures by itself. */
export function addMetrics(operations: Probes, parts: Measured, stack: AsyncDisposableStack): void {
  const { core, certificate } = parts;
  addMirror(operations, core, parts.protocols);
  addUpstreams(operations, core);
  addPolicy(operations, core);
  const startedAt = core.now();
  operations.observeUpstreams(() => figuresOf(core, startedAt));
  addStorage(operations, parts);
  addS3(operations, core);
  addJobs(operations, parts);
  addKnownBad(operations, core, startedAt);
  addDatabase(operations, core);
  const delay = stack.use(new EventLoopDelay());
  operations.histogram('entrepot_event_loop_delay_seconds', 'How late timers of a process run', [], () => [
    [{}, delay.times],
  ]);
  if (certificate) {
    const help = 'When the TLS certificate expires, in seconds since 1970 UTC';
    const read = (): [[Record<string, string>, number]] => [[{}, certificate.expires / 1000]];
    operations.gauge('entrepot_certificate_expires_seconds', help, [], read, 'min');
  }
}

function addPolicy(operations: Probes, { refusals, releases }: Core): void {
  const help = 'Requests for mirrored content that a policy refused, or would refuse in audit mode';
  operations.counter('entrepot_policy_refusals_total', help, ['kind', 'verdict', 'mode'], () =>
    [...refusals.counts].map(({ count, ...labels }) => [labels, count]),
  );
  const released = 'Versions that clients got before their age, because they fix a known vulnerability';
  operations.counter('entrepot_policy_releases_total', released, ['layer'], () =>
    Object.entries(releases.counts).map(([layer, count]) => [{ layer }, count]),
  );
}

function addMirror(operations: Probes, { mirror, upstreams }: Core, protocols: readonly MirroringProtocol[]): void {
  const { counts } = mirror;
  const kinds = protocols.map((each) => each.upstreams.kind);
  operations.counter('entrepot_mirror_requests_total', 'Requests to the mirror', ['kind', 'outcome'], () =>
    kinds.flatMap((kind) => outcomes.map((outcome) => [{ kind, outcome }, counts.requests(kind)[outcome]])),
  );
  const fetched = (kind: string) =>
    upstreams.filter(({ config }) => config.kind === kind).reduce((sum, each) => sum + each.counts.received, 0);
  const help = 'Bytes of mirrored content: sent to clients from the storage, and received from upstreams';
  operations.counter('entrepot_mirror_bytes_total', help, ['kind', 'source'], () =>
    protocols.flatMap(({ kind: name, upstreams: { kind } }) => [
      [{ kind, source: 'store' }, operations.sentFromStore.get(name) ?? 0],
      [{ kind, source: 'upstream' }, fetched(kind)],
    ]),
  );
  const saved = 'Bytes of stored content that an upstream confirmed and did not send again';
  operations.counter('entrepot_mirror_revalidation_saved_bytes_total', saved, ['kind'], () =>
    kinds.map((kind) => [{ kind }, counts.saved(kind)]),
  );
  let withdrawn: ReadonlyMap<string, number> | undefined;
  operations.samples.add(10_000, async () => {
    withdrawn = await mirror.withdrawals.counts();
  });
  const gone = 'Stored versions and tags that an upstream does not offer any more';
  operations.gauge('entrepot_withdrawn', gone, ['upstream'], () =>
    ofEach(upstreams, Math.max, ({ id }) => withdrawn && (withdrawn.get(id) ?? 0)),
  );
  operations.gauge('entrepot_flights', 'Fetches from upstreams in progress', [], () => [[{}, mirror.flights]], 'sum');
  operations.counter('entrepot_joined_flights_total', 'Requests that joined the fetch of another request', [], () => [
    [{}, counts.joined],
  ]);
}

function addUpstreams(operations: Probes, { mirror, upstreams, now }: Core): void {
  const labels = ['upstream'] as const;
  operations.counter('entrepot_upstream_requests_total', 'Requests to an upstream', ['upstream', 'status'], () =>
    upstreams.flatMap(({ id, counts }) =>
      [...counts.statuses].map(([status, count]): Value => [{ upstream: id, status }, count]),
    ),
  );
  const seconds = 'Time until an upstream began to answer, or failed';
  operations.histogram('entrepot_upstream_request_seconds', seconds, labels, () =>
    upstreams.map(({ id, counts }) => [{ upstream: id }, counts.times]),
  );
  const sums: [name: string, help: string, read: (counts: Upstream['counts']) => number][] = [
    ['slow_bodies', 'Bodies of an upstream that were cut because they came too slowly', ({ slowBodies }) => slowBodies],
    [
      'audits_without_data',
      'Answers with vulnerability data that lack those of an upstream, because it fails and has never sent any',
      ({ auditsWithout }) => auditsWithout,
    ],
  ];
  for (const [name, help, read] of sums) {
    operations.counter(`entrepot_upstream_${name}_total`, help, labels, () =>
      ofEach(
        upstreams,
        (one, other) => one + other,
        ({ counts }) => read(counts),
      ),
    );
  }
  const waiting = 'Fetches that wait because the upstream uses its places of an account, or all are in use';
  operations.gauge(
    'entrepot_upstream_waiting_fetches',
    waiting,
    labels,
    () => ofEach(upstreams, Math.max, ({ id }) => mirror.waiting(id)),
    'sum',
  );
  const open = '1 while requests to an upstream are paused, or were and none has succeeded since';
  operations.gauge('entrepot_upstream_breaker_open', open, labels, () =>
    ofEach(upstreams, Math.max, ({ isPaused }) => (isPaused ? 1 : 0)),
  );
  const limits = {
    remaining: 'Requests that an upstream still allows',
    limit: 'Requests that an upstream allows in all',
  };
  for (const [field, help] of Object.entries(limits) as [keyof typeof limits, string][]) {
    const read = () => ofEach(upstreams, Math.min, ({ counts }) => counts.rateLimit(now())?.[field]);
    operations.gauge(`entrepot_upstream_ratelimit_${field}`, help, labels, read, 'min');
  }
}

/** What this process knows about each upstream. */
export function figuresOf({ mirror, upstreams, now }: Core, startedAt: number): UpstreamFigures[] {
  return upstreams.map(({ id, config, counts, pause }) => {
    const { requests, saved, sent } = mirror.counts.of(config.kind, id);
    const { statuses, times, received, succeededAt, lastFailure, failures, auditsWithout } = counts;
    const { bounds, counts: seconds, sum } = times;
    return {
      kind: config.kind,
      id,
      startedAt,
      processes: 1,
      statuses: Object.fromEntries(statuses),
      outcomes: { ...requests },
      saved,
      sent,
      received,
      times: { bounds, counts: [...seconds], sum },
      succeededAt,
      lastFailure,
      failures,
      auditsWithout,
      open: pause ? 1 : 0,
      pause: pause ?? null,
      rateLimit: counts.rateLimit(now()) ?? null,
    };
  });
}

type Value = [labels: Record<string, string>, value: number];

/** One value for each ID: a feed and a registry may have the same. */
function ofEach(
  upstreams: readonly Upstream[],
  join: (one: number, other: number) => number,
  read: (upstream: Upstream) => number | undefined,
): Value[] {
  const values = new Map<string, number>();
  for (const upstream of upstreams) {
    const value = read(upstream);
    const before = values.get(upstream.id);
    if (value !== undefined) values.set(upstream.id, before === undefined ? value : join(before, value));
  }
  return [...values].map(([id, value]) => [{ upstream: id }, value]);
}

function addStorage(operations: Probes, { core: { blobs, room }, stored }: Measured): void {
  const sampled = <T>(every: number, measure: () => Promise<T>) => {
    let value: T | undefined;
    operations.samples.add(every, async () => {
      value = await measure();
    });
    return () => value;
  };
  const disk = sampled(1000, () => room.measure());
  const staged = sampled(30_000, () => blobs.stagedBytes());
  const bytes = sampled(10_000, () => stored.sampled());
  const free = 'Free bytes of the disk with the data folder';
  operations.gauge('entrepot_disk_free_bytes', free, [], () => one(disk()?.free), 'min');
  const reserve = 'Bytes of the disk that are kept free (storage.reserve)';
  operations.gauge('entrepot_disk_reserve_bytes', reserve, [], () => one(disk()?.reserve));
  operations.gauge('entrepot_staged_bytes', 'Bytes of files that are being received', [], () => one(staged()));
  const help = 'Stored bytes by the latest hourly sample';
  operations.gauge('entrepot_storage_bytes', help, ['origin'], () =>
    Object.entries(bytes() ?? {}).map(([origin, value]) => [{ origin }, value]),
  );
}

/** The metrics of a storage in S3 and of its local copies. */
function addS3(operations: Probes, { driver: { counts } }: Core): void {
  if (!counts) return;
  const { s3, cache } = counts;
  const help = 'Requests to S3, each retry too';
  operations.counter('entrepot_s3_requests_total', help, ['operation', 'result'], () => s3.requests());
  const seconds = 'Time until S3 began to answer, or a request failed';
  operations.histogram('entrepot_s3_request_seconds', seconds, ['operation'], () =>
    [...s3.times].map(([operation, times]) => [{ operation }, times]),
  );
  operations.counter(
    'entrepot_s3_bytes_total',
    'Bytes of content that were sent to S3 and received',
    ['direction'],
    () => [
      [{ direction: 'out' }, s3.sent],
      [{ direction: 'in' }, s3.received],
    ],
  );
  operations.counter('entrepot_s3_retries_total', 'Requests to S3 that were repeated', [], () => [[{}, s3.retries]]);
  if (!cache) return;
  const opened = 'Openings of content in S3: with a local copy, with one that was being made, or without';
  operations.counter('entrepot_storage_cache_requests_total', opened, ['outcome'], () => [
    [{ outcome: 'hit' }, cache.hit],
    [{ outcome: 'joined' }, cache.joined],
    [{ outcome: 'miss' }, cache.miss],
  ]);
  operations.gauge('entrepot_storage_cache_bytes', 'Bytes of local copies', [], () => [[{}, cache.bytes]]);
  const evicted = 'Local copies that were deleted to make room';
  operations.counter('entrepot_storage_cache_evictions_total', evicted, [], () => [[{}, cache.evicted]]);
}

function addJobs(operations: Probes, { core, jobs }: Measured): void {
  const { now, events } = core;
  const startedAt = now();
  let successes: ReadonlyMap<string, number> = new Map();
  operations.samples.add(10_000, async () => {
    successes = await jobs.successes();
  });
  operations.expectJobs(jobs.names);
  const help = 'When a scheduled job last succeeded, or this process started if it never did; seconds since 1970 UTC';
  operations.gauge('entrepot_job_last_success_seconds', help, ['job'], () =>
    jobs.scheduled.map((job) => [{ job }, (successes.get(job) ?? startedAt) / 1000]),
  );
  let waiting: number | undefined;
  operations.samples.add(1000, async () => {
    waiting = await events.undispatched();
  });
  const undispatched = 'Recorded events that readers cannot see yet; counted up to 10,000';
  operations.gauge('entrepot_events_undispatched', undispatched, [], () => one(waiting));
}

function addKnownBad(operations: Probes, { knownBad, now }: Core, startedAt: number): void {
  let lists: Awaited<ReturnType<typeof knownBad.states>> = [];
  operations.samples.add(10_000, async () => {
    lists = await knownBad.states(now());
  });
  const labels = ['list'] as const;
  const entries = 'Entries of a list of known bad content';
  operations.gauge('entrepot_known_bad_list_entries', entries, labels, () =>
    lists.map(({ name: list, entries: count }) => [{ list }, count]),
  );
  const age = 'Time since a list was last read or confirmed, or since this process started if it never was';
  operations.gauge('entrepot_known_bad_list_age_seconds', age, labels, () =>
    lists.map(({ name: list, refreshedAt }) => [{ list }, Math.max(0, now() - (refreshedAt ?? startedAt)) / 1000]),
  );
  const failures = 'Failed attempts to read a list since the last success';
  operations.gauge('entrepot_known_bad_list_failures', failures, labels, () =>
    lists.map(({ name: list, failures: count }) => [{ list }, count]),
  );
  const used = 'Packages and images that a list names and clients used in the last 30 days; counted up to 100';
  operations.gauge('entrepot_known_bad_list_in_use', used, labels, () =>
    lists.map(({ name: list, inUse }) => [{ list }, new Set(inUse.map(({ name }) => name)).size]),
  );
}

function addDatabase(operations: Probes, { database, cache: { redis } }: Core): void {
  const seconds = 'Time of a read or a whole transaction of the database';
  operations.histogram('entrepot_database_seconds', seconds, ['operation'], () =>
    Object.entries(database.times).map(([operation, times]) => [{ operation }, times]),
  );
  if (!redis) return;
  operations.histogram('entrepot_redis_seconds', 'Time of a command of Redis', [], () => [[{}, redis.times]]);
  operations.counter('entrepot_redis_failures_total', 'Failed commands and connections of Redis', [], () => [
    [{}, redis.failures],
  ]);
}

function one(value: number | undefined): Value[] {
  return value === undefined ? [] : [[{}, value]];
}
