import type { IncomingMessage, ServerResponse } from 'node:http';
import { isDomainError } from '../runtime/errors.ts';
import { anonymousBearer, authorizationOf, basicUser, tokenIn, type Authenticator } from './authenticate.ts';
import type { HttpHandler } from './app.ts';
import { readBody } from './body.ts';
import { setLimitFields } from './limit.ts';
import { oneLine } from './reason.ts';
import { contextOf } from './request-context.ts';
import { isUnavailable } from './unavailable.ts';
import { sendJson } from './send.ts';

const formLimit = 64 * 1024;
const formIdle = 30_000;
const validFor = 300;

/**
 * `/token`, the token endpoint of container clients (distribution's "Token Authentication Specification", and its OAuth
 * 2 form). An API token is a valid Bearer value everywhere, so a client with a token gets the same token back. A client
 * without credentials gets the anonymous token, if anonymous reading is allowed.
 */
export function createTokenEndpoint(authenticator: Authenticator, now: () => number): HttpHandler {
  return (request, response) => answer(authenticator, now, request, response);
}

async function answer(
  authenticator: Authenticator,
  now: () => number,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  response.setHeader('Cache-Control', 'no-store');
  if (request.method !== 'GET' && request.method !== 'POST') {
    response.setHeader('Allow', 'GET, POST');
    refuse(request, response, 405, 'UNSUPPORTED', 'The token endpoint supports only GET and POST.');
    return;
  }
  try {
    const form = request.method === 'POST' ? await readForm(request, response) : undefined;
    const given = (form && credentialsIn(form)) ?? request.headers.authorization;
    const authorization = authorizationOf({ headers: given === undefined ? {} : { authorization: given } });
    await authenticator.principalOf({ headers: authorization === undefined ? {} : { authorization } });
    const token = authorization === undefined ? anonymousBearer : tokenIn(authorization);
    sendJson(request, response, 200, {
      token,
      access_token: token,
      expires_in: validFor,
      issued_at: new Date(now()).toISOString(),
    });
  } catch (error) {
    if (isUnavailable(error)) throw error;
    if (isDomainError(error, 'TooManyRequests')) {
      setLimitFields(response, error);
      refuse(request, response, 429, 'TOOMANYREQUESTS', error.message);
      return;
    }
    if (!isDomainError(error, 'Unauthorized')) {
      refuse(
        request,
        response,
        400,
        'UNSUPPORTED',
        'The token request is malformed. Send the credentials as Basic, or as a form of at most 64 KiB.',
      );
      return;
    }
    response.setHeader('WWW-Authenticate', 'Basic realm="Entrepot"');
    refuse(request, response, 401, 'UNAUTHORIZED', error.message);
  }
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

function refuse(request: IncomingMessage, response: ServerResponse, status: number, code: string, message: string) {
  response.statusMessage = oneLine(message);
  sendJson(request, response, status, { errors: [{ code, message }] });
}
