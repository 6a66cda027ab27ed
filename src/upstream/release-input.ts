import { request, type IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { release } from '../runtime/incoming.ts';

let check: Promise<boolean> | undefined;

/** Whether `releaseInput` is safe with this Node; checked once, without the network. */
export function mayReleaseInput(): Promise<boolean> {
  return (check ??= parserCopies().catch(() => false));
}

/**
 * Frees the memory that a response's connection reads as soon as Node's HTTP parser is done with it. Left to the garbage
 * collector, a fast body makes it mark the whole heap every few mebibytes. This is safe only because the parser hands on
 * a copy of the body, which Node does not promise: ask `mayReleaseInput` first.
 */
export function releaseInput(response: IncomingMessage): void {
  // A response without a body may have returned its connection already.
  const socket = response.socket as Socket | null;
  socket?.on('data', releaseSoon);
  response.once('close', () => socket?.off('data', releaseSoon));
}

function releaseSoon(chunk: Buffer): void {
  queueMicrotask(() => release(chunk));
}

/** Whether the body that a client reads has other memory than what came from the connection. `get` is for tests. */
export function parserCopies(get: typeof request = request): Promise<boolean> {
  const head = 'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\n';
  const input = Buffer.from(new TextEncoder().encode(`${head}body`).buffer);
  const socket = new Duplex({ read: () => undefined, write: (_chunk, _encoding, done) => done() });
  return new Promise<boolean>((resolve, reject) => {
    get({ createConnection: () => socket }, (response) => {
      response.once('data', (chunk: Buffer) => resolve(chunk.buffer !== input.buffer));
    })
      .once('error', reject)
      .end();
    socket.push(input);
  }).finally(() => socket.destroy());
}
