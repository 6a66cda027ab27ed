import { setTimeout as sleep } from 'node:timers/promises';

/** Runs a limited number of pieces of work at a time, newest first, so that follow-up work is done before other work. */
export class Queue {
  readonly #width: number;
  readonly #waiting: (() => Promise<void>)[] = [];
  readonly #ending = new AbortController();
  #running = 0;
  /** Pieces that `addLater` has not added yet. */
  #later = 0;
  #failure: { error: unknown } | undefined;
  #over: (() => void) | undefined;

  constructor(width: number) {
    this.#width = width;
  }

  add(piece: () => Promise<void>): void {
    this.#waiting.push(piece);
    this.#start();
  }

  /** As `add`, but after `delay` milliseconds, or at once when `signal` is aborted. Other pieces run meanwhile. */
  addLater(piece: () => Promise<void>, delay: number, signal: AbortSignal): void {
    this.#later += 1;
    const wake = async () => {
      await sleep(delay, undefined, { signal: AbortSignal.any([signal, this.#ending.signal]) }).catch(() => undefined);
      this.#later -= 1;
      this.add(piece);
    };
    void wake();
  }

  /** Resolves when everything is done. After a piece rejects, waits for the running pieces only, then rejects. */
  async done(): Promise<void> {
    if (this.#running + this.#later > 0) await new Promise<void>((resolve) => (this.#over = resolve));
    if (this.#failure) throw this.#failure.error;
  }

  #start(): void {
    while (this.#running < this.#width && this.#waiting.length > 0 && !this.#failure) {
      const piece = this.#waiting.pop()!;
      this.#running += 1;
      piece()
        .catch((error: unknown) => {
          this.#failure ??= { error };
          this.#ending.abort();
        })
        .finally(() => {
          this.#running -= 1;
          this.#start();
          if (this.#running === 0 && (this.#later === 0 || this.#failure)) this.#over?.();
        })
        .catch(() => undefined);
    }
  }
}
