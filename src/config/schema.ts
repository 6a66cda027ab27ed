import { aliases } from './aliases.ts';
import { byPlural, capital } from './protocols.ts';
import proxyAddress from 'proxy-addr';
import { z } from 'zod';
import { isHostName, isReceiver } from './hosts.ts';
import { oidc, publishers, trustedIssuers } from './identity.ts';
import { internal } from './internal.ts';
import { jobSchedules } from './jobs.ts';
import { limits } from './limits.ts';
import { data, database, redis } from './place.ts';
import { checkStorageSettings, storage } from './storage.ts';
import { predecessors } from './predecessors.ts';
import { deletedFor, retention } from './retention.ts';
import { duration, sizeSetting, timerTime, whole } from './units.ts';
import { hasNoUser, publicUpstreams, upstreams } from './upstreams.ts';

/** An address that this server shows in answers and messages, so it cannot contain a secret. */
const url = z
  .url({ protocol: /^https?$/, error: 'expected an http or https URL', abort: true })
  .refine(hasNoUser, 'a URL here cannot have a user name or password');
const port = whole(0, 65_535);
const flag = z.union([z.boolean(), z.stringbool({ truthy: ['true'], falsy: ['false'] })], {
  error: 'expected true or false',
});
const trustExpected =
  'expected true, false, a number of proxies up to 100, or addresses such as loopback or 10.0.0.0/8';
/** The number of trusted proxies, or their addresses. */
const trustProxy = z
  .union([z.boolean(), z.number(), z.string(), z.array(z.string())], { error: trustExpected })
  .transform((value, context): number | readonly string[] => {
    if (typeof value === 'boolean') return value ? 1 : 0;
    const text = String(value).trim();
    if (text === 'true' || text === 'false') return text === 'true' ? 1 : 0;
    if (/^\d{1,3}$/.test(text) && Number(text) <= 100) return Number(text);
    const addresses = text.split(',').map((each) => each.trim());
    try {
      proxyAddress.compile(addresses);
      // `proxyAddress` also reads a number as an address.
      if (addresses.every((each) => /[a-z.:]/i.test(each))) return addresses;
    } catch {
      // Handled below.
    }
    context.addIssue({ code: 'custom', message: trustExpected });
    return z.NEVER;
  });
/** `true` and `false` are the values of earlier versions. */
const anonymousRead = z
  .union([z.boolean(), z.enum(['none', 'mirrored', 'all', 'true', 'false'])], {
    error: 'expected none, mirrored or all',
  })
  .transform((value) => {
    const text = String(value);
    if (text === 'mirrored') return 'mirrored';
    return text === 'all' || text === 'true' ? 'all' : 'none';
  });
/** A timer of Node counts up to 24 days. */
const shutdownTime = duration.pipe(z.number().max(3_600_000, 'expected 1h or less'));
/** A session cannot end before a visitor has read a page. */
const sessionTime = duration.pipe(
  z
    .number()
    .min(60_000, 'expected 1m or more')
    .max(90 * 86_400_000, 'expected 90d or less'),
);
/** A waiver must outlive the requests for it. */
const waiverTime = duration.pipe(
  z
    .number()
    .min(3_600_000, 'expected 1h or more')
    .max(3650 * 86_400_000, 'expected 3650d or less'),
);
/** Times of personal tokens. */
const tokenTime = duration.pipe(
  z
    .number()
    .min(86_400_000, 'expected 1d or more')
    .max(3650 * 86_400_000, 'expected 3650d or less'),
);
const file = z.string().min(1);
const patterns = z.array(z.string().min(1));

/** Servers that users of accounts may let this server reach, although they are not public. */
function privateServers(what: string) {
  const server = z.string().refine(isReceiver, 'expected host names, addresses, or networks such as 10.0.0.0/8');
  return z.array(server).default([]).describe(`${what}: hosts, addresses, networks such as \`10.0.0.0/8\``);
}

