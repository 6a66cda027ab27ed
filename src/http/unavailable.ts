import type { ServerResponse } from 'node:http';
import type { Logger } from 'pino';
import { isDomainError, type DomainError } from '../runtime/errors.ts';
import { storageFull } from '../storage/files/disk.ts';
import { storageFailure } from '../storage/files/unavailable.ts';
import { contextOf } from './request-context.ts';

/** What the service needs besides itself. */
export const parts = ['database', 'storage', 'redis', 'certificate', 'webhooks'] as const;
export type ServerPart = (typeof parts)[number];
/** The parts that requests use. */
export type UsedPart = Exclude<ServerPart, 'certificate' | 'webhooks'>;

/** `error` as a domain error; undefined for a bug. */
export function asDomainError(error: unknown): DomainError | undefined {
  return isDomainError(error) ? error : (storageFull(error) ?? storageFailure(error));
}

/** The part that failed, if `error` says that one cannot be used. */
function failedPart(error: DomainError | undefined): UsedPart | undefined {
  if (error?.name === 'DatabaseUnavailable') return 'database';
  return error?.name === 'StorageUnavailable' ? 'storage' : undefined;
}

/** Whether `error` says that the database or the storage cannot be used. */
export function isUnavailable(error: unknown): boolean {
  return failedPart(asDomainError(error)) !== undefined;
}

/** Logs the reason of an unavailable database or storage, and records it for readiness. Ignores any other error. */
export function noteUnavailable(log: Logger, response: ServerResponse, error: DomainError | undefined): void {
  const part = failedPart(error);
  if (part === undefined) return;
  const context = contextOf(response);
  context.unavailable = part;
  log.error({ err: error, request: context.id }, `a request failed because the ${part} is unavailable`);
}
