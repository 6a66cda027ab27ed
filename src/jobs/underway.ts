import { setTimeout as sleep } from 'node:timers/promises';
import type { Counts, RunState, Runs } from './runs.ts';

export interface UnderwayParts {
  runs: Runs;
  name: string;
  id: number;
  /** Milliseconds without a beat after which others take over. */
  lease: number;
}

/** A run under way in this process: shows that it is alive, and stops when it no longer counts. */
export class Underway {
  readonly #parts: UnderwayParts;
  readonly #controller = new AbortController();
  readonly #timer: NodeJS.Timeout;
  #heardAt = performance.now();
  #isBeating = false;

  constructor(parts: UnderwayParts) {
    this.#parts = parts;
    this.#timer = setInterval(() => {
      if (this.#isBeating) return;
      this.#isBeating = true;
      void this.#beat().finally(() => (this.#isBeating = false));
    }, parts.lease / 3).unref();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** The instance closes. */
  interrupt(): void {
    this.#controller.abort(new Error('the instance was closed'));
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Writes down what came of it; tries again for the length of a lease. */
  async end(outcome: RunState, counts: Counts, error: string | null): Promise<void> {
    const { runs, name, id, lease } = this.#parts;
    for (let attempt = 1; ; attempt += 1) {
      try {
        await runs.end(name, id, outcome, counts, error);
        return;
      } catch (failure) {
        if (attempt === 10) throw failure;
        await sleep(lease / 10);
      }
    }
  }

  /** A database out of reach for the length of a lease is as good as another instance that has taken over. */
  async #beat(): Promise<void> {
    const { runs, name, id, lease } = this.#parts;
    try {
      if (await runs.beat(name, id)) this.#heardAt = performance.now();
      else this.#controller.abort(new Error('another instance has taken this run over'));
    } catch {
      if (performance.now() - this.#heardAt >= lease) {
        this.#controller.abort(new Error('the database was out of reach for too long to go on alone'));
      }
    }
  }
}
