import type { Logger } from 'pino';
import { inTime } from './in-time.ts';

/** Longest times for closing, in milliseconds. */
export interface ClosingTimes {
  part: number;
  all: number;
}
export const closingTimes: ClosingTimes = { part: 3000, all: 4500 };
/** Time that is kept for each of the next parts, if there is that much, in milliseconds. Most parts need far less. */
const kept = 250;

/**
 * Closes the parts of a server one after another, each within a time limit. A part that fails, or that takes longer, is
 * logged with its name, and the next part closes all the same.
 */
export class Closing {
  readonly #log: Logger;
  readonly #times: ClosingTimes;
  readonly #open = new Set<string>();
  readonly #failed: string[] = [];
  #end = Number.POSITIVE_INFINITY;

  constructor(log: Logger, times = closingTimes) {
    this.#log = log;
    this.#times = times;
  }

  /** The names of the parts that have not closed yet, and of those that could not be closed. */
  get unclosed(): string[] {
    return [...this.#failed, ...this.#open];
  }

  /** All parts that are open now must close within `grace` milliseconds and the time for all, each within its share of the rest. */
  limit(grace: number): void {
    this.#end = performance.now() + grace + this.#times.all;
  }

  /**
   * What closes one part, for a stack; never rejects. `close` gets the milliseconds that it may take. Call this in the order
   * of opening.
   */
  part(name: string, close: (milliseconds: number) => unknown): () => Promise<void> {
    this.#open.add(name);
    return async () => {
      const rest = this.#end - performance.now();
      const share = Math.max(rest / this.#open.size, rest - (this.#open.size - 1) * kept);
      const time = Math.max(0, Math.min(this.#times.part, share));
      try {
        await inTime(async () => close(time), time);
      } catch (error) {
        this.#failed.push(name);
        this.#log.error({ err: error, part: name }, `closing: ${name} did not close`);
      } finally {
        this.#open.delete(name);
      }
    };
  }
}
