import { callerLeft, type Caller } from '../caller.ts';

/** The caller that a limit holds back, for its time and its departure. */
export type Waiter = Pick<Caller, 'gone' | 'whenGone'>;

/** Resolves after `milliseconds`; rejects with `Aborted` as soon as `waiter` leaves. */
export function pause(milliseconds: number, waiter: Waiter): Promise<void> {
  return new Promise((resolve, reject) => {
    if (waiter.gone) {
      reject(callerLeft());
      return;
    }
    const stopListening = waiter.whenGone(() => {
      clearTimeout(timer);
      reject(callerLeft());
    });
    const timer = setTimeout(() => {
      stopListening();
      resolve();
    }, milliseconds);
  });
}

/** Counts what is in progress under each key, at most `most` each. */
export class Occupancy {
  readonly #most: number;
  readonly #counts = new Map<string, number>();

  constructor(most: number) {
    this.#most = most;
  }

  /** Whether there was room for one more under `key`. If so, call `leave` once when it ends. */
  enter(key: string): boolean {
    const count = this.#counts.get(key) ?? 0;
    if (count >= this.#most) return false;
    this.#counts.set(key, count + 1);
    return true;
  }

  leave(key: string): void {
    const count = this.#counts.get(key) ?? 0;
    if (count > 1) this.#counts.set(key, count - 1);
    else this.#counts.delete(key);
  }
}
