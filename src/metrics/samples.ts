import { inTime } from '../runtime/in-time.ts';

/** How long a reader of metrics waits for new values; milliseconds. */
const patience = 1000;

interface Sample {
  measure: () => Promise<void>;
  /** Milliseconds. */
  every: number;
  /** By `performance.now()`. */
  next: number;
  running: Promise<void> | undefined;
}

/**
 * Values that take a query or a call of the system, measured when metrics are read. No token is needed to read them, so each is
 * measured once at a time and not more often than its interval. A measurement that fails or hangs leaves the value before.
 */
export class Samples {
  readonly #samples: Sample[] = [];

  /** `measure` stores the value itself; called at most once in `every` milliseconds. */
  add(every: number, measure: () => Promise<void>): void {
    this.#samples.push({ measure, every, next: 0, running: undefined });
  }

  /** Resolves when the due measurements have ended, after a second at the latest. Never rejects. */
  async refresh(): Promise<void> {
    const now = performance.now();
    for (const sample of this.#samples) {
      if (sample.running || now < sample.next) continue;
      sample.next = now + sample.every;
      sample.running = sample
        .measure()
        .then(ignore, ignore)
        .finally(() => (sample.running = undefined));
    }
    const running = this.#samples.flatMap((each) => each.running ?? []);
    if (running.length === 0) return;
    await inTime(() => Promise.all(running), patience, { late: ignore });
  }
}

function ignore(): void {}
