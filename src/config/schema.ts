import { z } from 'zod';
import { duration, schedule, size, whole } from './units.ts';

const url = z.url({ protocol: /^https?$/, error: 'expected an http or https URL' });
const port = whole(0, 65_535);
const flag = z.union([z.boolean(), z.stringbool({ truthy: ['true'], falsy: ['false'] })], {
  error: 'expected true or false',
});
const patterns = z.array(z.string().min(1));

const upstreamAuth = z.union(
  [
    z.strictObject({ username: z.string().min(1), password: z.string() }),
    z.strictObject({ username: z.string().min(1), passwordFile: z.string() }),
    z.strictObject({ bearer: z.string().min(1) }),
    z.strictObject({ bearerFile: z.string() }),
  ],
  { error: 'expected {username, password or passwordFile} or {bearer or bearerFile}' },
);

const upstream = z.strictObject({
  name: z.string().regex(/^[a-z0-9]+(?:[.-][a-z0-9]+)*(?::\d+)?$/, 'expected a name such as nuget.org or docker.io'),
  kind: z.enum(['nuget', 'registry']),
  url: url.optional(),
  symbolsUrl: url.optional(),
  mode: z.enum(['online', 'offline']).default('online'),
  default: z.boolean().default(false),
  freshFor: duration.prefault('5m'),
  staleFor: duration.prefault('365d'),
  negativeFor: duration.prefault('1m'),
  timeout: duration.prefault('10s'),
  include: patterns.default(['*']),
  exclude: patterns.default([]),
  allowPrivateNetwork: z.boolean().default(false),
  caFile: z.string().optional(),
  auth: upstreamAuth.optional(),
});

/** Public upstreams, asked unless the configuration lists others. */
const publicUpstreams = [
  { name: 'nuget.org', kind: 'nuget' as const },
  { name: 'docker.io', kind: 'registry' as const, default: true },
  { name: 'ghcr.io', kind: 'registry' as const },
  { name: 'quay.io', kind: 'registry' as const },
  { name: 'mcr.microsoft.com', kind: 'registry' as const },
  { name: 'registry.k8s.io', kind: 'registry' as const },
];

const upstreams = z.array(upstream).superRefine((list, context) => {
  const seen = new Set<string>();
  for (const [index, { kind, name }] of list.entries()) {
    if (seen.has(`${kind} ${name}`)) {
      context.addIssue({
        code: 'custom',
        path: [index, 'name'],
        message: `there are two ${kind} upstreams named ${name}`,
      });
    }
    seen.add(`${kind} ${name}`);
  }
  if (list.filter(({ kind, default: chosen }) => kind === 'registry' && chosen).length > 1) {
    context.addIssue({ code: 'custom', message: 'only one registry can be the default' });
  }
});

/**
 * Every setting: its type, its default and the line that documents it. A setting's environment name follows from its
 * path (`environmentName`); the README's table is checked against this file.
 */
