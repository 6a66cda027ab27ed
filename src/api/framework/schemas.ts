import { byPlural, capital } from '../../config/protocols.ts';
import type { Patterns } from '../../accounts/names.ts';
import { z } from 'zod';
import { maxPatterns } from '../../accounts/names.ts';
import { scopes } from '../../accounts/principal.ts';
import { eventTypes, subjectKinds } from '../../events/event.ts';

// The requests and answers of `/v1`. Types, checks and the OpenAPI document come from these schemas.

export const text = z.string().nullable();
/** A time that a client sends. */
export const givenTime = z.iso.datetime({
  offset: true,
  error: 'expected a time such as 2027-01-31T12:00:00Z',
});
export const time = z.iso.datetime().meta({ description: 'RFC 3339, UTC', example: '2026-01-31T12:00:00.000Z' });
export const count = z.int().min(0);
export const bytes = count.meta({ description: 'Bytes' });
export const origins = ['hosted', 'mirrored'] as const;
export const origin = z
  .enum(origins)
  .meta({ description: 'hosted: pushed to this server; mirrored: copied from an upstream' });
export const upstream = z
  .string()
  .nullable()
  .meta({ description: 'The upstream of mirrored content; null for hosted content' });

/** Numbers by day, for a small plot. */
export const daily = z.array(count).meta({
  description:
    'With `daily=1`: of each of the last 30 days, UTC, today last. What was counted a few seconds ago may be missing',
});

/** The fields `origin` and `upstream` of content that came from this upstream; null for hosted content. */
export function originFields(name: string | null) {
  return { origin: name === null ? ('hosted' as const) : ('mirrored' as const), upstream: name };
}

export const scope = z.enum(scopes);

/** Scopes as a request has them: a bound, because an answer says of each what is wrong. */
export const wantedScopes = z.array(scope).min(1, 'Choose one or more scopes.').max(50);

export const layers = ['account', 'all'] as const;
/** Whether a request concerns the own account, or all accounts. */
export const layerQuery = z.object({
  layer: z
    .enum(layers, 'expected account or all')
    .default('account')
    .meta({ description: '`all` is for all accounts, which needs the scope `operate`' }),
});

/**
 * `parsePatterns` checks the number and length of patterns when a token is created, and says which limit they exceed. Far above it, they
 * are not read one by one.
 */
const patternList = (description: string) =>
  z
    .array(z.string())
    .max(20 * maxPatterns)
    .meta({ description, maxItems: maxPatterns });
const patternsDescription =
  'Limits the token to matching names, for reading and writing. `*` stands for any characters; letter case does not count. Without patterns of a kind, no name of that kind is allowed. null: all names';
const lists = byPlural(({ names, example }) =>
  patternList(`${capital(names)}, such as \`${example.replace(',', '`, `')}\``),
);

export const patterns = z.strictObject(lists).nullable().meta({ description: patternsDescription });

/** Patterns as a request has them. */
export const givenPatterns = z
  .strictObject(lists)
  .partial()
  .nullable()
  .optional()
  .meta({ description: patternsDescription });

export const actor = z.strictObject({
  kind: z.enum(['token', 'person', 'rule', 'anonymous', 'system']),
  id: z.string().nullable().meta({ description: 'Of a token its ID' }),
  name: z.string().nullable().meta({ description: 'Of a token its name; of the system the job, or `command`' }),
});

const marks = {
  severity: z.enum(['low', 'moderate', 'high', 'critical']).nullable().meta({
    description: 'The highest severity of the known vulnerabilities of the stored versions; null without one',
  }),
  deprecated: z
    .boolean()
    .meta({ description: 'Whether a stored version is deprecated. Of a mirrored version only its own answer tells' }),
};

const withdrawnAt = time.nullable().meta({
  description: 'When it was certain that the upstream does not offer it any more; null for everything else',
});

const packageFields = {
  ...marks,
  id: z.string(),
  package_type: z.string().meta({ description: 'NuGet package type, such as Dependency or DotnetTool' }),
  origin,
  upstream,
  latest_version: z.string().nullable(),
  version_count: count,
  size_bytes: bytes,
  download_count: count,
  created_at: time,
  updated_at: time,
  last_downloaded_at: time.nullable(),
};

export const packageSummary = z
  .strictObject({ ...packageFields, daily_downloads: daily.optional() })
  .meta({ id: 'Package' });

