import type { Readable } from 'node:stream';
import { DomainError } from './errors.ts';

// What whoever takes in a body owes to memory and to time.

/** Silence is counted in so many parts: a stall of this process, which hears nothing meanwhile, counts as one. */
const spans = 4;

/**
 * Frees a chunk's memory at once, for whoever is the last to hold it. Left to the garbage collector, a fast body makes it
 * mark the whole heap every few mebibytes, which costs more than the hashing.
 */
export function release(chunk: Buffer): void {
  if (chunk.buffer instanceof ArrayBuffer && chunk.length === chunk.buffer.byteLength) chunk.buffer.transfer(0);
}

/**
 * Calls `then` once, with `Aborted`, when `source` has sent nothing for `idle` milliseconds, or up to a quarter longer; one
 * that its reader holds back is not silent. Returns how to stop listening.
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
    then(new DomainError('Aborted', 'The sender fell silent.'));
  }, idle / spans);
  const stop = () => {
    clearInterval(timer);
    source.off('data', reset);
  };
  source.on('data', reset);
  return stop;
}
