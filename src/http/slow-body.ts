import type { AppResponse } from './request-context.ts';

interface BodySpeed {
  /** Fewest bytes a second. */
  rate: number;
  /** Milliseconds over which they are counted. */
  period: number;
}

/** The speed is checked in this many spans of a period, so that a stall of this process counts as one span only. */
const spans = 4;

/**
 * Closes the connection of a request whose body arrives more slowly than `rate`. Time in which this server does not read
 * the body does not count.
 */
export function cutSlowAnswer(response: AppResponse, { rate, period }: BodySpeed): void {
  const { req: request } = response;
  const { headers, socket } = request;
  if (headers['transfer-encoding'] === undefined && !(Number(headers['content-length']) > 0)) return;
  const least = (rate * period) / 1000;
  let counted = socket.bytesRead;
  let slowSpans = 0;
  const timer = setInterval(() => {
    if (request.complete) {
      clearInterval(timer);
      return;
    }
    const isEnough = socket.bytesRead - counted >= least;
    if (isEnough || request.readableFlowing !== true) {
      counted = socket.bytesRead;
      slowSpans = 0;
      return;
    }
    slowSpans += 1;
    if (slowSpans > spans) request.destroy();
  }, period / spans);
  response.once('close', () => clearInterval(timer));
}
