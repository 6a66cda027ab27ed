import { callerLeft, type Caller } from '../caller.ts';
import { DomainError } from '../errors.ts';

/** Milliseconds that a fetch waits for a free slot. */
const waitLimit = 60_000;

interface Account {
  running: number;
  waiting: (() => void)[];
}

/** Limits the fetches that one account has in progress: above `max` they wait in a queue. */
export class Slots {
  readonly #max: number;
  readonly #waitLimit: number;
  readonly #accounts = new Map<string, Account>();

  constructor(max: number, wait = waitLimit) {
    this.#max = max;
    this.#waitLimit = wait;
  }

  /**
   * Takes a slot of the caller's account; the returned function releases it. Returns at once if a slot is free, else a
   * promise. Rejects with `TooManyRequests` after a minute, and with `Aborted` when the caller leaves. Work without an
   * account needs no slot.
   */
  take(caller: Caller | undefined): (() => void) | Promise<() => void> {
    const name = caller?.account;
    if (!caller || name === undefined) return () => undefined;
    let account = this.#accounts.get(name);
    if (!account) this.#accounts.set(name, (account = { running: 0, waiting: [] }));
    if (account.running < this.#max) {
      account.running += 1;
      return this.#release(name, account);
    }
    return this.#wait(name, account, caller);
  }

  #wait(name: string, account: Account, caller: Caller): Promise<() => void> {
    return new Promise((resolve, reject) => {
      const leave = (error: DomainError) => {
        account.waiting = account.waiting.filter((each) => each !== go);
        end();
        reject(error);
      };
      const timer = setTimeout(() => leave(tooMany(this.#max)), this.#waitLimit);
      const stopListening = caller.whenGone(() => leave(callerLeft()));
      const end = () => {
        clearTimeout(timer);
        stopListening();
      };
      const go = () => {
        end();
        resolve(this.#release(name, account));
      };
      account.waiting.push(go);
    });
  }

  /** A released slot goes to the fetch that has waited longest. */
  #release(name: string, account: Account): () => void {
    let held = true;
    return () => {
      if (!held) return;
      held = false;
      const next = account.waiting.shift();
      if (next) {
        next();
        return;
      }
      account.running -= 1;
      if (account.running === 0) this.#accounts.delete(name);
    };
  }
}

function tooMany(max: number): DomainError {
  return new DomainError(
    'TooManyRequests',
    `This account has ${max} fetches from upstreams in progress already. Try again in a moment.`,
    { retryAfter: 5 },
  );
}
