import type { IncomingMessage } from 'node:http';

/** Bounds for reading the rest of a body after its request was answered. Times are in milliseconds. */
interface DrainLimits {
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
 * Lets the sender of an unfinished body read an answer after which the connection is closed. Node would close it with
 * unread bytes, so that the sender gets a reset and maybe never the answer. Now only this side is closed after the answer;
 * `drain` closes the rest. Call it before the answer is finished.
 */
export function closeAfterBody(request: IncomingMessage): void {
  const { socket } = request;
  // Node calls this after the last byte of the answer.
  socket.destroySoon = () => {
    delete (socket as Partial<typeof socket>).destroySoon;
    if (request.complete) socket.destroySoon();
    else socket.end();
  };
}

/**
 * Reads and discards the rest of a body that was refused or not needed, so that its sender can read the answer and use
 * the connection again. Destroys the connection of a sender that exceeds the limits, and one that is closed after the
 * answer. Call it when the answer is finished.
 */
export function drain(request: IncomingMessage, { idle, total = maxDuration, bytes = maxBytes }: DrainLimits): void {
  const { socket } = request;
  if (request.complete || request.destroyed || socket.destroyed) return;
  const first = socket.bytesRead;
  const startedAt = performance.now();
  let lastRead = first;
  let silentChecks = 0;
  const timer = setInterval(
    () => {
      // Node discards the body without events, but the socket counts it.
      silentChecks = socket.bytesRead === lastRead ? silentChecks + 1 : 0;
      lastRead = socket.bytesRead;
      if (silentChecks >= checksPerIdle || lastRead - first > bytes || performance.now() - startedAt > total) {
        stop();
        socket.destroy();
      }
    },
    Math.min(idle, total) / checksPerIdle,
  );
  const stop = () => {
    clearInterval(timer);
    request.off('end', finish).off('close', stop);
    socket.off('close', stop);
  };
  const finish = () => {
    stop();
    // Only this side is closed, see `closeAfterBody`.
    if (socket.writableEnded) socket.destroySoon();
  };
  request
    .once('end', finish)
    .once('close', stop)
    .on('error', () => undefined);
  // Without this, the timer would wait for a request whose connection is closed: Node does not close that request.
  socket.once('close', stop);
  request.resume();
}
