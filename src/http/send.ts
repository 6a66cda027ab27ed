import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import type { Content } from '../storage/files/content.ts';
import type { HeldRead } from '../storage/blobs/shared-reads.ts';
import { contextOf, responseOf, sendingOf, type RequestContext } from './request-context.ts';
import { parseByteRange } from './ranges.ts';

/** Up to this many streams read the next piece while one is sent. More streams keep the machine busy without it. */
const readAheadStreams = 4;
const maxWholeBytes = 64 * 1024;
/** Smaller content is sent at once: a second request would take longer. */
const minRedirected = 2 ** 20;

export interface SendOptions {
  headers: OutgoingHttpHeaders;
  /** A strong validator, quoted. */
  etag?: string;
  /** Answer 206 and 416 (RFC 9110, 14). */
  ranges?: boolean;
  /** Lead the client to the storage, if the content is large and has a `location`. */
  redirect?: boolean;
}

/**
 * Answers with `content` and closes it. Supports HEAD, If-None-Match, Range with If-Range, and clients that disconnect.
 * If the content fails before its first byte, this rejects and sends nothing, so that the error can be the answer.
 * After the first byte the socket is destroyed, so that no client takes a part for the whole.
 */
export async function sendContent(
  request: IncomingMessage,
  response: ServerResponse,
  content: Content,
  options: SendOptions,
): Promise<void> {
  try {
    const headers: OutgoingHttpHeaders = { ...options.headers };
    if (options.etag !== undefined) {
      headers['ETag'] = options.etag;
      if (matches(request.headers['if-none-match'], options.etag)) {
        finish(response.writeHead(304, headers));
        return;
      }
    }
    const { size } = content;
    if (options.redirect && isRedirected(request, content)) {
      const Location = await content.location!();
      contextOf(response).redirected = size!;
      finish(response.writeHead(307, { ...options.headers, ...redirectHeaders, Location }));
      return;
    }
    let start = 0;
    let end = size === undefined ? Number.POSITIVE_INFINITY : size;
    let status = 200;
    if (options.ranges && size !== undefined) {
      headers['Accept-Ranges'] = 'bytes';
      const ifRange = request.headers['if-range'];
      const applies = request.method === 'GET' && (ifRange === undefined || ifRange === options.etag);
      const range = parseByteRange(applies ? request.headers.range : undefined, size);
      if (range) {
        status = 206;
        headers['Content-Range'] = `bytes ${range.start}-${range.end}/${size}`;
        start = range.start;
        end = range.end + 1;
        // Who does not get the end of it has not got it.
        if (end < size) contextOf(response).version = undefined;
      }
    }
    if (size !== undefined) headers['Content-Length'] = end - start;
    if (request.method === 'HEAD') finish(response.writeHead(status, headers));
    else if (content.bytes) sendWhole(response, status, headers, content.bytes.subarray(start, end));
    else if (end - start <= maxWholeBytes) sendWhole(response, status, headers, await readPart(content, start, end));
    else {
      if (content.pieces) countUnread(response, content.pieces, size!);
      await stream(content, response, status, headers, start, end);
    }
  } finally {
    content.close();
  }
}

/** Answers with bytes from memory. */
export function sendBytes(
  request: IncomingMessage,
  response: ServerResponse,
  status: number,
  bytes: Buffer,
  headers: OutgoingHttpHeaders,
): void {
  const complete = { ...headers, 'Content-Length': bytes.length };
  if (request.method === 'HEAD') finish(response.writeHead(status, complete));
  else sendWhole(response, status, complete, bytes);
}

/** Answers with bytes that many answers begin with, which are not copied for each of them, and with the rest of its own. */
export function sendShared(
  request: IncomingMessage,
  response: ServerResponse,
  shared: Buffer,
  rest: Buffer,
  headers: OutgoingHttpHeaders,
): void {
  if (response.destroyed || response.closed) return;
  const size = shared.length + rest.length;
  response.writeHead(200, { ...headers, 'Content-Length': size });
  if (request.method === 'HEAD') {
    finish(response);
    return;
  }
  contextOf(response).sent += size;
  response.write(shared);
  finish(response, rest);
}

