import { setTimeout as sleep } from 'node:timers/promises';
import type { Counts, RunState, Runs } from './runs.ts';

interface ActiveRunParts {
  runs: Runs;
  name: string;
  id: number;
  /** Milliseconds without a heartbeat after which another instance takes over. */
  lease: number;
}

/** A run in this process. Writes heartbeats, and aborts its signal when another instance has taken over the run. */
export class ActiveRun {
  readonly #parts: ActiveRunParts;
  readonly #controller = new AbortController();
  readonly #timer: NodeJS.Timeout;
  #lastBeatAt = performance.now();
  #isBeating = false;

  constructor(parts: ActiveRunParts) {
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

  /** Aborts the run, because the instance closes. */
  interrupt(): void {
    this.#controller.abort(new Error('the instance was closed'));
  }

  /** Stops the heartbeats. */
  stop(): void {
    clearInterval(this.#timer);
  }

  /** Records the outcome. After a failure, repeats it up to ten times over about a lease. */
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

  /** If the database is unreachable for a lease, another instance may have taken over, so the run must end. */
  async #beat(): Promise<void> {
    const { runs, name, id, lease } = this.#parts;
    try {
      if (await runs.beat(name, id)) this.#lastBeatAt = performance.now();
      else this.#controller.abort(new Error('another instance has taken over this run'));
    } catch {
      if (performance.now() - this.#lastBeatAt >= lease) {
        this.#controller.abort(new Error('the database was unreachable for too long'));
      }
    }
  }
}
