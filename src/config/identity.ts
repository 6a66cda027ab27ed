import { byPlural } from './protocols.ts';
import { z } from 'zod';
import { hasNoUser } from './upstreams.ts';

/** Kinds of issuers whose tokens have claims that are known here. */
export const issuerKinds = ['github', 'gitlab', 'azure', 'kubernetes', 'other'] as const;
export type IssuerKind = (typeof issuerKinds)[number];

const publicIssuers: Partial<Record<string, string>> = {
  github: 'https://token.actions.githubusercontent.com',
  gitlab: 'https://gitlab.com',
};

const issuerUrl = z
  .url({ protocol: /^https?$/, error: 'expected an https URL', abort: true })
  .max(500)
  .refine(hasNoUser, 'a URL here cannot have a user name or password')
  .refine((text) => !/[?#]/.test(text), 'an issuer has no query and no fragment');

const accountName = z
  .string()
  .regex(/^[a-z0-9](?:[a-z0-9._-]{0,98}[a-z0-9])?$/, 'expected the name of an account')
  .default('default');

/** Plain HTTP lets everyone on the way change the keys, so it is only for private networks. */
export function isSecure(issuer: string, allowPrivateNetwork: boolean): boolean {
  return allowPrivateNetwork || issuer.startsWith('https:');
}

const trustedIssuer = z
  .strictObject({
    name: z.string().regex(/^[a-z0-9](?:[a-z0-9._-]{0,98}[a-z0-9])?$/, 'expected a name such as github'),
    issuer: issuerUrl.optional(),
    audience: z.string().min(1).max(500),
    kind: z.enum(issuerKinds).optional(),
    allowPrivateNetwork: z.boolean().default(false),
    caFile: z.string().min(1).optional(),
  })
  .transform((each, context) => {
    const issuer = each.issuer ?? publicIssuers[each.name];
    if (issuer === undefined) {
      context.addIssue({ code: 'custom', path: ['issuer'], message: 'is missing' });
      return z.NEVER;
    }
    if (!isSecure(issuer, each.allowPrivateNetwork)) {
      context.addIssue({ code: 'custom', path: ['issuer'], message: 'expected an https URL' });
    }
    return { ...each, issuer, kind: each.kind ?? kindOf(each.name, issuer) };
  });

/** Tokens of Azure Pipelines have `https://vstoken.dev.azure.com/<organization ID>` as the issuer. */
function kindOf(name: string, issuer: string): IssuerKind {
  const known = issuerKinds.find((each) => each === name);
  if (known) return known;
  const found = Object.entries(publicIssuers).find(([, url]) => url === issuer);
  if (found) return found[0] as IssuerKind;
  return new URL(issuer).hostname === 'vstoken.dev.azure.com' ? 'azure' : 'other';
}

/** The setting `trustedIssuers`. */
export const trustedIssuers = z
  .array(trustedIssuer)
  .max(50)
  .superRefine((list, context) => {
    for (const [index, each] of list.entries()) {
      for (const key of ['name', 'issuer'] as const) {
        if (list.slice(0, index).every((before) => before[key] !== each[key])) continue;
        context.addIssue({
          code: 'custom',
          path: [index, key],
          message: `there are two trusted issuers with this ${key}`,
        });
      }
    }
  });

const claimValue = z.union([z.string(), z.number(), z.boolean()]).transform(String);

/** The setting `publishers`. `checkPublisher` (`src/identity/publisher.ts`) checks the claims, scopes and patterns. */
export const publishers = z
  .array(
    z.strictObject({
      name: z.string(),
      account: accountName,
      issuer: z.string(),
      claims: z.record(z.string(), z.union([claimValue, z.array(claimValue)])),
      scopes: z.array(z.string()),
      ...byPlural(() => z.array(z.string()).optional()),
    }),
  )
  .max(200);

const personRule = z.strictObject({
  claim: z.string().min(1).max(200),
  value: claimValue.pipe(z.string().min(1).max(500)),
  account: accountName,
  scopes: z.array(z.enum(['read', 'write', 'delete', 'promote', 'admin', 'operate'])).min(1, 'name at least one scope'),
});

/** The settings `signIn.oidc`: the provider that people sign in to the console with. */
export const oidc = z
  .strictObject({
    issuer: issuerUrl.optional().describe('OpenID Connect provider that people sign in to the console with'),
    name: z
      .string()
      .min(1)
      .max(60)
      .optional()
      .describe('Name of the provider on the sign-in page; its host by default'),
    clientId: z.string().min(1).max(500).optional().describe('Client ID of this server at the provider'),
    clientSecret: z
      .string()
      .min(1)
      .max(1000)
      .optional()
      .meta({ secret: true })
      .describe('Client secret; without it this server is a public client'),
    scopes: z
      .array(z.string().regex(/^[\x21\x23-\x5b\x5d-\x7e]+$/, 'expected scopes such as groups'))
      .max(20)
      .default(['openid', 'profile'])
      .describe(
        'Scopes to request from the provider: `openid` and `profile` by default; the list replaces them, needs `openid`, and should have the one that gives the claims of the rules',
      ),
    rules: z
      .array(personRule)
      .max(200)
      .default([])
      .describe('Claims of people, and the account and scopes that each gives'),
    allowPrivateNetwork: z
      .union([z.boolean(), z.stringbool({ truthy: ['true'], falsy: ['false'] })], { error: 'expected true or false' })
      .default(false)
      .describe('Whether the provider may have a private or loopback address, and plain HTTP'),
    caFile: z.string().min(1).optional().describe('PEM file of certificate authorities for the provider'),
  })
  .superRefine(({ issuer, clientId, scopes, rules, allowPrivateNetwork }, context) => {
    const refuse = (key: string, message: string) => context.addIssue({ code: 'custom', path: [key], message });
    if (issuer === undefined) {
      if (clientId !== undefined || rules.length > 0) refuse('issuer', 'is missing');
      return;
    }
    if (!isSecure(issuer, allowPrivateNetwork)) refuse('issuer', 'expected an https URL');
    if (clientId === undefined) refuse('clientId', 'is missing');
    if (!scopes.includes('openid')) refuse('scopes', 'must contain openid');
  })
  .prefault({});
