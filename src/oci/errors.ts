import type { IncomingMessage, ServerResponse } from 'node:http';
import type { DomainError, ErrorName } from '../errors.ts';
import { sendJson } from '../http/send.ts';
import { UpstreamError } from '../upstream/upstream-error.ts';

/** Status and code (distribution-spec, "Error Codes") of each domain error that reaches the registry's edge. */
const wire: Record<ErrorName, readonly [status: number, code: string]> = {
  Unauthorized: [401, 'UNAUTHORIZED'],
  ScopeMissing: [403, 'DENIED'],
  NameDenied: [403, 'DENIED'],
  NotFound: [404, 'UNSUPPORTED'],
  Invalid: [400, 'UNSUPPORTED'],
  AlreadyExists: [409, 'DENIED'],
  PackageInvalid: [400, 'UNSUPPORTED'],
  Unsupported: [405, 'UNSUPPORTED'],
  NameInvalid: [400, 'NAME_INVALID'],
  NameUnknown: [404, 'NAME_UNKNOWN'],
  TagInvalid: [400, 'TAG_INVALID'],
  DigestInvalid: [400, 'DIGEST_INVALID'],
  DigestMismatch: [400, 'DIGEST_INVALID'],
  BlobUnknown: [404, 'BLOB_UNKNOWN'],
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
  UpstreamUnavailable: [502, 'UNAVAILABLE'],
  UpstreamTimeout: [504, 'UNAVAILABLE'],
  Aborted: [400, 'BLOB_UPLOAD_INVALID'],
};

function wireOf(error: DomainError): readonly [status: number, code: string] {
  // An upstream's own no is final, for the clients that repeat what a 502 answers; it is not "not found" either.
  return error instanceof UpstreamError && error.denied ? wire.ScopeMissing : wire[error.name];
}

/** The status that a domain error comes to. */
export function statusOf(error: DomainError): number {
  return wireOf(error)[0];
}

/** Sends the error body (distribution-spec, "Error Codes"); without `error`, one of a 500 that has no details. */
export function sendRefusal(
  request: IncomingMessage,
  response: ServerResponse,
  status: number,
  error?: DomainError,
): void {
  const { message = 'This is a defect here; the log tells more.', detail } = error ?? {};
  const code = error ? wireOf(error)[1] : 'UNKNOWN';
  sendJson(request, response, status, { errors: [{ code, message, ...(detail && { detail }) }] });
}
