import { parse, type ParsedUrlQuery } from 'node:querystring';
import type { ServerResponse } from 'node:http';
import { Router, type Request, type RequestHandler } from 'express';
import type { Logger } from 'pino';
import type { z } from 'zod';
import type { Principal } from '../accounts/principal.ts';
import type { Config } from '../config/schema.ts';
import { DomainError } from '../runtime/errors.ts';
import { authorizationOf, type Authenticator } from '../http/authenticate.ts';
import { parseJson, readBody } from '../http/body.ts';
import { answerOrRefuse, createEdge, type WireOperation as EdgeOperation } from '../http/edge.ts';
import { limitAnonymous } from '../http/limit.ts';
import { contextOf } from '../http/request-context.ts';
import { problem, sendProblem } from '../http/problem.ts';
import { sendJson, sendShared } from '../http/send.ts';
import { splitTarget } from '../http/target.ts';
import type { Urls } from '../http/urls.ts';
import type { Quota } from '../usage/quota.ts';
import { challenge, statusOf } from './framework/errors.ts';
import { describe } from './openapi.ts';
import { sendFile, type AnsweredFile } from '../http/send-file.ts';
import { check, requireForm, type Operation } from './framework/operation.ts';
import { allowOperation } from './operations.ts';
import { pageQuery } from './framework/paging.ts';

interface ApiParts {
  operations: readonly Operation[];
  authenticator: Authenticator;
  /** Who has the session of the console whose cookie a request has; undefined without one. */
  visitorOf: ((request: Request, response: ServerResponse) => Promise<Principal | undefined>) | undefined;
  quota: Quota;
  urls: Urls;
  limits: Config['limits'];
  log: Logger;
}

/** Largest request body, in bytes. */
const bodyLimit = 64 * 1024;
/** The most characters of an unknown parameter that an answer repeats. */
const maxNameLength = 100;

/** A request and the operation that it matches. */
interface Matched {
  definition: Operation;
  operation: EdgeOperation<MatchedOperation>;
  request: Request;
  response: ServerResponse;
}

/** A request that is routed, authenticated and allowed. */
interface MatchedOperation {
  request: Request;
  response: ServerResponse;
  principal: Principal;
  owner: number;
  params: Record<string, string>;
}

/** The REST management API, mounted at `/v1`. */
export function createApi(parts: ApiParts): Router {
  const { operations, authenticator, quota, log } = parts;
  const edge = createEdge<Matched, MatchedOperation>({
    kind: 'other',
    log,
    quota,
    authenticate: async (message, { definition, request, response }) => {
      const takesCookie = definition.session && authorizationOf(message) === undefined;
      const visitor = takesCookie ? await parts.visitorOf?.(request, response) : undefined;
      return visitor ?? authenticator.principalOf(message);
    },
    find: ({ operation }) => operation,
    open: async ({ response, principal, target: { definition, request } }) => {
      const params = paramsOf(request);
      const owner = await allowOperation(definition, principal, params);
      return { request, response, principal, owner, params };
    },
    statusOf,
    challenge,
    refuse: sendProblem,
  });
  const router = Router({ caseSensitive: true });
  for (const each of operations) {
    const operation = routed(each, parts);
    router[each.method](each.path, (request, response, next) =>
      each.matches?.(paramsOf(request)) === false
        ? next()
        : edge({ definition: each, operation, request, response }, request, response),
    );
  }
  // Of each answer only the address of the server is its own: many clients that read slowly hold little memory.
  let document: Buffer | undefined;
  const sendDocument = answerOrRefuse<Request>(
    { log, statusOf, refuse: sendProblem },
    async (request, message, response) => {
      await limitAnonymous(response);
      document ??= Buffer.from(JSON.stringify(describe(operations)).slice(0, -1));
      const servers = JSON.stringify([{ url: `${parts.urls.of(request).base}/v1` }]);
      const rest = Buffer.from(`,"servers":${servers}}`);
      sendShared(message, response, document, rest, { 'Content-Type': 'application/json' });
    },
  );
  router.get('/openapi.json', (request, response) => sendDocument(request, request, response));
  for (const [path, methods] of methodsByPath(operations)) router.all(path, refuseMethod(methods));
  router.use((request, response) => {
    const document = `${parts.urls.of(request).base}/v1/openapi.json`;
    problem(request, response, 404, 'NotFound', `There is nothing at this address. ${document} lists the addresses.`);
  });
  return router;
}

function routed(definition: Operation, { urls, limits }: ApiParts): EdgeOperation<MatchedOperation> {
  return {
    action: definition.action,
    stores: definition.receives?.stores ?? false,
    cost: definition.cost,
    run: async ({ request, response, principal, owner, params }) => {
      const asked = parametersOf(request);
      refuseUnknown(definition, asked);
      const query = definition.query && check(definition.query, asked, 'query');
      let body: unknown;
      if (definition.body) {
        const bytes = await readBody(request, { limit: bodyLimit, idle: limits.uploadIdle });
        contextOf(response).received = bytes.length;
        body = check(definition.body, parseJson(request, bytes), 'body');
      }
      if (definition.receives?.fields) requireForm(request);
      const receiving = definition.receives && { request, response };
      const result = await definition.run({ principal, owner, params, query, body, receiving });
      if (definition.sends) return sendFile(request, response, result as AnsweredFile);
      if (definition.answer === undefined) {
        response.writeHead(definition.status).end();
        return undefined;
      }
      addNextLink(request, response, urls, result);
      return sendJson(request, response, definition.status, result, { 'Cache-Control': 'no-store' });
    },
  };
}

/** The path parameters. The segments of a wildcard become one name, with encoded slashes or plain ones. */
function paramsOf(request: Request): Record<string, string> {
  const params = request.params as Record<string, string | string[]>;
  return Object.fromEntries(
    Object.entries(params).map(([name, value]) => [name, Array.isArray(value) ? value.join('/') : value]),
  );
}

/** The query parameters. A repeated parameter becomes a list, which every schema rejects. */
function parametersOf(request: Request): ParsedUrlQuery {
  return parse(splitTarget(request.originalUrl).query);
}

/** Clients may send these with every list, also with a short one that has no pages. */
const ofLists = Object.keys(pageQuery.shape);

/** Throws `Invalid` for a query parameter that the operation does not have, such as one with a typing error. */
function refuseUnknown({ query, method }: Operation, asked: ParsedUrlQuery): void {
  const known = Object.keys((query as z.ZodObject | undefined)?.shape ?? {});
  const field = Object.keys(asked)
    .find((each) => !known.includes(each) && !(method === 'get' && ofLists.includes(each)))
    ?.slice(0, maxNameLength);
  if (field === undefined) return;
  const there = known.length > 0 ? `this operation has ${known.join(', ')}` : 'this operation has none';
  const message = `there is no such query parameter; ${there}`;
  throw new DomainError('Invalid', `${field}: ${message}`, { detail: { errors: [{ field, message }] } });
}

/** Adds the `Link` header of RFC 8288: the same request with the cursor of the next page. */
function addNextLink(request: Request, response: ServerResponse, urls: Urls, result: unknown): void {
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
    problem(request, response, 405, 'MethodNotAllowed', `This path supports only ${allow}.`);
  };
}
