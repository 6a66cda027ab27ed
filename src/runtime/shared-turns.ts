import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Work that needs no token, so that it is bounded: it runs once at a time, and begins at most once in `pause` milliseconds. All that
 * ask before it begins share it. One that runs may be too old for them: what they count must not go back.
 */
export class SharedTurns<T> {
  readonly #work: () => Promise<T>;
  readonly #pause: number;
  #current: Promise<unknown> | undefined;
  #next: Promise<T> | undefined;
  #beganAt = Number.NEGATIVE_INFINITY;

  constructor(work: () => Promise<T>, pause: number) {
    this.#work = work;
    this.#pause = pause;
  }

  take(): Promise<T> {
    this.#next ??= this.#afterPause().then(() => {
      this.#next = undefined;
      this.#beganAt = performance.now();
      const running = this.#work();
      this.#current = running.catch(() => undefined);
      return running;
    });
    return this.#next;
  }

  async #afterPause(): Promise<void> {
    await this.#current;
    const pause = this.#beganAt + this.#pause - performance.now();
    if (pause > 0) await sleep(pause);
  }
}
