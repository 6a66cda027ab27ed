import type { IncomingMessage } from 'node:http';

/** How much of a refused body is still taken in, so that its sender gets to read the answer. */
const patience = 64 * 1024 * 1024;

/** Takes in the rest of a body that nobody wants; a sender that does not stop is cut off. */
export function discardBody(request: IncomingMessage, idle: number): void {
  if (request.complete || request.destroyed) return;
  let length = 0;
  const timer = setTimeout(() => request.destroy(), idle);
  request.on('data', (piece: Buffer) => {
    timer.refresh();
    length += piece.length;
    if (length > patience) request.destroy();
  });
  request.once('close', () => clearTimeout(timer));
  request.once('end', () => clearTimeout(timer));
  request.on('error', () => undefined);
  request.resume();
}
