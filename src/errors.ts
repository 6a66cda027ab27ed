/**
 * The domain's errors. Each has a name that says what went wrong and a message that says what to do about it;
 * none knows HTTP. The protocols translate names to wire codes in one table each (`nuget/http/errors.ts`, `oci/errors.ts`,
 * `api/errors.ts`).
 */
export const errorNames = [
  'Unauthorized',
  'ScopeMissing',
  'NameDenied',
  'NotFound',
  'Invalid',
  'AlreadyExists',
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
  'UpstreamUnavailable',
  'UpstreamTimeout',
  'Aborted',
] as const;

export type ErrorName = (typeof errorNames)[number];

export interface DomainErrorOptions {
  detail?: Record<string, unknown> | undefined;
  cause?: unknown;
  retryAfter?: number | undefined;
}

/** An error the caller can be told about. `detail` is machine-readable and safe to show; `cause` is for the log. */
export class DomainError extends Error {
  override readonly name: ErrorName;
  readonly detail: Record<string, unknown> | undefined;
  /** Seconds after which another try may succeed, where that is known; `detail` shows it too. */
  readonly retryAfter: number | undefined;

  constructor(name: ErrorName, message: string, { detail, cause, retryAfter }: DomainErrorOptions = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = name;
    this.detail = retryAfter === undefined ? detail : { ...detail, retryAfter };
    this.retryAfter = retryAfter;
  }
}

/** Whether `error` is a domain error, of the given name if one is given. */
export function isDomainError(error: unknown, name?: ErrorName): error is DomainError {
  return error instanceof DomainError && (name === undefined || error.name === name);
}