export const packageVersion = z
  .strictObject({
    version: z.string(),
    listed: z.boolean(),
    published_at: time,
    cached_at: time
      .nullable()
      .meta({ description: 'When the version was copied from the upstream; null for hosted versions' }),
    withdrawn_at: withdrawnAt,
    size_bytes: bytes,
    sha512: z.string().meta({ description: 'SHA-512 of the .nupkg, in Base64' }),
    download_count: count,
    ...marks,
  })
  .meta({ id: 'PackageVersion' });

export const packageDetails = z
  .strictObject({
    ...packageFields,
    daily_downloads: daily.optional(),
    versions: z.array(packageVersion).meta({ description: 'The newest thousand versions, newest first' }),
  })
  .meta({ id: 'PackageDetails' });

export const containerTag = z
  .strictObject({
    name: z.string(),
    digest: z.string(),
    media_type: z.string(),
    size_bytes: bytes,
    updated_at: time,
    withdrawn_at: withdrawnAt,
  })
  .meta({ id: 'ContainerTag' });

export const container = z
  .strictObject({
    name: z.string(),
    origin,
    upstream,
    tags: z.array(containerTag).meta({
      description:
        'The first tags, by name: at most 1000, and on a page of all images at most 5000. `tag_count` is the number of all',
    }),
    tag_count: count,
    size_bytes: bytes,
    pull_count: count,
    last_pulled_at: time.nullable(),
    daily_pulls: daily.optional(),
  })
  .meta({ id: 'Container' });

const period = { start: time, end: time.meta({ description: 'The first moment after the period' }) };

const measuredAt = time.nullable().meta({
  description: 'When the stored bytes were measured; null if they were not measured yet, and then they are 0',
});

export const account = z
  .strictObject({
    id: z.string(),
    name: z.string(),
    created_at: time,
    billing_period: z.strictObject(period).meta({ description: 'The current calendar month, UTC' }),
    usage: z.strictObject({
      storage_bytes: bytes,
      storage_as_of: measuredAt,
      egress_bytes: bytes,
      ingress_bytes: bytes,
      requests: count,
      downloads: count,
      last_client_at: time
        .nullable()
        .meta({ description: 'When a client, not the console, last used a token of the account, in the last 30 days' }),
      is_used: z.boolean().meta({
        description: 'Whether something is stored, or clients sent requests in this month or in the one before',
      }),
    }),
    limits: z.array(
      z.strictObject({
        name: z.string(),
        unit: z.string(),
        limit: count.nullable().meta({ description: 'null: unlimited' }),
      }),
    ),
  })
  .meta({ id: 'Account' });

const requestCounts = {
  downloads: count.meta({ description: 'Packages and image manifests that were downloaded completely' }),
  uploads: count.meta({ description: 'Packages, symbols packages and manifests that were pushed' }),
  version_checks: count.meta({
    description: 'Service indexes, lists of versions and tags, registrations, and manifests by HEAD',
  }),
  cache_hits: count.meta({ description: 'Requests for mirrored content that were answered without the upstream' }),
  cache_misses: count.meta({ description: 'Requests for mirrored content that needed the upstream' }),
};

export const usageItem = z
  .strictObject({
    date: z.iso.date().nullable().meta({ description: 'The day, with granularity=day' }),
    key: z.string().nullable().meta({
      description:
        'With group_by: the token ID, package ID or repository; null for requests without one, such as anonymous reads or searches',
    }),
    requests: count,
    ...requestCounts,
    egress_bytes: bytes,
    ingress_bytes: bytes,
    upstream_bytes: bytes,
  })
  .meta({ id: 'UsageItem' });

