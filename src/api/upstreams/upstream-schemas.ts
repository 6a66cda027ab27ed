import { upstreamKinds } from '../../config/protocols.ts';
import { z } from 'zod';
import { daily, listOf, listTotal } from '../framework/schemas.ts';

// The answers of `/v1/upstreams`.

const time = z.iso.datetime().meta({ description: 'RFC 3339, UTC', example: '2026-01-31T12:00:00.000Z' });
const count = z.int().min(0);
const bytes = z.int().min(0).meta({ description: 'Bytes' });
const sinceStart = 'Since the start of this instance, of all its workers';

export const upstreamItem = z
  .strictObject({
    id: z.string().meta({ description: 'Unique among the upstreams of its kind' }),
    name: z.string().meta({ description: 'The name by which clients use it' }),
    kind: z.enum(upstreamKinds),
    url: z.string(),
    mode: z.enum(['online', 'offline']).meta({ description: 'offline: no request is ever sent to it' }),
    accounts: z.array(z.string()).nullable().meta({ description: 'The accounts that it serves; null for all' }),
    state: z.enum(['working', 'failing', 'refused', 'paused', 'offline', 'unused']).meta({
      description:
        'From the latest requests. failing: the last three failed, or none has succeeded. refused: it does not accept the credentials. unused: no request was sent since the start of this instance',
    }),
    last_failure: z
      .strictObject({
        time,
        subject: z.string().meta({ description: 'What was requested' }),
        reason: z.string().meta({ description: 'What the upstream did' }),
      })
      .nullable()
      .meta({ description: sinceStart }),
    failures: count.meta({ description: 'Requests that failed since the last success' }),
    audits_without_data: count.meta({
      description: `Answers with vulnerability data that lack those of this feed, because it fails and has never sent any. ${sinceStart}`,
    }),
    breaker: z
      .strictObject({
        state: z.enum(['closed', 'open']).meta({ description: 'open: requests are paused, or the next one is a test' }),
        workers: count.meta({ description: 'Workers of this instance' }),
        open_workers: count.meta({ description: 'Workers whose breaker is open' }),
        since: time.nullable(),
        reason: z.string().nullable(),
        next_attempt_at: time
          .nullable()
          .meta({ description: 'The first request after this time is sent. In the past: the next request is sent' }),
      })
      .meta({ description: 'Of all workers of this instance' }),
    rate_limit: z
      .strictObject({ limit: count.nullable(), remaining: count, resets_at: time })
      .nullable()
      .meta({ description: 'As the upstream last announced it; null if it did not, or if the window is over' }),
    latency: z
      .strictObject({
        median_ms: z.number().min(0),
        p95_ms: z.number().min(0).meta({ description: '95 % of the requests were faster. At most 30,000' }),
        requests: count,
      })
      .nullable()
      .meta({
        description: `Time until it began to answer, estimated from a histogram; null without an answer. ${sinceStart}`,
      }),
    requests: z
      .strictObject({
        sent: count.meta({ description: 'Requests to the upstream, each retry and redirect too' }),
        received_bytes: bytes,
        needed: count.meta({ description: 'Documents and files that requests of clients needed from it' }),
        by_outcome: z.record(z.string(), count),
        hits: count.meta({ description: 'Of `needed`, those that were answered from the storage without a request' }),
      })
      .meta({ description: sinceStart }),
    saved: z
      .strictObject({
        requests: count.meta({ description: 'Requests that were not sent to the upstream' }),
        bytes: bytes.meta({ description: 'Bytes that clients got from the storage' }),
        seconds: z.number().min(0).meta({ description: 'Saved requests times the mean time until an answer began' }),
      })
      .meta({ description: sinceStart }),
    week: z
      .strictObject({
        requests: count.meta({ description: 'Requests that were sent' }),
        failures: count.meta({ description: 'Those without an answer that can be used' }),
        needed: count.meta({ description: 'Documents and files that clients needed' }),
        hits: count.meta({ description: 'Those of them that needed no request' }),
        received_bytes: bytes,
        saved_seconds: z.number().min(0).meta({ description: '`hits` times the mean time until an answer began' }),
      })
      .meta({ description: 'Of the last 7 days and all instances, added up once a minute' }),
    cached: z
      .strictObject({
        entries: count,
        size_bytes: bytes.meta({ description: 'Each content counted once' }),
        expired_documents: count.meta({
          description: 'Documents that are older than freshFor and staleFor together, and not served while it fails',
        }),
        unused_bytes: bytes.meta({ description: 'Of `size_bytes`, content that no client has used for 90 days' }),
        as_of: time,
      })
      .nullable()
      .meta({ description: 'What is stored of it, counted once a minute at most; null during the first count' }),
    works_offline: z.enum(['all', 'partly', 'nothing']).nullable().meta({
      description: 'How much of what is stored would be served without the upstream; null during the first count',
    }),
    entry_kinds: z.array(z.string()).meta({ description: 'The kinds of its entries' }),
    last_success_at: time.nullable().meta({
      description: 'When it last answered without a failure; before the start, when it last sent what is stored',
    }),
    since: time.meta({ description: 'The start of this instance' }),
    daily_requests: daily.optional(),
  })
  .meta({ id: 'Upstream' });

export const upstreamList = listOf(upstreamItem)
  .extend({
    month: z
      .strictObject({
        start: time,
        as_of: time,
        requests: count.meta({ description: 'Requests for mirrored content' }),
        hits: count.meta({ description: 'Those that were answered without an upstream' }),
        upstream_bytes: bytes.meta({ description: 'Bytes that upstreams sent' }),
      })
      .meta({ description: 'This month, of all accounts and instances, added up once a minute' }),
  })
  .meta({ id: 'UpstreamList' });

export const upstreamHistory = z
  .strictObject({
    step_seconds: count.meta({ description: 'The length of the time of each item' }),
    items: z.array(
      z.strictObject({
        start: time,
        requests: count.meta({ description: 'Requests that were sent' }),
        failures: count.meta({ description: 'Those without an answer that can be used' }),
        mean_ms: z
          .number()
          .min(0)
          .nullable()
          .meta({ description: 'Mean time until it began to answer; null without requests' }),
        needed: count.meta({ description: 'Documents and files that clients needed' }),
        hits: count.meta({ description: 'Those of them that needed no request' }),
        received_bytes: bytes,
      }),
    ),
  })
  .meta({ id: 'UpstreamHistory' });

export const upstreamEntry = z
  .strictObject({
    id: z.string().meta({ description: '64 hexadecimal digits' }),
    kind: z.string().meta({ description: 'Such as nupkg, manifest or blob' }),
    name: z.string().meta({ description: 'The package ID in lower case, or the repository' }),
    reference: z.string().meta({ description: 'The version, the tag or the digest' }),
    digest: z.string(),
    content_type: z.string(),
    size_bytes: bytes,
    stored_at: time,
    validated_at: time.meta({ description: 'When the upstream last confirmed it' }),
    last_used_at: time,
  })
  .meta({ id: 'UpstreamEntry' });

export const upstreamEntryList = listOf(upstreamEntry).extend({
  total: listTotal(
    'With `total=1`: the entries on all pages, and their bytes, each content of a kind counted once. Without `name` as counted once a minute, and null during the first count; with `name`, null for more than 10,000 entries',
  ),
});
