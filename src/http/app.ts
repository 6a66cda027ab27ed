import { randomUUID } from 'node:crypto';
import type { RequestListener } from 'node:http';
import express, {
  type ErrorRequestHandler,
  type Express,
  type Request,
  type RequestHandler,
  type Response,
  type Router,
} from 'express';
import type { Logger } from 'pino';
import type { Config } from '../config/schema.ts';
import { isBillable, type Use } from '../usage/counters.ts';
import type { UsageRecord } from '../usage/record.ts';
import { exchangeOf, newExchange, openExchange, runExchange, type Exchange } from './exchange.ts';
import type { Operations } from './operations.ts';
import { problem } from './problem.ts';

export interface Interfaces {
  /** `/v1` */
  api: Router;
  /** `/v2` */
  registry: RequestListener;
  /** `/token`, where container clients look for tokens. */
  token: RequestListener;
  /** `/v3` */
  feed: Router;
  /** `/livez`, `/readyz`, `/metrics`; undefined when they are served on a port of their own. */
  operations: Operations | undefined;
}

export interface Observers {
  log: Logger;
  observe: Operations;
  usage: UsageRecord;
  now: () => number;
}

/** The whole of HTTP: one application, three interfaces, one access log. */
export function createApp(config: Config, interfaces: Interfaces, { log, observe, usage, now }: Observers): Express {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.set('trust proxy', config.server.trustProxy);
  app.set('query parser', 'simple');
  app.use(accessLog({ log, observe, usage, now }));
  app.use(refuseMalformedHost);
  app.use('/v2', (request, response) => interfaces.registry(request, response));
  app.use('/token', (request, response) => interfaces.token(request, response));
  app.use('/v3', interfaces.feed);
  app.use('/v1', interfaces.api);
  if (interfaces.operations) app.use(interfaces.operations.router);
  app.use((request, response) => problem(request, response, 404, 'NotFound', 'There is nothing at this address.'));
  app.use(lastResort(log));
  return app;
}

/** One JSON line a request, written when it is over; never a header's value, so never a token. */
function accessLog({ log, observe, usage, now }: Observers): RequestHandler {
  return (request, response, next) => {
    const startedAt = performance.now();
    const exchange = newExchange(randomUUID(), startedAt);
    openExchange(response, exchange);
    response.setHeader('X-Request-Id', exchange.id);
    response.once('close', () => {
      const seconds = (performance.now() - startedAt) / 1000;
      observe.count(request.method, response.statusCode, seconds, exchange);
      const line = accessLine(request, response, exchange, seconds, now());
      const { principal } = exchange;
      if (principal) usage.count(principal.accountId, line, exchange.version);
      log.info(line, 'request');
      if (exchange.fetching > 0) exchange.fetchedLater = (bytes) => countLater(line, bytes);
    });
    runExchange(exchange, next);

    /** Somebody left, and the mirror goes on. */
    function countLater({ request: id, status, account, token, kind, subject, billable }: AccessLine, fetched: number) {
      const later = { request: id, at: now(), status, fetched, account, token, kind, subject, billable };
      if (exchange.principal) usage.countFetched(exchange.principal.accountId, later);
      log.info(later, 'fetched');
    }
  };
}

interface AccessLine extends Use {
  request: string;
  method: string;
  path: string;
  seconds: number;
  remote: string | undefined;
  agent: string | undefined;
  account: string | undefined;
  billable: boolean;
}

/** Usage can be counted again from these lines (`entrepot usage reconcile`). */
function accessLine(request: Request, response: Response, exchange: Exchange, seconds: number, at: number): AccessLine {
  const { principal, fetched } = exchange;
  const { statusCode: status } = response;
  return {
    request: exchange.id,
    at,
    method: request.method,
    path: request.originalUrl.split('?', 1)[0]!,
    status,
    complete: response.writableFinished,
    seconds: Math.round(seconds * 1e6) / 1e6,
    received: exchange.received,
    sent: exchange.sent,
    fetched,
    remote: request.ip,
    agent: request.headers['user-agent'],
    account: principal?.accountName,
    token: principal?.tokenId,
    kind: exchange.kind,
    subject: exchange.subject,
    act: exchange.act,
    cache: response.getHeader('Cache-Status') as string | undefined,
    billable: principal !== undefined && isBillable(status),
  };
}

/** The Host becomes part of the URLs in answers, so it has to be one. */
const refuseMalformedHost: RequestHandler = (request, response, next) => {
  if (/^(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?$/.test(request.host ?? '')) next();
  else problem(request, response, 400, 'Invalid', 'The Host header is missing or malformed.');
};

/** What no interface has answered: a malformed path, or a defect. Never a stack trace. */
function lastResort(log: Logger): ErrorRequestHandler {
  return (error: unknown, request, response, _next) => {
    if (response.headersSent) {
      log.error({ err: error, request: exchangeOf(response).id }, 'an answer broke off');
      response.destroy();
      return;
    }
    const status = (error as { status?: number }).status ?? 500;
    if (status >= 500) log.error({ err: error, request: exchangeOf(response).id }, 'a request failed');
    if (status < 500) problem(request, response, status, 'Invalid', 'The request is malformed.');
    else
      problem(
        request,
        response,
        500,
        'Internal',
        `This is a defect here. The log tells more under ${exchangeOf(response).id}.`,
      );
  };
}
