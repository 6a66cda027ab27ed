import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { DomainError } from './errors.ts';

// For everything that reads a body: free its memory, notice silence, limit the rate.

/** The idle time is checked in this many spans, so that a stall of this process counts as one span only. */
const spans = 4;
/** A shorter wait is added to the next one, because a timer is not more precise; milliseconds. */
const minWait = 4;

/**
 * Frees a chunk's memory at once; only the last user of the chunk may call it. The garbage collector alone would have to
 * mark the whole heap every few mebibytes of a fast body, which costs more than the hashing.
 */
export function release(chunk: Buffer): void {
  if (chunk.buffer instanceof ArrayBuffer && chunk.length === chunk.buffer.byteLength) chunk.buffer.transfer(0);
}

/**
 * Calls `then` once, with `Aborted`, when `source` has sent nothing for `idle` milliseconds, or up to a quarter longer. A
 * source that its reader has paused does not count as silent. Returns a function that stops the check.
 */
export function whenSilent(source: Readable, idle: number, then: (error: DomainError) => void): () => void {
  let silentSpans = 0;
  const reset = () => {
    silentSpans = 0;
  };
  const timer = setInterval(() => {
    silentSpans = source.isPaused() ? 0 : silentSpans + 1;
    if (silentSpans <= spans) return;
    stop();
    then(new DomainError('Aborted', 'The sender stopped sending before the end of the body.'));
  }, idle / spans);
  const stop = () => {
    clearInterval(timer);
    source.off('data', reset);
  };
  source.on('data', reset);
  return stop;
}

/** Limits work to a rate in bytes a second. */
export class Throttle {
  readonly #rate: number;
  readonly #signal: AbortSignal | undefined;
  #freeAt = performance.now();

  /** `signal` ends the work. */
  constructor(rate: number, signal: AbortSignal | undefined) {
    this.#rate = rate;
    this.#signal = signal;
  }

  /** To be awaited for each piece; resolves when the rate allows the next one. Rejects when the signal is aborted. */
  async spend(bytes: number): Promise<void> {
    this.#signal?.throwIfAborted();
    const now = performance.now();
    this.#freeAt = Math.max(this.#freeAt, now) + (bytes / this.#rate) * 1000;
    if (this.#freeAt - now > minWait) await sleep(this.#freeAt - now, undefined, { signal: this.#signal });
  }
}
