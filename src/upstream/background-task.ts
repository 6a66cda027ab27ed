import { AsyncLocalStorage } from 'node:async_hooks';
import { Duplex, pipeline, type Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';

const current = new AsyncLocalStorage<BackgroundTask>();
/** A body in waiting moves on so many times a second, so that it is not taken for one that stalls. */
const steps = 20;
const largestStep = 65_536;
/** Shorter waits are not worth a timer; they add up to longer ones. Milliseconds. */
const shortest = 5;

/**
 * Work that no client waits for: it takes no more than its share of the line, it can be called off, and what it touches
 * does not count as used. It holds for whatever is begun inside `run`; a fetch that a client began is not slowed.
 */
export class BackgroundTask {
  readonly signal: AbortSignal;
  readonly #rate: number | undefined;
  #received = 0;
  /** When the next byte may pass, by `performance.now`. */
  #next = 0;

  /** `rate` in bytes a second, over all upstreams together. */
  constructor(signal: AbortSignal, rate?: number) {
    this.signal = signal;
    this.#rate = rate;
  }

  /** The task that the present work belongs to. */
  static get current(): BackgroundTask | undefined {
    return current.getStore();
  }

  /** Runs `work` outside of any task, for a result that clients wait for too: not slowed, and not called off. */
  static outside<T>(work: () => Promise<T>): Promise<T> {
    return current.exit(work);
  }

  /** Bytes of bodies that upstreams have sent. */
  get received(): number {
    return this.#received;
  }

  run<T>(work: () => Promise<T>): Promise<T> {
    return current.run(this, work);
  }

  /** The same body, no faster than the task may take it. */
  pace(body: Readable): Readable {
    const step =
      this.#rate === undefined ? largestStep : Math.max(1, Math.min(largestStep, Math.floor(this.#rate / steps)));
    const take = (bytes: number) => this.#take(bytes);
    const paced = Duplex.from(async function* (source: AsyncIterable<Buffer>) {
      for await (const chunk of source) {
        for (let at = 0; at < chunk.length; at += step) {
          const piece = chunk.subarray(at, at + step);
          await take(piece.length);
          yield piece;
        }
      }
    });
    pipeline(body, paced, () => undefined);
    // Whoever reads it hears of its error; with nobody reading it must not end the process.
    paced.on('error', () => undefined);
    return paced;
  }

  async #take(bytes: number): Promise<void> {
    this.#received += bytes;
    if (this.#rate === undefined) return;
    const now = performance.now();
    const start = Math.max(now, this.#next);
    this.#next = start + (bytes / this.#rate) * 1000;
    if (start - now >= shortest) await sleep(start - now, undefined, { signal: this.signal });
  }
}