/** Answers with a JSON document. */
export function sendJson(
  request: IncomingMessage,
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: OutgoingHttpHeaders = {},
): void {
  sendBytes(request, response, status, Buffer.from(JSON.stringify(body)), {
    'Content-Type': 'application/json',
    ...headers,
  });
}

function finish(response: ServerResponse, bytes?: Buffer): void {
  sendingOf(response).end(response, bytes);
}

/** The URL is valid for a short time, and only for this client. */
const redirectHeaders = { 'Cache-Control': 'no-store', 'Content-Length': 0 };

/**
 * A HEAD has no body to save, and the storage does not know its headers. A client that resumes with If-Range sends the validator of
 * this server, which the storage does not know either.
 */
function isRedirected({ method, headers }: IncomingMessage, { size, location }: Content): boolean {
  if (method !== 'GET' || headers.range !== undefined) return false;
  return location !== undefined && size !== undefined && size >= minRedirected;
}

function matches(header: string | undefined, etag: string): boolean {
  if (header === undefined) return false;
  return header === '*' || header.split(',').some((each) => each.trim().replace(/^W\//, '') === etag);
}

function sendWhole(response: ServerResponse, status: number, headers: OutgoingHttpHeaders, bytes: Buffer): void {
  contextOf(response).sent += bytes.length;
  finish(response.writeHead(status, headers), bytes);
  countUnread(response, bytes.buffer, bytes.buffer.byteLength);
}

function countUnread(response: ServerResponse, memory: object, size: number): void {
  sendingOf(response).unread.add(responseOf(response), memory, size);
}

async function readPart(content: Content, start: number, end: number): Promise<Buffer> {
  const bytes = Buffer.allocUnsafe(end - start);
  for (let length = 0; length < bytes.length;) {
    const read = await content.read(bytes.subarray(length), start + length);
    if (read === 0) throw new Error('content is shorter than its size');
    length += read;
  }
  return bytes;
}

/**
 * Sends content piece by piece. Each piece is held until it is written; with few streams, the next one is read
 * meanwhile.
 */
async function stream(
  content: Content,
  response: ServerResponse,
  status: number,
  headers: OutgoingHttpHeaders,
  start: number,
  end: number,
): Promise<void> {
  const context = contextOf(response);
  const sending = sendingOf(response);
  sending.streams += 1;
  const maxWrites = sending.streams > readAheadStreams ? 1 : 2;
  const writes: Promise<boolean>[] = [];
  let piece: HeldRead | undefined;
  try {
    for (let position = start; position < end;) {
      if (writes.length === maxWrites && !(await writes.shift())) return;
      piece = await sending.reads.hold(content, position, sending.streams);
      const bytes = piece.bytes.subarray(0, end - position);
      if (position === start) response.writeHead(status, headers);
      if (bytes.length === 0) {
        if (end === Number.POSITIVE_INFINITY) break;
        throw new Error('content is shorter than its size');
      }
      position += bytes.length;
      const written = write(response, bytes, context, writes.at(-1));
      void written.then(piece.release);
      writes.push(written);
      piece = undefined;
    }
    for (const each of writes) if (!(await each)) return;
    response.end();
  } catch (error) {
    if (response.headersSent) response.destroy();
    throw error;
  } finally {
    piece?.release();
    await Promise.all(writes);
    sending.streams -= 1;
  }
}

/**
 * Resolves to true when the bytes are written, or to false when the client disconnects. They count as sent when the
 * write before them is finished, because then their own write begins. So at most one buffer is counted but not written.
 */
function write(
  response: ServerResponse,
  bytes: Buffer,
  context: RequestContext,
  before: Promise<boolean> | undefined,
): Promise<boolean> {
  if (response.destroyed || response.closed) return Promise.resolve(false);
  if (before) void before.then((written) => (context.sent += written ? bytes.length : 0));
  else context.sent += bytes.length;
  return new Promise((resolve) => {
    const closed = () => resolve(false);
    response.once('close', closed);
    response.write(bytes, (error) => {
      response.off('close', closed);
      resolve(!error);
    });
  });
}
