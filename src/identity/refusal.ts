import { DomainError } from '../runtime/errors.ts';

/** `Unauthorized`, for an identity token that is not accepted. */
export function tokenRefused(message: string, cause?: unknown): DomainError {
  return new DomainError('Unauthorized', message, { cause });
}
