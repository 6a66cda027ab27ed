import type { RouteConfig } from '@asteasolutions/zod-to-openapi';
import { z } from 'zod';

const text = (description: string) => z.string().meta({ description });

const request = z
  .strictObject({
    grant_type: z.literal('urn:ietf:params:oauth:grant-type:token-exchange'),
    subject_token: text('The identity token'),
    subject_token_type: z.enum(['urn:ietf:params:oauth:token-type:jwt', 'urn:ietf:params:oauth:token-type:id_token']),
    audience: text('The name of the account; `default` if it is left out').optional(),
    scope: text('Fewer scopes than those of the rule, separated by spaces').optional(),
  })
  .meta({ id: 'TokenExchangeRequest' });

const answer = z
  .strictObject({
    access_token: text('A token for the feed, the registry and `/v1`'),
    issued_token_type: z.literal('urn:ietf:params:oauth:token-type:access_token'),
    token_type: z.literal('Bearer'),
    expires_in: z.int().meta({ description: 'Seconds' }),
    scope: z.string(),
  })
  .meta({ id: 'TokenExchangeAnswer' });

const failure = z.strictObject({ error: z.string(), error_description: z.string() }).meta({ id: 'TokenExchangeError' });

const nugetRequest = z
  .strictObject({ username: text('The name of the account'), tokenType: z.literal('ApiKey') })
  .meta({ id: 'NugetTokenRequest' });

const nugetAnswer = z
  .strictObject({ tokenType: z.literal('ApiKey'), expires: z.iso.datetime(), apiKey: z.string() })
  .meta({ id: 'NugetTokenAnswer' });

const nugetFailure = z.strictObject({ error: z.string() }).meta({ id: 'NugetTokenError' });

const json = (schema: z.ZodType) => ({ 'application/json': { schema } });

/** The exchange of identity tokens, which is no operation: its errors follow other specifications. */
export const tokenExchangePaths: readonly RouteConfig[] = [
  {
    method: 'post',
    path: '/token-exchange',
    operationId: 'exchangeToken',
    summary: 'Exchange an identity token for a short-lived token (RFC 8693)',
    description: 'Needs no credential but the identity token.',
    security: [],
    request: {
      body: { required: true, content: { 'application/x-www-form-urlencoded': { schema: request }, ...json(request) } },
    },
    responses: {
      200: { description: 'Success', content: json(answer) },
      default: { description: 'Error', content: json(failure) },
    },
  },
  {
    method: 'post',
    path: '/token-exchange/nuget',
    operationId: 'exchangeNugetToken',
    summary: 'The same in the form of nuget.org, for the action NuGet/login',
    description: 'Needs the identity token as Bearer.',
    request: { body: { required: true, content: json(nugetRequest) } },
    responses: {
      200: { description: 'Success', content: json(nugetAnswer) },
      default: { description: 'Error', content: json(nugetFailure) },
    },
  },
];
