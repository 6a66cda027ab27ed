import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { pipeline, type Readable } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate } from 'node:zlib';
import { release } from '../incoming.ts';
import { Refused, timedOut } from './failures.ts';

const nearEnd = 64 * 1024;
const decoders = new Map([
  ['gzip', createGunzip],
  ['x-gzip', createGunzip],
  ['deflate', createInflate],
  ['br', createBrotliDecompress],
]);

/** Undoes a content coding, asked for or not (RFC 9110, 8.4.1); undefined for a body without one. Throws `Refused`. */
export function decode(body: Readable, coding: string | undefined): Readable | undefined {
  const name = coding?.trim().toLowerCase() ?? '';
  if (name === '' || name === 'identity') return undefined;
  const decoder = decoders.get(name)?.();
  if (!decoder) {
    body.destroy();
    throw new Refused(`uses the content coding ${name.slice(0, 40)}, which nobody asked for`);
  }
  pipeline(body, decoder, () => undefined);
  return decoder;
}

/** Frees what a response's connection reads once HTTP's parser is through with it: the body that it hands on is a copy. */
export function releaseInput(response: IncomingMessage): void {
  // One without a body may have given its connection back already.
  const socket = response.socket as Socket | null;
  socket?.on('data', releaseSoon);
  response.once('close', () => socket?.off('data', releaseSoon));
}

function releaseSoon(chunk: Buffer): void {
  queueMicrotask(() => release(chunk));
}

/** Lets go of a body that nobody wants: read to its end where that is near, so that the connection can serve again. */
export function discard(body: Readable): void {
  let size = 0;
  const timer = setTimeout(() => body.destroy(), 1000);
  body.on('error', () => undefined);
  body.once('close', () => clearTimeout(timer));
  body.on('data', (chunk: Buffer) => {
    size += chunk.length;
    if (size > nearEnd) body.destroy();
  });
}

/** The whole of a small body. Rejects when it is cut, larger than `limit` or not there after `timeout` milliseconds. */
export async function readUpstreamBody(body: Readable, limit: number, timeout: number): Promise<Buffer> {
  const timer = setTimeout(() => body.destroy(timedOut('the body did not come in time')), timeout);
  try {
    const chunks: Buffer[] = [];
    let size = 0;
    for await (const chunk of body as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > limit) throw new Refused(`sends more than the ${limit} bytes that are taken`);
      chunks.push(chunk);
    }
    return Buffer.concat(chunks);
  } finally {
    clearTimeout(timer);
  }
}
