import { z } from 'zod';
import { mostPatterns } from '../accounts/names.ts';
import { scopes } from '../accounts/principal.ts';

// What `/v1` sends and takes. Types, checks and the OpenAPI document all come from here.

const time = z.iso.datetime().meta({ description: 'RFC 3339, UTC', example: '2026-01-31T12:00:00.000Z' });
const count = z.int().min(0);
const bytes = count.meta({ description: 'Bytes' });
const origin = z.enum(['hosted', 'mirrored']).meta({ description: 'Pushed here, or copied from an upstream' });
const upstream = z.string().nullable().meta({ description: 'The upstream it was copied from; null when hosted' });

const scope = z.enum(scopes);

/** Their number and length are checked where tokens are made (`parsePatterns`). */
const patternList = (what: string) => z.array(z.string()).meta({ description: what, maxItems: mostPatterns });
const narrowing =
  'The names that the token is narrowed to, for reading and for writing; `*` stands for any characters, and letter case does not count. A kind without patterns is closed. null: all names';
const packages = patternList('Package ids, such as `Contoso.*`');
const containers = patternList('Image repositories, such as `team/*` or `docker.io/library/*`');

export const token = z
  .strictObject({
    id: z.uuid(),
    name: z.string(),
    token_prefix: z
      .string()
      .meta({ description: 'How the value begins: enough to recognise it, too little to use it' }),
    scopes: z.array(scope),
    patterns: z.strictObject({ packages, containers }).nullable().meta({ description: narrowing }),
    created_at: time,
    expires_at: time.nullable(),
    last_used_at: time.nullable(),
    revoked_at: time.nullable(),
  })
  .meta({ id: 'Token' });

export const newToken = token
  .extend({ token: z.string().meta({ description: 'The value. It is shown in this answer only.' }) })
  .meta({ id: 'NewToken' });

export const tokenRequest = z
  .strictObject({
    name: z.string().trim().min(1).max(200),
    scopes: z.array(scope).min(1),
    patterns: z
      .strictObject({ packages: packages.optional(), containers: containers.optional() })
      .nullable()
      .optional()
      .meta({ description: narrowing }),
    expires_at: z.iso
      .datetime({ offset: true })
      .nullable()
      .optional()
      .meta({ description: 'RFC 3339, in the future; never when null or left out' }),
  })
  .meta({ id: 'TokenRequest' });

const packageFields = {
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

export const packageSummary = z.strictObject(packageFields).meta({ id: 'Package' });

export const packageVersion = z
  .strictObject({
    version: z.string(),
    listed: z.boolean(),
    published_at: time,
    cached_at: time.nullable().meta({ description: 'When it was copied from the upstream; null when hosted' }),
    size_bytes: bytes,
    sha512: z.string().meta({ description: 'Of the .nupkg, in Base64' }),
    download_count: count,
  })
  .meta({ id: 'PackageVersion' });

export const packageDetails = z
  .strictObject({
    ...packageFields,
    versions: z.array(packageVersion).meta({ description: 'The newest first, up to a thousand' }),
  })
  .meta({ id: 'PackageDetails' });

export const containerTag = z
  .strictObject({
    name: z.string(),
    digest: z.string(),
    media_type: z.string(),
    size_bytes: bytes,
    updated_at: time,
  })
  .meta({ id: 'ContainerTag' });

export const container = z
  .strictObject({
    name: z.string(),
    origin,
    upstream,
    tags: z.array(containerTag).meta({ description: 'By name, the first thousand' }),
    tag_count: count,
    size_bytes: bytes,
    pull_count: count,
    last_pulled_at: time.nullable(),
  })
  .meta({ id: 'Container' });

const period = { start: time, end: time.meta({ description: 'The first moment that no longer belongs to it' }) };

export const account = z
  .strictObject({
    id: z.string(),
    name: z.string(),
    created_at: time,
    billing_period: z.strictObject(period).meta({ description: 'The current calendar month, UTC' }),
    usage: z.strictObject({
      storage_bytes: bytes,
      egress_bytes: bytes,
      ingress_bytes: bytes,
      requests: count,
      downloads: count,
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
  downloads: count.meta({ description: 'Packages and image manifests that were fetched whole' }),
  uploads: count.meta({ description: 'Packages, symbols packages and manifests that were pushed' }),
  version_checks: count.meta({
    description: 'Service indexes, lists of versions and tags, registrations, and manifests by HEAD',
  }),
  cache_hits: count.meta({ description: 'Mirrored content that was served without asking the upstream' }),
  cache_misses: count.meta({ description: 'Mirrored content for which the upstream was asked' }),
};

export const usageItem = z
  .strictObject({
    date: z.iso.date().nullable().meta({ description: 'The day, with granularity=day' }),
    key: z.string().nullable().meta({
      description:
        'The token id, package id or repository, with group_by; null for what has none, such as anonymous reading or a search',
    }),
    requests: count,
    ...requestCounts,
    egress_bytes: bytes,
    ingress_bytes: bytes,
    upstream_bytes: bytes,
  })
  .meta({ id: 'UsageItem' });

export const usage = z
  .strictObject({
    period: z.strictObject({ ...period, status: z.enum(['open', 'closed']) }),
    as_of: time.meta({ description: 'Up to when all of it is in; of other instances a few seconds may be missing' }),
    storage: z.strictObject({
      current_bytes: bytes,
      peak_bytes: bytes,
      average_bytes: bytes,
      byte_hours: count.meta({ description: 'The sum of the hourly samples' }),
      by_origin: z.strictObject({
        hosted: bytes,
        mirrored: bytes.meta({ description: 'What all accounts share of upstreams, counted with the account default' }),
      }),
    }),
    bandwidth: z.strictObject({ egress_bytes: bytes, ingress_bytes: bytes, upstream_bytes: bytes }),
    requests: z.strictObject({
      total: count.meta({ description: 'Answers 401, 403, 404, 429 and 5xx are not counted, nor are their bytes' }),
      ...requestCounts,
    }),
    items: z.array(usageItem),
    next_cursor: z.string().nullable(),
  })
  .meta({ id: 'Usage' });

export const problemDocument = z
  .looseObject({
    type: z.string(),
    title: z.string(),
    status: z.int(),
    code: z.string().meta({ description: 'What went wrong, for programs' }),
    detail: z.string().meta({ description: 'What to do about it' }),
  })
  .meta({ id: 'Problem' });

/** A page of a list. */
export function listOf<T extends z.ZodType>(item: T) {
  return z.strictObject({
    items: z.array(item),
    next_cursor: z.string().nullable().meta({ description: 'Take it as `cursor` for the next page; null at the end' }),
  });
}

/** RFC 3339 of milliseconds since 1970. */
export function timeOf(milliseconds: number): string {
  return new Date(milliseconds).toISOString();
}

/** RFC 3339, or null where there is no such moment. */
export function timeOrNull(milliseconds: number | null): string | null {
  return milliseconds === null ? null : timeOf(milliseconds);
}
