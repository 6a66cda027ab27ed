import { protocolWords, upstreamKinds } from './protocols.ts';
import { z } from 'zod';
import { duration, timerTime } from './units.ts';

const patterns = z.array(z.string().min(1));
export const upstreamUrl = z
  .url({ protocol: /^https?$/, error: 'expected an http or https URL', abort: true })
  .refine(hasNoUser, 'a URL here cannot have a user name or password; set them in auth');

export const upstreamAuth = z.union(
  [
    z.strictObject({ username: z.string().min(1), password: z.string() }),
    z.strictObject({ username: z.string().min(1), passwordFile: z.string() }),
    z.strictObject({ bearer: z.string().min(1) }),
    z.strictObject({ bearerFile: z.string() }),
    z.strictObject({
      exec: z
        .array(z.string())
        .min(1)
        .refine(([program]) => program !== ''),
    }),
  ],
  { error: 'expected {username, password or passwordFile}, {bearer or bearerFile} or {exec: [program, argument]}' },
);

/** Whether a URL has neither a user name nor a password, which messages would show. */
export function hasNoUser(text: string): boolean {
  const { username, password } = new URL(text);
  return username === '' && password === '';
}

const upstreamSettings = z.strictObject({
  name: z.string().regex(/^[a-z0-9]+(?:[.-][a-z0-9]+)*(?::\d+)?$/, 'expected a name such as nuget.org or docker.io'),
  id: z
    .string()
    .regex(/^[a-z0-9]+(?:[._-][a-z0-9]+)*(?::\d+)?$/, 'expected an ID such as ghcr-team')
    .max(100, 'expected at most 100 characters')
    .optional(),
  accounts: z
    .array(z.string().regex(/^[a-z0-9](?:[a-z0-9._-]{0,98}[a-z0-9])?$/, 'expected the name of an account'))
    .min(1, 'name at least one account, or leave the list out for all accounts')
    .optional(),
  kind: z.enum(upstreamKinds),
  url: upstreamUrl.optional(),
  symbolsUrl: upstreamUrl.optional(),
  mode: z.enum(['online', 'offline']).default('online'),
  default: z.boolean().default(false),
  freshFor: duration.prefault('5m'),
  staleFor: duration.prefault('365d'),
  negativeFor: duration.prefault('1m'),
  timeout: timerTime(1, 1).prefault('10s'),
  include: patterns.default(['*']),
  exclude: patterns.default([]),
  allowPrivateNetwork: z.boolean().default(false),
  caFile: z.string().optional(),
  auth: upstreamAuth.optional(),
  credentialHosts: z
    .array(
      z
        .string()
        .regex(
          /^(?:[a-z0-9]+(?:[.-][a-z0-9]+)*|\[[0-9a-f:.]+\])(?::\d{1,5})?$/,
          'expected a host such as gitlab.corp or gitlab.corp:8443',
        ),
    )
    .default([]),
});

/** The ID is the name unless one is set. Stored content is found by the ID. */
const upstream = upstreamSettings.transform((each) => ({ ...each, id: each.id ?? each.name }));

/** Whether an account may be in both lists. Without a list, an upstream serves all accounts. */
function overlap(some: readonly string[] | undefined, others: readonly string[] | undefined): boolean {
  return !some || !others || some.some((each) => others.includes(each));
}

/** Whether `url` is only a scheme, a host and a port. */
export function isOrigin(url: string): boolean {
  const { href, origin } = new URL(url);
  return href === `${origin}/`;
}

/** The setting `upstreams`. */
export const upstreams = z.array(upstream).superRefine((list, context) => {
  for (const [index, each] of list.entries()) {
    const { kind, name, id, accounts } = each;
    const refuse = (key: string, message: string) => context.addIssue({ code: 'custom', path: [index, key], message });
    if (kind === 'registry' && each.url !== undefined && !isOrigin(each.url)) {
      refuse('url', 'a registry’s URL cannot have a path or a query: repositories are below /v2/ of its host');
    }
    for (const before of list.slice(0, index).filter((other) => other.kind === kind)) {
      const isShared = overlap(before.accounts, accounts);
      if (before.name === name && isShared) {
        const advice = 'leave one out, or give them different accounts and an id';
        refuse('name', `there are two ${kind} upstreams named ${name} for the same account; ${advice}`);
      } else if (before.id === id) {
        refuse('id', `there are two ${kind} upstreams with the id ${id}; set another id`);
      } else if (kind === 'registry' && before.default && each.default && isShared) {
        refuse('default', 'only one registry can be the default of an account');
      }
    }
  }
});

/** The upstreams when the settings list none. An upstream is a default one if it is an object of this list. */
export const publicUpstreams = upstreams.parse([
  { name: 'nuget.org', kind: 'nuget' },
  { name: 'docker.io', kind: 'registry', default: true },
  { name: 'ghcr.io', kind: 'registry' },
  { name: 'quay.io', kind: 'registry' },
  { name: 'mcr.microsoft.com', kind: 'registry' },
  { name: 'registry.k8s.io', kind: 'registry' },
]);

/** The names of the registries that serve an account, as images begin with them. */
export function registriesOf(list: z.output<typeof upstreams>, account: string): string[] {
  const kinds = new Set(protocolWords.filter(({ hasIndex }) => !hasIndex).map((each) => each.upstream));
  const served = list.filter(({ kind, accounts }) => kinds.has(kind) && (accounts?.includes(account) ?? true));
  return served.map(({ name }) => name);
}