/**
 * Every setting with its type, default and description. The environment name follows from the path
 * (`environmentName`). A test compares the table in docs/settings.md with this file.
 */

export const schema = z.strictObject({
  server: z
    .strictObject({
      host: z.string().min(1).default('127.0.0.1').describe('Address to listen on'),
      port: port.default(8080).describe('Port to listen on; 0 chooses a free port'),
      baseUrl: url.optional().describe('Public URL; by default taken from the Host header of each request'),
      feedUrl: url.optional().describe('Public URL of the package feed, if it differs from the base URL'),
      registryUrl: url.optional().describe('Public URL of the registry, if it differs from the base URL'),
      hosts: z
        .array(z.string().refine(isHostName, 'expected host names or addresses without ports'))
        .default([])
        .describe('With a base URL, further host names and addresses at which clients may reach the server'),
      adminPort: port.optional().describe('Separate port for /livez, /readyz and /metrics'),
      adminHost: z
        .string()
        .min(1)
        .optional()
        .describe('Address to listen on for the admin port; by default that of the port'),
      trustProxy: trustProxy
        .prefault(false)
        .describe(
          'Reverse proxies whose X-Forwarded-Proto, -Host and -For are trusted: how many (`true`: 1), or their addresses, such as `loopback,10.0.0.0/8`',
        ),
      shutdownDelay: shutdownTime
        .prefault('0s')
        .describe(
          'After SIGTERM, keep serving for this long with /readyz red, so that load balancers notice; part of shutdownGrace',
        ),
      tls: z
        .strictObject({
          certFile: file
            .optional()
            .describe('PEM file of the certificate, with its chain: serve HTTPS on the port, and refuse plain HTTP'),
          keyFile: file.optional().describe('PEM file of the private key; changed files are used without a restart'),
        })
        .superRefine(({ certFile, keyFile }, context) => {
          const other = 'is used only together with';
          if (keyFile === undefined && certFile !== undefined)
            context.addIssue({ code: 'custom', path: ['certFile'], message: `${other} server.tls.keyFile` });
          if (certFile === undefined && keyFile !== undefined)
            context.addIssue({ code: 'custom', path: ['keyFile'], message: `${other} server.tls.certFile` });
        })
        .prefault({}),
      internal,
      workers: whole(1, 64).default(1).describe('Server processes that share the port; more than one requires Redis'),
    })
    .prefault({}),
  shutdownGrace: shutdownTime
    .prefault('25s')
    .describe('After SIGTERM, time for current requests; the process exits at most 5 s later'),
  data,
  database,
  redis,
  bootstrapToken: z
    .string()
    .min(8)
    .optional()
    .meta({ secret: true })
    .describe('Value of the first token, 32 or more characters; by default a random token is created and printed once'),
  anonymousRead: anonymousRead
    .default('none')
    .describe('Reading without a token: `none`, `mirrored` (only mirrored content) or `all` (also account `default`)'),
  signIn: z
    .strictObject({
      session: z
        .strictObject({
          idle: sessionTime.prefault('12h').describe('End a session of the console that is not used for this long'),
          absolute: sessionTime.prefault('7d').describe('End every session of the console after this long'),
        })
        .prefault({}),
      tokens: z
        .strictObject({
          idle: tokenTime
            .prefault('30d')
            .describe('Refuse the personal tokens of somebody who has not signed in to the console for this long'),
          absolute: tokenTime.prefault('365d').describe('The longest life of a personal token'),
        })
        .prefault({}),
      oidc,
    })
    .prefault({}),
  trustedIssuers: trustedIssuers
    .default([])
    .describe('Issuers of identity tokens, such as of a CI, that can be exchanged for short-lived tokens'),
  publishers: publishers
    .default([])
    .describe('Rules that say which identity tokens are exchanged, and for which scopes and names'),
  console: z
    .strictObject({
      enabled: flag.default(true).describe('Serve the web console at `/console/`'),
    })
    .prefault({}),
  secretKeyFile: file
    .optional()
    .describe(
      'File with the key (32 or more characters) that encrypts the secrets of webhooks and signs observed bills of materials; the same for all instances; by default `secret-key` in the data folder, made when needed',
    ),
  offline: flag.default(false).describe('Never contact an upstream'),
  log: z
    .strictObject({
      level: z
        .enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'])
        .default('info')
        .describe('fatal, error, warn, info, debug, trace or silent'),
    })
    .prefault({}),
  limits,
  upstreams: upstreams
    .default(() => publicUpstreams)
    .describe('Upstream feeds and registries, in order; public ones by default'),
  predecessors: predecessors
    .default([])
    .describe('Servers that this one replaces: their hosted content comes when it is asked for, and in the background'),
  aliases: aliases
    .default([])
    .describe('Addresses and hosts of servers that this one replaces, at which it answers, too'),
  reserved: z
    .strictObject(
      byPlural(({ names }) =>
        patterns.default([]).describe(`${capital(names)} that are never sent to an upstream, hosted or not`),
      ),
    )
    .prefault({}),
  merge: z
    .strictObject({
      packages: patterns.default([]).describe('Hosted package IDs whose other versions may come from an upstream'),
    })
    .prefault({}),
  mirror: z
    .strictObject({
      maxSize: sizeSetting
        .optional()
        .describe(
          'Most bytes of mirrored content to keep; the least recently used is deleted first, content of offline upstreams, and what upstreams have withdrawn, never',
        ),
      unreadRest: sizeSetting
        .prefault('16MiB')
        .describe(
          'After all clients of a download disconnect, finish it only if at most this much, or a tenth, is missing',
        ),
      keepPartial: timerTime(0, 24)
        .prefault('10m')
        .describe('Keep the received part of an unfinished download for this long, so that it can resume'),
    })
    .prefault({}),
  retention,
  deletedFor,
  gc: z
    .strictObject({
      grace: duration.prefault('24h').describe('Keep unreferenced bytes for this long after they were stored'),
    })
    .prefault({}),
  storage: z
    .strictObject({
      ...storage,
      reserve: sizeSetting
        .prefault('256MiB')
        .describe(
          'Free disk space to keep; with less, pushes are refused with 507, and upstream content is sent to clients but not stored',
        ),
    })
    .superRefine(checkStorageSettings)
    .prefault({}),
  audit: z
    .strictObject({
      keep: duration.prefault('90d').describe('Keep events, which `/v1/audit` shows, for this long'),
    })
    .prefault({}),
  usage: z
    .strictObject({
      keepPulls: duration
        .prefault('400d')
        .describe('Keep for this long which token or job pulled which content on which day; `0d` records nothing'),
    })
    .prefault({}),
  bundles: z
    .strictObject({
      key: file.optional().describe('PEM file of the private key that signs bundles made by `/v1` and the console'),
      segment: sizeSetting
        .pipe(z.number().min(1, 'expected more than 0'))
        .prefault('16GiB')
        .describe('Largest segment of a bundle that can be sent to be imported'),
    })
    .prefault({}),
  webhooks: z.strictObject({ allow: privateServers('Private receivers that webhooks may call') }).prefault({}),
  imports: z.strictObject({ allow: privateServers('Private servers that `/v1/imports` may read') }).prefault({}),
  waivers: z
    .strictObject({
      longest: waiverTime.prefault('90d').describe('The longest life of a waiver of what the policy refuses'),
    })
    .prefault({}),
  scrub: z
    .strictObject({
      rate: sizeSetting
        .pipe(z.number().min(1, 'expected more than 0'))
        .prefault('32MiB')
        .describe('Most bytes per second that a scrub reads'),
    })
    .prefault({}),
  prefetch: z
    .strictObject({
      files: z
        .array(z.string().min(1))
        .default([])
        .describe('Files that list what the job `prefetch` fetches, or folders, as for the command'),
      inUse: flag
        .default(true)
        .describe('Also fetch the newest versions of mirrored packages, and tags that were pulled'),
      newest: whole(1, 1000).default(1).describe('Number of versions to fetch of each mirrored package'),
      usedWithin: duration.prefault('30d').describe('Refresh tags that were pulled within this time'),
      platforms: z
        .array(z.string().regex(/^[a-z0-9]+\/[a-z0-9_]+(?:\/[a-z0-9.]+)?$/, 'expected platforms such as linux/amd64'))
        .default([])
        .describe('Platforms to fetch of multi-platform images; all by default'),
      frameworks: z
        .array(z.string().min(1))
        .default([])
        .describe('Target frameworks to choose dependencies for, such as net8.0; all by default'),
      referrers: flag.default(true).describe('Also fetch signatures and other referrers of each image'),
      concurrency: whole(1, 64).default(4).describe('Number of concurrent fetches'),
      rate: sizeSetting
        .pipe(z.number().min(1, 'expected more than 0'))
        .optional()
        .describe('Most bytes per second from all upstreams together; unlimited by default'),
      rateLimitShare: whole(1, 100).default(80).describe('Percentage of an upstream’s announced rate limit to use'),
      window: z
        .string()
        .regex(/^((?:[01]\d|2[0-3]):[0-5]\d)-(?!\1$)(?:[01]\d|2[0-3]):[0-5]\d$/, 'expected hours such as 22:00-06:00')
        .optional()
        .describe('Fetch only during these hours (local time), such as `22:00-06:00`'),
    })
    .prefault({}),
  jobs: jobSchedules,
});

