import { parse, type ParsedUrlQuery } from 'node:querystring';
import { Router, type ErrorRequestHandler, type Request, type RequestHandler, type Response } from 'express';
import type { Logger } from 'pino';
import type { Accounts } from '../accounts/accounts.ts';
import { requireScope, type Principal } from '../accounts/principal.ts';
import type { Tokens } from '../accounts/tokens.ts';
import type { Config } from '../config/schema.ts';
import type { Database } from '../database/database.ts';
import { DomainError, isDomainError } from '../errors.ts';
import type { Authenticator } from '../http/authenticate.ts';
import { parseJson, readBody } from '../http/body.ts';
import { exchangeOf } from '../http/exchange.ts';
import { problem } from '../http/problem.ts';
import { sendJson } from '../http/send.ts';
import { splitTarget } from '../http/target.ts';
import type { Urls } from '../http/urls.ts';
import type { Feed } from '../nuget/feed.ts';
import type { MirroredPackages } from '../nuget/mirrored-packages.ts';
import type { Images } from '../oci/images.ts';
import type { MirroredImages } from '../oci/mirrored-images.ts';
import type { UsageRecord } from '../usage/record.ts';
import type { StoredBytes } from '../usage/stored.ts';
import { accountOperations } from './account.ts';
import { containerOperations } from './containers.ts';
import { refuse } from './errors.ts';
import { describe } from './openapi.ts';
import { check, type Operation } from './operation.ts';
import { packageOperations } from './packages.ts';
import { tokenOperations } from './tokens.ts';

export interface ApiParts {
  accounts: Accounts;
  tokens: Tokens;
  database: Database;
  usage: UsageRecord;
  stored: StoredBytes;
  feed: Feed;
  images: Images;
  mirroredImages: MirroredImages;
  mirroredPackages: MirroredPackages;
  authenticator: Authenticator;
  urls: Urls;
  limits: Config['limits'];
  log: Logger;
  now: () => number;
}

/** Largest request body, in bytes. */
const bodyLimit = 64 * 1024;

/** The REST management API, mounted at `/v1`. */
export function createApi(parts: ApiParts): Router {
  const operations = [
    ...packageOperations(parts.feed, parts.mirroredPackages),
    ...containerOperations(parts.images, parts.mirroredImages),
    ...tokenOperations(parts.tokens),
    ...accountOperations(parts),
  ];
  const router = Router({ caseSensitive: true });
  for (const each of operations) router[each.method](each.path, answer(each, parts));
  let document: Record<string, unknown> | undefined;
  router.get('/openapi.json', (request, response) => {
    document ??= describe(operations);
    sendJson(request, response, 200, { ...document, servers: [{ url: `${parts.urls.of(request).base}/v1` }] });
  });
  for (const [path, methods] of methodsByPath(operations)) router.all(path, refuseMethod(methods));
  router.use(refuseErrors);
  return router;
}

function answer(each: Operation, { authenticator, urls, limits }: ApiParts): RequestHandler {
  const route = `/v1${each.path}`;
  return async (request, response) => {
    const exchange = exchangeOf(response);
    exchange.route = route;
    const principal = await authenticator.principalOf(request);
    exchange.principal = principal;
    admit(principal, each);
    const query = each.query && check(each.query, parametersOf(request), 'query');
    let body: unknown;
    if (each.body) {
      const bytes = await readBody(request, { limit: bodyLimit, idle: limits.uploadIdle });
      exchange.received = bytes.length;
      body = check(each.body, parseJson(request, bytes), 'body');
    }
    const result = await each.run({ principal, params: paramsOf(request), query, body });
    if (each.answer === undefined) {
      response.writeHead(each.status).end();
      return;
    }
    addNextLink(request, response, urls, result);
    sendJson(request, response, each.status, result, { 'Cache-Control': 'no-store' });
  };
}

/** An anonymous reader is asked for a token where a token would help. */
function admit(principal: Principal, { scope, anonymous }: Operation): void {
  if (principal.kind === 'anonymous' && !(anonymous && scope !== 'any' && principal.scopes.has(scope))) {
    throw new DomainError(
      'Unauthorized',
      'Authenticate with an API token, as Bearer or as Basic with user name "api".',
    );
  }
  if (scope !== 'any') requireScope(principal, scope);
}

/** A wildcard's segments make one name, whether its slashes were encoded or not. */
function paramsOf(request: Request): Record<string, string> {
  const params = request.params as Record<string, string | string[]>;
  return Object.fromEntries(
    Object.entries(params).map(([name, value]) => [name, Array.isArray(value) ? value.join('/') : value]),
  );
}

/** What stands in the query; a name that is there twice has a list, which nothing here takes. */
function parametersOf(request: Request): ParsedUrlQuery {
  return parse(splitTarget(request.originalUrl).query);
}

/** RFC 8288: the same request with the cursor of the next page. */
function addNextLink(request: Request, response: Response, urls: Urls, result: unknown): void {
  const cursor = (result as { next_cursor?: string | null }).next_cursor;
  if (!cursor) return;
  const { path, query } = splitTarget(request.originalUrl);
  const next = new URLSearchParams(query);
  next.set('cursor', cursor);
  response.setHeader('Link', `<${urls.of(request).base}${path}?${next.toString()}>; rel="next"`);
}

function methodsByPath(operations: readonly Operation[]): Map<string, string[]> {
  const paths = new Map([['/openapi.json', ['GET', 'HEAD']]]);
  for (const { method, path } of operations) {
    const methods = paths.get(path) ?? [];
    methods.push(...(method === 'get' ? ['GET', 'HEAD'] : [method.toUpperCase()]));
    paths.set(path, methods);
  }
  return paths;
}

function refuseMethod(methods: readonly string[]): RequestHandler {
  const allow = methods.join(', ');
  return (request, response) => {
    response.setHeader('Allow', allow);
    problem(request, response, 405, 'MethodNotAllowed', `This address takes ${allow}.`);
  };
}

const refuseErrors: ErrorRequestHandler = (error: unknown, request, response, next) => {
  if (isDomainError(error) && !response.headersSent) refuse(request, response, error);
  else next(error);
};
