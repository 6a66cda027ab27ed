import type { IncomingMessage, ServerResponse } from 'node:http';
import type { DomainError, ErrorName } from '../../runtime/errors.ts';
import { sendJson } from '../../http/send.ts';
import { UpstreamError } from '../../upstream/upstream-error.ts';

/** HTTP status and code (distribution-spec, "Error Codes") of each domain error. */
const wire: Record<ErrorName, readonly [status: number, code: string]> = {
  Unauthorized: [401, 'UNAUTHORIZED'],
  ScopeMissing: [403, 'DENIED'],
  NameDenied: [403, 'DENIED'],
  Denied: [403, 'DENIED'],
  NotFound: [404, 'UNSUPPORTED'],
  Invalid: [400, 'UNSUPPORTED'],
  AlreadyExists: [409, 'DENIED'],
  // The status of other registries with tags that cannot move: clients show the message and do not try again.
  TagFrozen: [400, 'DENIED'],
  Kept: [409, 'DENIED'],
  PackageInvalid: [400, 'UNSUPPORTED'],
  Unsupported: [405, 'UNSUPPORTED'],
  NameInvalid: [400, 'NAME_INVALID'],
  NameUnknown: [404, 'NAME_UNKNOWN'],
  // The specification's table has no code for tags.
  TagInvalid: [400, 'MANIFEST_INVALID'],
  DigestInvalid: [400, 'DIGEST_INVALID'],
  DigestMismatch: [400, 'DIGEST_INVALID'],
  BlobUnknown: [404, 'BLOB_UNKNOWN'],
  ContentDamaged: [500, 'UNKNOWN'],
  ManifestUnknown: [404, 'MANIFEST_UNKNOWN'],
  ManifestInvalid: [400, 'MANIFEST_INVALID'],
  ManifestBlobUnknown: [400, 'MANIFEST_BLOB_UNKNOWN'],
  UploadUnknown: [404, 'BLOB_UPLOAD_UNKNOWN'],
  UploadInvalid: [400, 'BLOB_UPLOAD_INVALID'],
  UploadOutOfOrder: [416, 'BLOB_UPLOAD_INVALID'],
  UploadBusy: [409, 'BLOB_UPLOAD_INVALID'],
  LengthInvalid: [400, 'SIZE_INVALID'],
  RangeNotSatisfiable: [416, 'SIZE_INVALID'],
  TooLarge: [413, 'SIZE_INVALID'],
  TooManyRequests: [429, 'TOOMANYREQUESTS'],
  QuotaExceeded: [403, 'DENIED'],
  StorageFull: [507, 'UNAVAILABLE'],
  DatabaseUnavailable: [503, 'UNAVAILABLE'],
  StorageUnavailable: [503, 'UNAVAILABLE'],
  KeyUnavailable: [503, 'UNAVAILABLE'],
  UpstreamUnavailable: [502, 'UNAVAILABLE'],
  UpstreamTimeout: [504, 'UNAVAILABLE'],
  Aborted: [400, 'BLOB_UPLOAD_INVALID'],
};

function wireOf(error: DomainError): readonly [status: number, code: string] {
  // 403, because clients repeat a request after a 502, and an upstream's denial is final. It is not "not found" either.
  return error instanceof UpstreamError && error.denied ? wire.ScopeMissing : wire[error.name];
}

/** The HTTP status of a domain error. */
export function registryStatusOf(error: DomainError): number {
  return wireOf(error)[0];
}

/** Sends the error body (distribution-spec, "Error Codes"); without `error`, that of a 500 without details. */
export function sendRegistryRefusal(
  request: IncomingMessage,
  response: ServerResponse,
  status: number,
  error?: DomainError,
): void {
  const { message = 'An error occurred in this server. Its log has the details.', detail } = error ?? {};
  const code = error ? wireOf(error)[1] : 'UNKNOWN';
  sendJson(request, response, status, { errors: [{ code, message, ...(detail && { detail }) }] });
}
