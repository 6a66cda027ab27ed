import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import type { Config } from '../../config/schema.ts';
import { DomainError, type ErrorName } from '../../runtime/errors.ts';
import type { Mount } from '../../http/app.ts';
import { authorizationOf } from '../../http/authenticate.ts';
import { parseJson, readBody } from '../../http/body.ts';
import { answerOrRefuse } from '../../http/edge.ts';
import { limitIdentity } from '../../http/limit.ts';
import { sendProblem } from '../../http/problem.ts';
import { contextOf } from '../../http/request-context.ts';
import { sendJson } from '../../http/send.ts';
import { splitTarget } from '../../http/target.ts';
import { validFor, type TokenExchange } from '../../identity/exchange.ts';
import type { VerifiedToken } from '../../identity/identity-token.ts';
import type { Limits } from '../../limits/limits.ts';

interface ExchangeParts {
  exchange: TokenExchange;
  limits: Config['limits'];
  /** Limits what an identity may try. */
  clients: Limits;
  /** Counts a refused identity token. May throw `TooManyRequests`. */
  onRefused: () => void | Promise<void>;
  log: Logger;
}

const path = '/v1/token-exchange';
/** Largest request body, in bytes. */
const bodyLimit = 64 * 1024;
/** The account whose rules apply when the request names none. */
const defaultAccount = 'default';

const grantType = 'urn:ietf:params:oauth:grant-type:token-exchange';
const accessToken = 'urn:ietf:params:oauth:token-type:access_token';
const identityTypes = ['urn:ietf:params:oauth:token-type:jwt', 'urn:ietf:params:oauth:token-type:id_token'];

/** A failure with the error code of RFC 6749, 5.2, or RFC 8693, 2.2.2. */
class RequestRefused extends DomainError {
  readonly code: string;
  readonly status: number;

  constructor(code: string, message: string, status = 400) {
    super('Invalid', message);
    this.code = code;
    this.status = status;
  }
}

/** Domain error → error code and status of RFC 6749, 5.2, and status for NuGet. Other errors are answered with 500. */
const failures: Partial<Record<ErrorName, readonly [code: string, status: number, nugetStatus: number]>> = {
  // RFC 8693, 2.2.2: a subject token that is invalid, or unacceptable by policy, is `invalid_request`.
  Unauthorized: ['invalid_request', 400, 401],
  Invalid: ['invalid_request', 400, 400],
  NotFound: ['invalid_request', 404, 404],
  Unsupported: ['invalid_request', 400, 400],
  TooLarge: ['invalid_request', 413, 413],
  ScopeMissing: ['invalid_scope', 400, 403],
  Aborted: ['invalid_request', 400, 400],
  TooManyRequests: ['temporarily_unavailable', 429, 429],
  UpstreamUnavailable: ['temporarily_unavailable', 503, 503],
  DatabaseUnavailable: ['temporarily_unavailable', 503, 503],
  StorageUnavailable: ['temporarily_unavailable', 503, 503],
  StorageFull: ['temporarily_unavailable', 507, 507],
};

/**
 * Two interfaces for the exchange of identity tokens: that of RFC 8693, and below `/nuget` that of nuget.org's
 * `token-service-url`, which the action NuGet/login uses. They need no other credential.
 */
export function createTokenExchange(parts: ExchangeParts): Mount {
  const { log, onRefused } = parts;
  const edge = answerOrRefuse<boolean>(
    { log, statusOf, onUnauthorized: onRefused, challenge, refuse },
    (isNuget, request, response) => answer(parts, isNuget, request, response),
  );
  return { path, answer: (request, response) => edge(pathBelow(request) === '/nuget', request, response) };
}

function pathBelow(request: IncomingMessage): string {
  return splitTarget(request.url!).path.slice(path.length);
}

async function answer(
  parts: ExchangeParts,
  isNuget: boolean,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  response.setHeader('Cache-Control', 'no-store');
  if (!isNuget && pathBelow(request) !== '') throw new DomainError('NotFound', 'There is nothing at this address.');
  if (request.method !== 'POST') {
    response.setHeader('Allow', 'POST');
    throw new RequestRefused('invalid_request', 'The token exchange supports only POST.', 405);
  }
  if (isNuget) await exchangeForNuget(parts, request, response);
  else await exchangeByForm(parts, request, response);
}

