import { STATUS_CODES, type IncomingMessage, type ServerResponse } from 'node:http';
import type { DomainError } from '../runtime/errors.ts';
import { contextOf } from './request-context.ts';
import { sendBytes } from './send.ts';

/** Answers with an RFC 9457 problem document. `name` is the name of the domain error. */
export function problem(
  request: IncomingMessage,
  response: ServerResponse,
  status: number,
  name: string,
  message: string,
  detail: Record<string, unknown> = {},
): void {
  const body = { ...detail, type: 'about:blank', title: STATUS_CODES[status], status, code: name, detail: message };
  sendBytes(request, response, status, Buffer.from(JSON.stringify(body)), {
    'Content-Type': 'application/problem+json',
    'Cache-Control': 'no-store',
  });
}

/** Sends the problem document of `error`; without one, that of a bug, which has only the request ID to search the log for. */
export function sendProblem(
  request: IncomingMessage,
  response: ServerResponse,
  status: number,
  error: DomainError | undefined,
): void {
  const { id } = contextOf(response);
  const defect = `The server failed because of a bug. The server log has the details under ${id}.`;
  problem(request, response, status, error?.name ?? 'Internal', error?.message ?? defect, error?.detail);
}