export const schema = z.strictObject({
  server: z
    .strictObject({
      host: z.string().min(1).default('127.0.0.1').describe('Address to listen on'),
      port: port.default(8080).describe('Port to listen on; 0 takes a free one'),
      baseUrl: url.optional().describe('Public URL; by default taken from each request’s Host'),
      feedUrl: url.optional().describe('Public URL of the package feed, if it differs from the base URL'),
      registryUrl: url.optional().describe('Public URL of the registry, if it differs from the base URL'),
      adminPort: port.optional().describe('Serve /livez, /readyz and /metrics on this port instead'),
      trustProxy: flag
        .default(false)
        .describe('Believe X-Forwarded-Proto, -Host and -For (behind a reverse proxy only)'),
      workers: whole(1, 64).default(1).describe('Processes that serve on one port; more than one needs Redis'),
    })
    .prefault({}),
  data: z.string().min(1).default('./data').describe('Folder of the blobs and of the embedded database'),
  database: z
    .strictObject({
      url: z
        .string()
        .regex(
          /^(?:sqlite:.+|(?:mysql|mariadb):\/\/.+)$/,
          'expected sqlite:PATH or mysql://user:password@host:port/name',
        )
        .optional()
        .meta({ secret: true })
        .describe('`sqlite:PATH` or `mysql://user:password@host:port/name`; by default SQLite under the data folder'),
    })
    .prefault({}),
  redis: z
    .strictObject({
      url: z
        .string()
        .regex(/^rediss?:\/\/.+$/, 'expected redis://host:port')
        .optional()
        .meta({ secret: true })
        .describe('`redis://host:port`; shared by all instances'),
    })
    .prefault({}),
  bootstrapToken: z
    .string()
    .min(8)
    .optional()
    .meta({ secret: true })
    .describe('Value of the first token; by default a random one is made and printed once'),
  anonymousRead: flag.default(false).describe('Let anybody read the content of account `default`'),
  offline: flag.default(false).describe('Never contact an upstream'),
  log: z
    .strictObject({
      level: z
        .enum(['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'])
        .default('info')
        .describe('fatal, error, warn, info, debug, trace or silent'),
    })
    .prefault({}),
  limits: z
    .strictObject({
      nupkg: size.prefault('512MiB').describe('Largest package that may be pushed'),
      manifest: size.prefault('4MiB').describe('Largest image manifest'),
      blob: size.optional().describe('Largest image blob; unlimited by default'),
      accountStorage: size.optional().describe('What an account may host; unlimited by default'),
      accountEgress: size
        .optional()
        .describe('What an account may be sent in a month before its pushes are refused; unlimited by default'),
      accountFetches: whole(1, 10_000)
        .default(128)
        .describe('Fetches from upstreams that an account has under way; more wait, up to a minute'),
      uploadIdle: duration.prefault('60s').describe('A request that sends or takes nothing for so long is cut'),
      uploadAge: duration.prefault('24h').describe('An upload session untouched for so long is dropped'),
    })
    .prefault({}),
  upstreams: upstreams
    .prefault(publicUpstreams)
    .describe('Upstream feeds and registries, in order; by default the public ones'),
  reserved: z
    .strictObject({
      packages: patterns.default([]).describe('Package ids never asked upstream, hosted or not'),
      containers: patterns.default([]).describe('Repository names never asked upstream, hosted or not'),
    })
    .prefault({}),
  merge: z
    .strictObject({
      packages: patterns.default([]).describe('Hosted package ids whose other versions may come from upstream'),
    })
    .prefault({}),
  mirror: z
    .strictObject({
      maxSize: size
        .optional()
        .describe(
          'What upstream content may take up; the least recently used goes first, that of offline upstreams never',
        ),
      unreadRest: size
        .prefault('16MiB')
        .describe(
          'A body that all its clients have left is fetched to the end only if at most this much, or a tenth, is missing',
        ),
      keepPartial: duration
        .prefault('10m')
        .describe('What came of a body that all its clients have left is kept for so long, to go on from there'),
    })
    .prefault({}),
  retention: z
    .strictObject({
      packages: z
        .strictObject({
          keepVersions: whole(1, 1_000_000)
            .optional()
            .describe('Of each hosted package keep so many newest releases, and as many prereleases; all by default'),
        })
        .prefault({}),
      containers: z
        .strictObject({
          untaggedAfter: duration
            .optional()
            .describe('Delete hosted manifests that nothing names or refers to for so long; never by default'),
        })
        .prefault({}),
      protect: patterns
        .default([])
        .describe('Package ids, `id:version`s and repository names that retention leaves alone'),
    })
    .prefault({}),
  gc: z
    .strictObject({
      grace: duration.prefault('24h').describe('Bytes that nothing refers to stay for so long after they came'),
    })
    .prefault({}),
  storage: z
    .strictObject({
      reserve: size
        .prefault('256MiB')
        .describe('Free disk that is left alone: with less, upstream content is passed on and not stored'),
    })
    .prefault({}),
  scrub: z
    .strictObject({
      rate: size
        .pipe(z.number().min(1, 'expected more than 0'))
        .prefault('32MiB')
        .describe('Bytes a second at most that a scrub reads'),
    })
    .prefault({}),
  prefetch: z
    .strictObject({
      files: z
        .array(z.string().min(1))
        .default([])
        .describe('Files that list what the job `prefetch` fetches, as the command reads them'),
      inUse: flag.default(true).describe('Also newest versions of mirrored packages, and tags that were pulled'),
      newest: whole(1, 1000).default(1).describe('So many versions of each mirrored package'),
      usedWithin: duration.prefault('30d').describe('Tags that were pulled in this time are looked at again'),
      platforms: z
        .array(z.string().regex(/^[a-z0-9]+\/[a-z0-9_]+(?:\/[a-z0-9.]+)?$/, 'expected platforms such as linux/amd64'))
        .default([])
        .describe('Of multi-platform images only these; all by default'),
      frameworks: z.array(z.string().min(1)).default([]).describe('Choose dependencies for these, such as net8.0'),
      referrers: flag.default(true).describe('Whether signatures and other referrers come with their image'),
      concurrency: whole(1, 64).default(4).describe('So many fetches at a time'),
      rate: size
        .pipe(z.number().min(1, 'expected more than 0'))
        .optional()
        .describe('Bytes a second from all upstreams together; unlimited by default'),
      rateLimitShare: whole(1, 100).default(80).describe('Per cent of an upstream’s announced rate limit to use'),
      window: z
        .string()
        .regex(/^((?:[01]\d|2[0-3]):[0-5]\d)-(?!\1$)(?:[01]\d|2[0-3]):[0-5]\d$/, 'expected hours such as 22:00-06:00')
        .optional()
        .describe('Fetch at these hours only (local time), such as `22:00-06:00`'),
    })
    .prefault({}),
  jobs: z
    .strictObject({
      uploads: schedule.default('*/10 * * * *').describe('When abandoned uploads are dropped (cron, UTC), or `off`'),
      retention: schedule.default('40 2 * * *').describe('When the rules of `retention` are applied, or `off`'),
      evict: schedule.default('10 * * * *').describe('When upstream content is cut down to `mirror.maxSize`, or `off`'),
      collect: schedule.default('20 * * * *').describe('When bytes that nothing refers to are removed, or `off`'),
      sample: schedule
        .default('*/10 * * * *')
        .describe('When what accounts store is measured, once in an hour, or `off`'),
      prefetch: schedule.default('off').describe('When `prefetch` is done, or `off`'),
      scrub: schedule.default('0 4 * * 0').describe('When stored bytes are read again and checked, or `off`'),
    })
    .prefault({}),
});

export type Config = z.output<typeof schema>;
export type UpstreamConfig = Config['upstreams'][number];

export interface Setting {
  /** As in the file: `server.baseUrl`. */
  path: string;
  /** As in the environment: `ENTREPOT_BASE_URL`. */
  environment: string;
  doc: string;
  /** As written in a file, undefined when there is none. */
  default: unknown;
  secret: boolean;
  /** Whether the environment holds JSON (lists). */
  json: boolean;
}

/** `server.baseUrl` → `ENTREPOT_BASE_URL`: the path in capitals, without the section `server`. */
export function environmentName(path: string): string {
  const words = path.replace(/^server\./, '').replace(/[A-Z]/g, (letter) => `_${letter}`);
  return `ENTREPOT_${words.replaceAll('.', '_').toUpperCase()}`;
}

/** All settings, flat, in the order of the schema. */
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
