import { STATUS_CODES, type IncomingMessage, type ServerResponse } from 'node:http';
import { contextOf } from './request-context.ts';
import { sendBytes } from './send.ts';

/** Answers with an RFC 9457 problem document. `name` is the domain error's. */
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

/** Answers with 500 for what is no error of the domain. It tells nothing but where to look. */
export function sendDefect(request: IncomingMessage, response: ServerResponse): void {
  const { id } = contextOf(response);
  problem(request, response, 500, 'Internal', `This is a defect here. The log tells more under ${id}.`);
}
