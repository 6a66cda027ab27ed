/**
 * The domain's errors. The name says what went wrong, the message says what to do. They do not know HTTP: each protocol
 * maps the names to wire codes in one table (`nuget/feed/errors.ts`, `oci/http/errors.ts`, `api/framework/errors.ts`).
 */
export const errorNames = [
  'Unauthorized',
  'ScopeMissing',
  'NameDenied',
  'Denied',
  'NotFound',
  'Invalid',
  'AlreadyExists',
  'TagFrozen',
  'Kept',
  'TooLarge',
  'DigestMismatch',
  'DigestInvalid',
  'NameInvalid',
  'NameUnknown',
  'TagInvalid',
  'ManifestInvalid',
  'ManifestUnknown',
  'ManifestBlobUnknown',
  'BlobUnknown',
  'ContentDamaged',
  'UploadUnknown',
  'UploadInvalid',
  'UploadOutOfOrder',
  'UploadBusy',
  'RangeNotSatisfiable',
  'LengthInvalid',
  'PackageInvalid',
  'Unsupported',
  'TooManyRequests',
  'QuotaExceeded',
  'StorageFull',
  'DatabaseUnavailable',
  'StorageUnavailable',
  'KeyUnavailable',
  'UpstreamUnavailable',
  'UpstreamTimeout',
  'Aborted',
] as const;

export type ErrorName = (typeof errorNames)[number];

interface DomainErrorOptions {
  detail?: Record<string, unknown> | undefined;
  cause?: unknown;
  retryAfter?: number | undefined;
}

/** An error that may be shown to the client. `detail` is machine-readable and may be shown; `cause` is for the log. */
export class DomainError extends Error {
  override readonly name: ErrorName;
  readonly detail: Record<string, unknown> | undefined;
  /** Seconds after which a retry may succeed, if known; `detail` contains it too. */
  readonly retryAfter: number | undefined;

  constructor(name: ErrorName, message: string, { detail, cause, retryAfter }: DomainErrorOptions = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = name;
    this.detail = retryAfter === undefined ? detail : { ...detail, retryAfter };
    this.retryAfter = retryAfter;
  }
}

/** Whether `error` is a domain error, and has the name `name` if that is given. */
export function isDomainError(error: unknown, name?: ErrorName): error is DomainError {
  return error instanceof DomainError && (name === undefined || error.name === name);
}

/** For `catch`: nothing, if there is no such file or folder. Throws any other error. */
export function ifMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR') throw error;
}
