import type { IncomingMessage } from 'node:http';

/** Bounds of what is taken in of a body after its request was answered. Times are in milliseconds. */
export interface DrainLimits {
  /** How long the sender may be silent. */
  idle: number;
  /** How long the rest may take. */
  whole?: number;
  bytes?: number;
}

/** Silence is counted in so many parts, as in `whenSilent`. */
const parts = 4;
/** More than the largest package by default: a client that sends first and reads later gets to read the answer. */
const mostBytes = 2 ** 30;
const longest = 30_000;

/**
 * Takes in the rest of a body that was refused, or was not needed, so that its sender gets to read the answer and can use
 * the connection again. Destroys the connection of a sender that exceeds the limits. To be called when the answer is over.
 */
export function drain(request: IncomingMessage, { idle, whole = longest, bytes = mostBytes }: DrainLimits): void {
  if (request.complete || request.destroyed) return;
  const { socket } = request;
  const first = socket.bytesRead;
  const startedAt = performance.now();
  let heard = first;
  let quiet = 0;
  const timer = setInterval(
    () => {
      if (request.complete) {
        clearInterval(timer);
        return;
      }
      // Node discards the body without events, but the socket counts it.
      quiet = socket.bytesRead === heard ? quiet + 1 : 0;
      heard = socket.bytesRead;
      if (quiet >= parts || heard - first > bytes || performance.now() - startedAt > whole) {
        clearInterval(timer);
        socket.destroy();
      }
    },
    Math.min(idle, whole) / parts,
  );
  request.once('close', () => clearInterval(timer));
  request.on('error', () => undefined);
  request.resume();
}