export type Config = z.output<typeof schema>;
export type UpstreamConfig = Config['upstreams'][number];

export interface Setting {
  /** The path in the file: `server.baseUrl`. */
  path: string;
  /** The name in the environment: `ENTREPOT_BASE_URL`. */
  environment: string;
  doc: string;
  /** As written in a file; undefined without a default. */
  default: unknown;
  secret: boolean;
  /** Whether the value in the environment is JSON (for lists). */
  json: boolean;
}

/** `server.baseUrl` → `ENTREPOT_BASE_URL`: the path in capitals, without the section `server`. */
export function environmentName(path: string): string {
  const words = path.replace(/^server\./, '').replace(/[A-Z]/g, (letter) => `_${letter}`);
  return `ENTREPOT_${words.replaceAll('.', '_').toUpperCase()}`;
}

/** All settings as a flat list, in the order of the schema. */
export const settings: readonly Setting[] = flatten(schema, '');

function flatten(type: z.ZodType, path: string): Setting[] {
  const { inner, fallback, meta } = unwrap(type);
  if (inner instanceof z.ZodObject) {
    return Object.entries(inner.shape as Record<string, z.ZodType>).flatMap(([key, child]) =>
      flatten(child, path ? `${path}.${key}` : key),
    );
  }
  return [
    {
      path,
      environment: environmentName(path),
      doc: meta.description ?? '',
      default: fallback,
      secret: meta['secret'] === true,
      json: inner instanceof z.ZodArray,
    },
  ];
}

function unwrap(type: z.ZodType): { inner: z.ZodType; fallback: unknown; meta: z.GlobalMeta } {
  let inner = type;
  let fallback: unknown;
  let meta: z.GlobalMeta = {};
  for (;;) {
    meta = { ...inner.meta(), ...meta };
    if (inner instanceof z.ZodDefault || inner instanceof z.ZodPrefault) fallback = inner.def.defaultValue;
    if (inner instanceof z.ZodDefault || inner instanceof z.ZodPrefault || inner instanceof z.ZodOptional) {
      inner = inner.def.innerType as z.ZodType;
    } else {
      return { inner, fallback, meta };
    }
  }
}