/** RFC 8693, 2.1. As JSON too, for clients that cannot send forms. */
async function exchangeByForm(parts: ExchangeParts, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const fields = await readFields(parts, request, response);
  const of = (name: string) => fields.get(name) || undefined;
  if (of('grant_type') === undefined)
    throw new RequestRefused('invalid_request', 'The parameter grant_type is missing.');
  if (of('grant_type') !== grantType)
    throw new RequestRefused('unsupported_grant_type', `Use grant_type ${grantType}.`);
  const token = of('subject_token');
  if (token === undefined) throw new RequestRefused('invalid_request', 'The parameter subject_token is missing.');
  if (!identityTypes.includes(of('subject_token_type') ?? '')) {
    throw new RequestRefused('invalid_request', `Use subject_token_type ${identityTypes.join(' or ')}.`);
  }
  if ((of('requested_token_type') ?? accessToken) !== accessToken) {
    throw new RequestRefused('invalid_request', `Leave requested_token_type out, or use ${accessToken}.`);
  }
  if (of('actor_token') !== undefined) {
    throw new RequestRefused('invalid_request', 'Leave actor_token out: this server does not support it.');
  }
  const scopes = of('scope')?.split(' ').filter(Boolean);
  const audience = of('audience');
  const account = ({ issuer }: VerifiedToken) =>
    audience === undefined || audience === issuer.audience ? defaultAccount : audience;
  const made = await parts.exchange.exchange({ token, account, scopes, attempt: attemptWith(parts) });
  sendJson(request, response, 200, {
    access_token: made.value,
    issued_token_type: accessToken,
    token_type: 'Bearer',
    expires_in: validFor / 1000,
    scope: made.scopes.join(' '),
  });
}

/** Limits what an identity may try: everyone has an identity token of a public CI. */
function attemptWith({ clients }: ExchangeParts) {
  return <T>(identity: string, work: () => Promise<T>) => limitIdentity(clients, identity, work);
}

/** The token service of nuget.org: `username` is the account. */
async function exchangeForNuget(
  parts: ExchangeParts,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const [, token] = /^bearer +(\S+)$/i.exec(authorizationOf(request)?.trim() ?? '') ?? [];
  if (token === undefined) throw new DomainError('Unauthorized', 'Send the identity token as Bearer.');
  const fields = await readFields(parts, request, response);
  if (fields.get('tokenType') !== 'ApiKey') throw new RequestRefused('invalid_request', 'tokenType must be ApiKey.');
  const account = fields.get('username') || defaultAccount;
  const { value, expiresAt } = await parts.exchange.exchange({ token, account, attempt: attemptWith(parts) });
  const expires = new Date(expiresAt).toISOString();
  sendJson(request, response, 200, { tokenType: 'ApiKey', expires, apiKey: value });
}

/** The parameters of a form or of a JSON object. A repeated parameter is refused (RFC 6749, 3.2). */
async function readFields(
  { limits }: ExchangeParts,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<ReadonlyMap<string, string>> {
  const bytes = await readBody(request, { limit: bodyLimit, idle: limits.uploadIdle });
  contextOf(response).received = bytes.length;
  const pairs = pairsIn(request, bytes);
  const fields = new Map(pairs);
  if (fields.size < pairs.length) throw new RequestRefused('invalid_request', 'A parameter is repeated.');
  return fields;
}

function pairsIn(request: IncomingMessage, bytes: Buffer): [string, string][] {
  const type = request.headers['content-type']?.split(';', 1)[0]!.trim().toLowerCase();
  if (type === 'application/x-www-form-urlencoded') return [...new URLSearchParams(bytes.toString('utf8'))];
  const body = parseJson(request, bytes);
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new RequestRefused('invalid_request', 'Send the parameters as a form, or as a JSON object.');
  }
  return Object.entries(body).map(([name, value]: [string, unknown]) => {
    if (typeof value !== 'string')
      throw new RequestRefused('invalid_request', `The value of "${name.slice(0, 50)}" must be text.`);
    return [name, value];
  });
}

function statusOf(error: DomainError, isNuget: boolean): number | undefined {
  if (error instanceof RequestRefused) return error.status;
  const [, status, nugetStatus] = failures[error.name] ?? [];
  return isNuget ? nugetStatus : status;
}

function challenge({ name }: DomainError): string | undefined {
  return name === 'Unauthorized' ? 'Bearer realm="Entrepot"' : undefined;
}

function refuse(
  request: IncomingMessage,
  response: ServerResponse,
  status: number,
  error: DomainError | undefined,
  isNuget: boolean,
): void {
  const failure = error && failures[error.name];
  if (!failure) return sendProblem(request, response, status, error);
  const { message } = error;
  const code = error instanceof RequestRefused ? error.code : failure[0];
  // RFC 6749, 5.2 allows only some characters of ASCII in a description.
  const description = message.replaceAll('"', "'").replace(/[^\x20-\x5b\x5d-\x7e]/g, '?');
  sendJson(request, response, status, isNuget ? { error: message } : { error: code, error_description: description });
}
