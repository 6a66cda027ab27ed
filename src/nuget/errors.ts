import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ErrorRequestHandler } from 'express';
import { isDomainError, type DomainError, type ErrorName } from '../errors.ts';
import { problem } from '../http/problem.ts';

/** The status of each of the domain's errors that the feed meets; any other is a defect. */
const statuses: Partial<Record<ErrorName, number>> = {
  Unauthorized: 401,
  ScopeMissing: 403,
  NotFound: 404,
  Invalid: 400,
  PackageInvalid: 400,
  Aborted: 400,
  AlreadyExists: 409,
  TooLarge: 413,
  QuotaExceeded: 413,
  StorageFull: 507,
  Unsupported: 415,
  RangeNotSatisfiable: 416,
  TooManyRequests: 429,
  UpstreamUnavailable: 502,
  UpstreamTimeout: 504,
};

/** How long the rest of a refused body is taken in, in milliseconds, so that its sender gets to read the answer. */
const lingerFor = 10_000;

/** Answers with a problem document, and says the same in the reason phrase: it is what the clients print. */
export const refuseErrors: ErrorRequestHandler = (error: unknown, request, response, next) => {
  const status = isDomainError(error) ? statusOf(error) : undefined;
  if (!isDomainError(error) || status === undefined || response.headersSent) {
    next(error);
    return;
  }
  if (status === 401) response.setHeader('WWW-Authenticate', 'Basic realm="Entrepot"');
  const size = error.detail?.['size'];
  if (status === 416) response.setHeader('Content-Range', `bytes */${String(size)}`);
  const pause = error.detail?.['retryAfter'];
  if (typeof pause === 'number') response.setHeader('Retry-After', pause);
  response.statusMessage = oneLine(error.message);
  linger(request, response);
  problem(request, response, status, error.name, error.message, error.detail);
};

/** Who is offline by its settings is no failing gateway: as for `only-if-cached` (RFC 9111, 5.2.1.7), it is 504. */
function statusOf({ name, detail }: DomainError): number | undefined {
  return detail?.['offline'] === true ? 504 : statuses[name];
}

/** Text that may stand in a header or a status line: one line of Latin-1. */
export function oneLine(text: string): string {
  return text
    .replace(/\s+/g, ' ')
    .replace(/[^\x20-\x7e\xa1-\xff]/g, '?')
    .slice(0, 400);
}

function linger(request: IncomingMessage, response: ServerResponse): void {
  if (request.complete) return;
  request.on('error', () => undefined);
  request.resume();
  const timer = setTimeout(() => request.destroy(), lingerFor);
  request.once('close', () => clearTimeout(timer));
  response.once('close', () => clearTimeout(timer));
}
