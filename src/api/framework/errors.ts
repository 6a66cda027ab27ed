import type { IncomingMessage } from 'node:http';
import type { DomainError, ErrorName } from '../../runtime/errors.ts';
import { authorizationOf } from '../../http/authenticate.ts';

/** Domain error → HTTP status. */
const statuses: Record<ErrorName, number> = {
  Unauthorized: 401,
  ScopeMissing: 403,
  NameDenied: 403,
  Denied: 403,
  NotFound: 404,
  Invalid: 400,
  AlreadyExists: 409,
  TagFrozen: 409,
  Kept: 409,
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
  ContentDamaged: 500,
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
  DatabaseUnavailable: 503,
  StorageUnavailable: 503,
  KeyUnavailable: 503,
  UpstreamUnavailable: 502,
  UpstreamTimeout: 504,
  Aborted: 400,
};

/** The HTTP status of a domain error. */
export function statusOf({ name }: DomainError): number {
  return statuses[name];
}

/** The `WWW-Authenticate` header of a 401 or 403 (RFC 9110, 11.6.1; RFC 6750, 3). */
export function challenge({ name, detail }: DomainError, request: IncomingMessage): string | string[] | undefined {
  if (name === 'Unauthorized') {
    const wrong = authorizationOf(request) === undefined ? '' : ', error="invalid_token"';
    return ['Basic realm="Entrepot"', `Bearer realm="Entrepot"${wrong}`];
  }
  if (name !== 'ScopeMissing') return undefined;
  return `Bearer realm="Entrepot", error="insufficient_scope", scope="${String(detail?.['scope'])}"`;
}
