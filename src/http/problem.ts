import { STATUS_CODES, type IncomingMessage, type ServerResponse } from 'node:http';
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

/** Answers with 500 for an error that is not a domain error. It contains only the request ID to search the log for. */
export function sendDefect(request: IncomingMessage, response: ServerResponse): void {
  const { id } = contextOf(response);
  problem(
    request,
    response,
    500,
    'Internal',
    `The server failed because of a bug. The server log has the details under ${id}.`,
  );
}
