import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Slows down background work in favor of requests: after each piece it waits for twice as long as the piece took, at
 * most a second. When `signal` is aborted, the next step rejects.
 */
export class Pace {
  readonly #signal: AbortSignal | undefined;
  #since = performance.now();

  constructor(signal?: AbortSignal) {
    this.#signal = signal;
  }

  /** Await this after each piece of work. */
  async step(): Promise<void> {
    this.#signal?.throwIfAborted();
    await sleep(Math.min(1000, (performance.now() - this.#since) * 2), undefined, { signal: this.#signal });
    this.#since = performance.now();
  }
}
