import { DomainError } from '../../runtime/errors.ts';

/** Seconds after which a client may try again. */
const retryAfter = 5;

/** Errors of the operating system that say that a disk or a mounted folder cannot be used now. */
const systemCodes = new Set([
  'EACCES',
  'EBUSY',
  'EHOSTDOWN',
  'EIO',
  'EMFILE',
  'ENFILE',
  'ENODEV',
  'ENOTCONN',
  'ENOTDIR',
  'ENXIO',
  'EPERM',
  'EROFS',
  'ESTALE',
  'ETIMEDOUT',
]);

/** Calls on files. Sockets have errors with the same codes. */
const fileCalls =
  /^(?:access|copyfile|fdatasync|fstat|fsync|ftruncate|mkdir|open|opendir|rename|rmdir|scandir|stat|unlink)$/;

/** `StorageUnavailable`, with a reason for the client. `cause` is for the log: it may contain paths. */
export function storageUnavailable(reason: string, cause?: unknown): DomainError {
  return new DomainError('StorageUnavailable', reason, { cause, retryAfter });
}

/**
 * `StorageUnavailable` for an error of the operating system that says that files cannot be read or written now;
 * undefined for any other error.
 */
export function storageFailure(error: unknown): DomainError | undefined {
  if (!(error instanceof Error)) return undefined;
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (!systemCodes.has(code ?? '')) return undefined;
  // A read or a write can be one of a socket, which never ends with these two codes.
  if (!fileCalls.test(syscall ?? '') && code !== 'EIO' && code !== 'ESTALE') return undefined;
  return storageUnavailable('The storage cannot be read or written.', error);
}
