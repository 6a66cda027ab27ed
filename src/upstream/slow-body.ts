import { finished, type Readable } from 'node:stream';
import { Refused } from './failures.ts';

/** How fast a body must come at least. */
interface MinSpeed {
  /** Bytes that must come in each `within`. */
  bytes: number;
  /** Milliseconds. */
  within: number;
}

/** Bodies up to this size, and documents, must be complete in the upstream's time-out: clients get nothing before. */
const small = 64 * 1024;
/** Bytes a second of other bodies, counted over a few time-outs, because a connection may be bad for a while. */
const rate = 1024;
const timeouts = 3;
/** The speed is checked in this many spans, so that a stall of this process counts as one span only. */
const spans = 4;

/** The upstream sent a body too slowly. The body is not resumed. */
class TooSlow extends Refused {
  constructor({ bytes, within }: MinSpeed) {
    super(`sent fewer than ${bytes} bytes of a body in ${within / 1000} s`, { verdict: 'resource' });
  }
}

/** The `TooSlow` that is the reason of `error`, which got and the reader of the body wrap; undefined for any other error. */
export function slownessIn(error: unknown): TooSlow | undefined {
  for (let each = error; each instanceof Error; each = each.cause) if (each instanceof TooSlow) return each;
  return undefined;
}

/** The least speed of a body of `size` bytes (undefined if unknown) from an upstream whose time-out is `timeout` milliseconds. */
export function minSpeed(size: number | undefined, isDocument: boolean, timeout: number): MinSpeed {
  if (isDocument || (size !== undefined && size <= small)) return { bytes: small, within: timeout };
  return { bytes: Math.ceil((rate * timeouts * timeout) / 1000), within: timeouts * timeout };
}

/**
 * Destroys `body` with `TooSlow`, and calls `then`, when it comes more slowly than `least`. `received` returns the bytes
 * that have come. Time in which the reader takes no bytes does not count.
 */
export function cutSlowBody(body: Readable, least: MinSpeed, received: () => number, then: () => void): void {
  let counted = received();
  let slowSpans = 0;
  const timer = setInterval(() => {
    if (received() - counted >= least.bytes || body.isPaused() || body.readableLength > 0) {
      counted = received();
      slowSpans = 0;
      return;
    }
    slowSpans += 1;
    if (slowSpans < spans) return;
    clearInterval(timer);
    then();
    body.destroy(new TooSlow(least));
  }, least.within / spans);
  // If nobody reads the body, this timer does not keep the process running.
  timer.unref();
  finished(body, { writable: false }, () => clearInterval(timer));
}
