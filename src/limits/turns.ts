import { callerLeft } from '../caller.ts';
import type { Waiter } from './waiting.ts';

interface Line {
  running: number;
  waiting: (() => void)[];
}

/** Work at the same time under one key: `most` at most, the rest waits in a line. */
export class Turns {
  readonly #most: number;
  readonly #mostWaiting: number;
  readonly #lines = new Map<string, Line>();

  /** A line has room for `mostWaiting`. */
  constructor(most: number, mostWaiting = Number.POSITIVE_INFINITY) {
    this.#most = most;
    this.#mostWaiting = mostWaiting;
  }

  /**
   * Takes a turn; the result ends it. Undefined if all are taken and the line is full, or after `patience` milliseconds.
   * Rejects with `Aborted` when `waiter` leaves.
   */
  take(key: string, patience?: number, waiter?: Waiter): (() => void) | undefined | Promise<(() => void) | undefined> {
    let line = this.#lines.get(key);
    if (!line) this.#lines.set(key, (line = { running: 0, waiting: [] }));
    if (line.running < this.#most) {
      line.running += 1;
      return this.#ending(key, line);
    }
    if (line.waiting.length >= this.#mostWaiting) return undefined;
    return this.#wait(key, line, patience, waiter);
  }

  #wait(
    key: string,
    line: Line,
    patience: number | undefined,
    waiter: Waiter | undefined,
  ): Promise<(() => void) | undefined> {
    return new Promise((resolve, reject) => {
      const leave = () => {
        line.waiting = line.waiting.filter((each) => each !== go);
        clearTimeout(timer);
        stopListening?.();
      };
      const giveUp = () => {
        leave();
        resolve(undefined);
      };
      const go = () => {
        clearTimeout(timer);
        stopListening?.();
        resolve(this.#ending(key, line));
      };
      const timer = patience === undefined ? undefined : setTimeout(giveUp, patience);
      const stopListening = waiter?.whenGone(() => {
        leave();
        reject(callerLeft());
      });
      line.waiting.push(go);
    });
  }

  /** The turn goes to the one that has waited longest. */
  #ending(key: string, line: Line): () => void {
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      const next = line.waiting.shift();
      if (next) {
        next();
        return;
      }
      line.running -= 1;
      if (line.running === 0) this.#lines.delete(key);
    };
  }
}
