import type { IncomingMessage, ServerResponse } from 'node:http';
import type { DomainError, ErrorName } from '../errors.ts';
import { problem } from '../http/problem.ts';

/** Domain error → HTTP status. */
const statuses: Record<ErrorName, number> = {
  Unauthorized: 401,
  ScopeMissing: 403,
  NotFound: 404,
  Invalid: 400,
  AlreadyExists: 409,
  TooLarge: 413,
  DigestMismatch: 400,
  DigestInvalid: 400,
  NameInvalid: 400,
  NameUnknown: 404,
  TagInvalid: 400,
  ManifestInvalid: 400,
  ManifestUnknown: 404,
  ManifestBlobUnknown: 404,
  BlobUnknown: 404,
  UploadUnknown: 404,
  UploadInvalid: 400,
  UploadOutOfOrder: 416,
  UploadBusy: 409,
  RangeNotSatisfiable: 416,
  LengthInvalid: 400,
  PackageInvalid: 400,
  Unsupported: 415,
  TooManyRequests: 429,
  QuotaExceeded: 403,
  StorageFull: 507,
  UpstreamUnavailable: 502,
  UpstreamTimeout: 504,
  Aborted: 400,
};

/** Answers with a domain error; 401 and 403 carry their challenge (RFC 9110, 11.6.1; RFC 6750, 3). */
export function refuse(request: IncomingMessage, response: ServerResponse, error: DomainError): void {
  const status = statuses[error.name];
  if (error.name === 'Unauthorized') {
    const wrong = request.headers.authorization === undefined ? '' : ', error="invalid_token"';
    response.setHeader('WWW-Authenticate', ['Basic realm="Entrepot"', `Bearer realm="Entrepot"${wrong}`]);
  }
  if (error.name === 'ScopeMissing') {
    const scope = String(error.detail?.['scope']);
    response.setHeader('WWW-Authenticate', `Bearer realm="Entrepot", error="insufficient_scope", scope="${scope}"`);
  }
  // What is left of the body is not worth reading, and where it ends may be unknown.
  if (error.name === 'TooLarge' || error.name === 'Aborted') response.setHeader('Connection', 'close');
  problem(request, response, status, error.name, error.message, error.detail);
}
