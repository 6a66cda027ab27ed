import { callerLeft } from '../caller.ts';
import type { Waiter } from './waiting.ts';

interface Queue {
  running: number;
  waiting: (() => void)[];
}

/** Work at the same time under one key: `most` at most, the rest waits in a queue. */
export class Turns {
  readonly #most: number;
  readonly #mostWaiting: number;
  readonly #queues = new Map<string, Queue>();

  /** A queue has room for `mostWaiting`. */
  constructor(most: number, mostWaiting = Number.POSITIVE_INFINITY) {
    this.#most = most;
    this.#mostWaiting = mostWaiting;
  }

  /**
   * Takes a turn; the result ends it. Undefined if all are taken and the queue is full, or after `patience` milliseconds.
   * Rejects with `Aborted` when `waiter` leaves.
   */
  take(key: string, patience?: number, waiter?: Waiter): (() => void) | undefined | Promise<(() => void) | undefined> {
    let queue = this.#queues.get(key);
    if (!queue) this.#queues.set(key, (queue = { running: 0, waiting: [] }));
    if (queue.running < this.#most) {
      queue.running += 1;
      return this.#ending(key, queue);
    }
    if (queue.waiting.length >= this.#mostWaiting) return undefined;
    return this.#wait(key, queue, patience, waiter);
  }

  #wait(
    key: string,
    queue: Queue,
    patience: number | undefined,
    waiter: Waiter | undefined,
  ): Promise<(() => void) | undefined> {
    return new Promise((resolve, reject) => {
      const leave = () => {
        queue.waiting = queue.waiting.filter((each) => each !== go);
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
        resolve(this.#ending(key, queue));
      };
      const timer = patience === undefined ? undefined : setTimeout(giveUp, patience);
      const stopListening = waiter?.whenGone(() => {
        leave();
        reject(callerLeft());
      });
      queue.waiting.push(go);
    });
  }

  /** The turn goes to the one that has waited longest. */
  #ending(key: string, queue: Queue): () => void {
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      const next = queue.waiting.shift();
      if (next) {
        next();
        return;
      }
      queue.running -= 1;
      if (queue.running === 0) this.#queues.delete(key);
    };
  }
}
