import type { DomainError, ErrorName } from '../../runtime/errors.ts';
import { UpstreamError } from '../../upstream/upstream-error.ts';

/** The status of each domain error that the feed can answer with. Any other error is a defect. */
const statuses: Partial<Record<ErrorName, number>> = {
  Unauthorized: 401,
  ScopeMissing: 403,
  NameDenied: 403,
  Denied: 403,
  NotFound: 404,
  Invalid: 400,
  PackageInvalid: 400,
  Aborted: 400,
  AlreadyExists: 409,
  Kept: 409,
  TooLarge: 413,
  QuotaExceeded: 413,
  StorageFull: 507,
  DatabaseUnavailable: 503,
  StorageUnavailable: 503,
  Unsupported: 415,
  RangeNotSatisfiable: 416,
  TooManyRequests: 429,
  ContentDamaged: 500,
  UpstreamUnavailable: 502,
  UpstreamTimeout: 504,
};

/** An upstream that is offline by its settings is 504, as for `only-if-cached` (RFC 9111, 5.2.1.7). */
export function feedStatusOf(error: DomainError): number | undefined {
  return error instanceof UpstreamError && error.offline ? 504 : statuses[error.name];
}
