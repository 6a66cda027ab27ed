import type { IncomingMessage } from 'node:http';

/** Bounds for reading the rest of a body after its request was answered. Times are in milliseconds. */
export interface DrainLimits {
  /** How long the sender may send nothing. */
  idle: number;
  /** How long the rest may take in total. */
  total?: number;
  bytes?: number;
}

/** Number of checks in each `idle` time, as in `whenSilent`. */
const checksPerIdle = 4;
/** More than the default limit for packages, so that a client which reads only after sending receives the answer. */
const maxBytes = 2 ** 30;
const maxDuration = 30_000;

/**
 * Reads and discards the rest of a body that was refused or not needed, so that its sender can read the answer and use
 * the connection again. Destroys the connection of a sender that exceeds the limits. Call it when the answer is
 * finished.
 */
export function drain(request: IncomingMessage, { idle, total = maxDuration, bytes = maxBytes }: DrainLimits): void {
  if (request.complete || request.destroyed) return;
  const { socket } = request;
  const first = socket.bytesRead;
  const startedAt = performance.now();
  let lastRead = first;
  let silentChecks = 0;
  const timer = setInterval(
    () => {
      if (request.complete) {
        clearInterval(timer);
        return;
      }
      // Node discards the body without events, but the socket counts it.
      silentChecks = socket.bytesRead === lastRead ? silentChecks + 1 : 0;
      lastRead = socket.bytesRead;
      if (silentChecks >= checksPerIdle || lastRead - first > bytes || performance.now() - startedAt > total) {
        clearInterval(timer);
        socket.destroy();
      }
    },
    Math.min(idle, total) / checksPerIdle,
  );
  request.once('close', () => clearInterval(timer));
  request.on('error', () => undefined);
  request.resume();
}
