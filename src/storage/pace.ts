import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Lets work in the background come after requests: between its pieces it rests for twice as long as the last one took.
 * `signal` ends the work: the next step rejects.
 */
export class Pace {
  readonly #signal: AbortSignal | undefined;
  #since = performance.now();

  constructor(signal?: AbortSignal) {
    this.#signal = signal;
  }

  /** To be awaited after each piece of work. */
  async step(): Promise<void> {
    this.#signal?.throwIfAborted();
    await sleep(Math.min(1000, (performance.now() - this.#since) * 2), undefined, { signal: this.#signal });
    this.#since = performance.now();
  }
}