export const usageSchema = z
  .strictObject({
    period: z.strictObject({ ...period, status: z.enum(['open', 'closed']) }),
    as_of: time.meta({
      description: 'The report is complete up to this time, except for the last few seconds of other instances',
    }),
    storage: z.strictObject({
      as_of: measuredAt,
      current_bytes: bytes,
      peak_bytes: bytes,
      average_bytes: bytes,
      byte_hours: count.meta({ description: 'The sum of the hourly samples' }),
      by_origin: z.strictObject({
        hosted: bytes,
        mirrored: bytes.meta({
          description: 'Mirrored content, which all accounts share; counted with the account default',
        }),
      }),
    }),
    bandwidth: z.strictObject({ egress_bytes: bytes, ingress_bytes: bytes, upstream_bytes: bytes }),
    requests: z.strictObject({
      total: count.meta({
        description: 'Without answers 401, 403, 404, 429 and 5xx, whose bytes are not counted either',
      }),
      ...requestCounts,
    }),
    items: z.array(usageItem),
    next_cursor: z.string().nullable(),
    total: usageItem
      .omit({ date: true, key: true })
      .extend({ count: count.meta({ description: 'Names, of 100,000 at most' }) })
      .nullable()
      .optional()
      .meta({
        description:
          'With `total=1`: the names on all pages and their sums, as counted a moment ago. Null while they are counted for the first time',
      }),
  })
  .meta({ id: 'Usage' });

export const event = z
  .strictObject({
    id: z
      .string()
      .meta({ description: 'The position in the record: each event has a greater number than those before' }),
    time,
    type: z.enum(eventTypes),
    account: z.string().nullable().meta({ description: 'The name; null for an event that concerns no account' }),
    actor,
    subject: z.strictObject({
      kind: z.enum(subjectKinds),
      name: z.string().nullable(),
      version: z.string().optional().meta({ description: 'Of a package' }),
      reference: z.string().optional().meta({ description: 'The tag or digest of an image; the kind of a limit' }),
    }),
    address: z.string().nullable().meta({ description: 'The address of the client; null if no client caused it' }),
    request_id: z.string().nullable().meta({ description: '`X-Request-Id` of the request' }),
    details: z.record(z.string(), z.unknown()).meta({
      description:
        '`taken_over_from`: the upstream whose content a first push replaces; `count`: repetitions since the time `since`',
    }),
  })
  .meta({ id: 'Event' });

export const problemDocument = z
  .looseObject({
    type: z.string(),
    title: z.string(),
    status: z.int(),
    code: z.string().meta({ description: 'The kind of error, for programs' }),
    detail: z.string().meta({ description: 'The problem and what to do, for people' }),
  })
  .meta({ id: 'Problem' });

export const session = z
  .strictObject({
    id: z.uuid(),
    token_id: z
      .uuid()
      .nullable()
      .meta({ description: 'The token that it was begun with, and ends with; null for a person' }),
    token_name: z.string().nullable(),
    person: z
      .strictObject({ id: z.string(), name: z.string() })
      .nullable()
      .meta({ description: 'Who signed in with the OpenID Connect provider; null for a token' }),
    agent: z.string().meta({ description: '`User-Agent` of the browser' }),
    address: z.string().nullable(),
    created_at: time,
    last_used_at: time.meta({ description: 'Exact to a minute' }),
  })
  .meta({ id: 'Session' });

export const packageForm = z
  .object({ package: z.string().meta({ format: 'binary', description: 'A .nupkg file' }) })
  .meta({ id: 'PackageForm' });

export const publishedPackage = z
  .strictObject({
    id: z.string(),
    version: z.string(),
    warnings: z.array(z.string()).meta({ description: 'For the publisher' }),
  })
  .meta({ id: 'PublishedPackage' });

/** What a list has in all, if it was asked for. */
export function listTotal(description: string) {
  return z.strictObject({ count, size_bytes: bytes }).nullable().optional().meta({ description });
}
const total = listTotal(
  'With `total=1`: the names on all pages and their bytes; of mirrored ones as counted a moment ago. Null while they are counted for the first time',
);
export const packageList = listOf(packageSummary).extend({ total });
export const containerList = listOf(container).extend({ total });
export const eventList = listOf(event);

/** A page of a list. */
export function listOf<T extends z.ZodType>(item: T) {
  return z.strictObject({
    items: z.array(item),
    next_cursor: z
      .string()
      .nullable()
      .meta({ description: 'Send it as `cursor` to get the next page; null on the last page' }),
  });
}

/** Milliseconds since 1970 as RFC 3339. */
export function timeOf(milliseconds: number): string {
  return new Date(milliseconds).toISOString();
}

/** As `timeOf`; null stays null. */
export function timeOrNull(milliseconds: number | null): string | null {
  return milliseconds === null ? null : timeOf(milliseconds);
}

/** Patterns as an answer shows them: with a list for each kind of names. */
export const shownPatterns = (given: Patterns | null): z.input<typeof patterns> =>
  given && byPlural(({ plural }) => [...(given[plural] ?? [])]);
