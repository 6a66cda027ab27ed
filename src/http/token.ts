import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import { DomainError, type ErrorName } from '../runtime/errors.ts';
import { anonymousBearer, authorizationOf, basicUser, bearerOf, tokenIn, type Authenticator } from './authenticate.ts';
import type { HttpHandler } from './app.ts';
import { readBody } from './body.ts';
import { answerOrRefuse } from './edge.ts';
import { contextOf } from './request-context.ts';
import { sendJson } from './send.ts';

const formLimit = 64 * 1024;
const formIdle = 30_000;
const validFor = 300;

/** HTTP status and code (distribution-spec, "Error Codes") of the domain errors that it can have. */
const failures: Partial<Record<ErrorName, readonly [status: number, code: string]>> = {
  Unauthorized: [401, 'UNAUTHORIZED'],
  Unsupported: [405, 'UNSUPPORTED'],
  TooLarge: [400, 'UNSUPPORTED'],
  Aborted: [400, 'UNSUPPORTED'],
  TooManyRequests: [429, 'TOOMANYREQUESTS'],
  DatabaseUnavailable: [503, 'UNAVAILABLE'],
  StorageUnavailable: [503, 'UNAVAILABLE'],
  StorageFull: [507, 'UNAVAILABLE'],
  UpstreamUnavailable: [502, 'UNAVAILABLE'],
  UpstreamTimeout: [504, 'UNAVAILABLE'],
  QuotaExceeded: [403, 'DENIED'],
};

/**
 * `/token`, the token endpoint of container clients (distribution's "Token Authentication Specification", and its OAuth
 * 2 form). An API token is a valid Bearer value everywhere, so a client with a token gets the same token back. A client
 * without credentials gets the anonymous token, if anonymous reading is allowed.
 */
export function createTokenEndpoint(authenticator: Authenticator, log: Logger, now: () => number): HttpHandler {
  const edge = answerOrRefuse<undefined>(
    {
      log,
      statusOf: ({ name }) => failures[name]?.[0],
      challenge: () => 'Basic realm="Entrepot"',
      refuse: (request, response, status, error) => {
        const [, code] = (error && failures[error.name]) ?? [status, 'UNKNOWN'];
        const { message = 'An error occurred in this server. Its log has the details.' } = error ?? {};
        sendJson(request, response, status, { errors: [{ code, message }] });
      },
    },
    async (_, request, response) => {
      response.setHeader('Cache-Control', 'no-store');
      sendJson(request, response, 200, await tokenFor(authenticator, request, response, now()));
    },
  );
  return (request, response) => edge(undefined, request, response);
}

async function tokenFor(
  authenticator: Authenticator,
  request: IncomingMessage,
  response: ServerResponse,
  now: number,
): Promise<Record<string, unknown>> {
  if (request.method !== 'GET' && request.method !== 'POST') {
    response.setHeader('Allow', 'GET, POST');
    throw new DomainError('Unsupported', 'The token endpoint supports only GET and POST.');
  }
  const form = request.method === 'POST' ? await readForm(request, response) : undefined;
  const given = (form && credentialsIn(form)) ?? request.headers.authorization;
  const authorization = authorizationOf({ headers: { authorization: given } });
  await authenticator.principalOf({ headers: { authorization } });
  const token = authorization === undefined ? anonymousBearer : (tokenIn(authorization) ?? bearerOf(authorization));
  return { token, access_token: token, expires_in: validFor, issued_at: new Date(now).toISOString() };
}

/** The credentials of an OAuth 2 form (RFC 6749): a password, or a refresh token. */
function credentialsIn(form: URLSearchParams): string | undefined {
  if (form.get('grant_type') === 'refresh_token') return `Bearer ${form.get('refresh_token') ?? ''}`;
  const password = form.get('password');
  if (password === null) return undefined;
  return `Basic ${Buffer.from(`${form.get('username') ?? basicUser}:${password}`).toString('base64')}`;
}

async function readForm(request: IncomingMessage, response: ServerResponse): Promise<URLSearchParams> {
  const bytes = await readBody(request, { limit: formLimit, idle: formIdle });
  contextOf(response).received += bytes.length;
  return new URLSearchParams(bytes.toString('utf8'));
}
