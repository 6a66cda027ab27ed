import { z } from 'zod';
import { issuerKinds } from '../../config/identity.ts';
import { givenPatterns, listOf, patterns, scope, time, wantedScopes } from '../framework/schemas.ts';

// The requests and answers of `/v1/publishers`.

const claimsDescription =
  'The values that each claim may have; one of them must match. `*` stands for any characters, except in IDs. `a/b` is the claim `b` inside of `a`';
const issuer = z.string().meta({ description: 'The name of an issuer in the setting trustedIssuers' });
const claimValue = z.union([z.string(), z.number(), z.boolean()]);

export const publisher = z
  .strictObject({
    id: z.string(),
    name: z.string(),
    issuer,
    issuer_url: z
      .string()
      .nullable()
      .meta({ description: 'The address of the issuer, which decides. Null until the first start of this version' }),
    claims: z.record(z.string(), z.array(z.string())).meta({ description: claimsDescription }),
    scopes: z.array(scope),
    patterns,
    source: z.enum(['settings', 'api']).meta({ description: 'settings: it can be changed only in the settings' }),
    created_at: time.nullable(),
    updated_at: time.nullable(),
    last_used_at: time.nullable().meta({ description: 'When a token that it gave was last used, in the last 30 days' }),
    warnings: z.array(z.string()).meta({ description: 'What is unsafe or without effect, in sentences' }),
  })
  .meta({ id: 'Publisher' });

/** `checkPublisher` checks the number and length of the claims. */
export const publisherRequest = z
  .strictObject({
    name: z.string().trim().min(1).max(200),
    issuer: issuer.min(1).max(100),
    claims: z
      .record(z.string(), z.union([claimValue, z.array(claimValue).max(1000)]))
      .meta({ description: claimsDescription, example: { repository_id: '123456' } }),
    scopes: wantedScopes,
    patterns: givenPatterns,
  })
  .meta({ id: 'PublisherRequest' });

export const trustedIssuer = z
  .strictObject({
    name: z.string(),
    issuer: z.string(),
    audience: z.string().meta({ description: 'The audience that identity tokens need' }),
    kind: z.enum(issuerKinds),
  })
  .meta({ id: 'TrustedIssuer' });

export const explainRequest = z
  .strictObject({ token: z.string().min(1).max(16_384).meta({ description: 'The identity token' }) })
  .meta({ id: 'ExplainRequest' });

export const explanation = z
  .strictObject({
    issuer: z
      .string()
      .nullable()
      .meta({ description: 'The name of the trusted issuer; null if the token is not accepted' }),
    problem: z.string().nullable().meta({ description: 'Why the token is not accepted; null if it is' }),
    claims: z
      .record(z.string(), z.unknown())
      .meta({ description: 'As the token has them, also if it is not accepted' }),
    rules: z.array(
      z.strictObject({
        id: z.string(),
        name: z.string(),
        issuer,
        matches: z.boolean(),
        mismatches: z
          .array(z.strictObject({ claim: z.string(), wanted: z.array(z.string()), found: z.array(z.string()) }))
          .nullable()
          .meta({ description: 'null: the rule is for another issuer' }),
      }),
    ),
  })
  .meta({ id: 'Explanation' });

export const publisherList = listOf(publisher);
export const trustedIssuerList = listOf(trustedIssuer);
