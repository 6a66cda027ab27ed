import { randomUUID } from 'node:crypto';
import type { RequestListener, ServerResponse } from 'node:http';
import express, {
  type ErrorRequestHandler,
  type Express,
  type Request,
  type RequestHandler,
  type Router,
} from 'express';
import type { Logger } from 'pino';
import type { Config } from '../config/schema.ts';
import { exchangeOf, openExchange } from './exchange.ts';
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

/** The whole of HTTP: one application, three interfaces, one access log. */
export function createApp(config: Config, interfaces: Interfaces, log: Logger, observe: Operations): Express {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.set('trust proxy', config.server.trustProxy);
  app.set('query parser', 'simple');
  app.use(accessLog(log, observe));
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
function accessLog(log: Logger, observe: Operations): RequestHandler {
  return (request, response, next) => {
    const startedAt = performance.now();
    const exchange = { id: randomUUID(), startedAt, received: 0, sent: 0 };
    openExchange(response, exchange);
    response.setHeader('X-Request-Id', exchange.id);
    response.once('close', () => {
      const seconds = (performance.now() - startedAt) / 1000;
      observe.count(request.method, response.statusCode, seconds, exchangeOf(response));
      log.info(accessLine(request, response, seconds), 'request');
    });
    next();
  };
}

function accessLine(request: Request, response: ServerResponse, seconds: number): Record<string, unknown> {
  const exchange = exchangeOf(response);
  return {
    request: exchange.id,
    method: request.method,
    path: request.originalUrl.split('?', 1)[0],
    status: response.statusCode,
    complete: response.writableFinished,
    seconds: Math.round(seconds * 1e6) / 1e6,
    received: exchange.received,
    sent: exchange.sent,
    remote: request.ip,
    agent: request.headers['user-agent'],
    account: exchange.principal?.accountName,
    token: exchange.principal?.tokenId,
    cache: response.getHeader('Cache-Status'),
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
