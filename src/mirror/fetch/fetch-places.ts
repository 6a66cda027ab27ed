import { endingWait, type Caller } from '../../runtime/caller.ts';
import { DomainError } from '../../runtime/errors.ts';
import { Semaphore } from '../../runtime/semaphore.ts';

/** Milliseconds that a fetch waits for a free slot. */
const waitLimit = 60_000;
/** After this part of the limit, the wait is reported. */
const reportShare = 1 / 12;

interface SlotsOptions {
  /** Fetches that one account may have in progress. */
  max: number;
  /** Milliseconds that a fetch waits for a slot. */
  wait?: number;
  /** Called for each fetch that has waited for long. */
  report?: (upstream: string, account: string) => void;
}

/**
 * Limits the fetches that one account has in progress: above `max` they wait in a queue. An upstream may use at most as many
 * slots as it leaves free, so that one whose answers hang never keeps the others from theirs.
 */
export class FetchPlaces {
  readonly #options: Required<SlotsOptions>;
  readonly #semaphore: Semaphore;

  constructor({ max, wait = waitLimit, report = () => undefined }: SlotsOptions) {
    this.#options = { max, wait, report };
    this.#semaphore = new Semaphore({ max, maxOfGroup: (running) => max - running + 1 });
  }

  /**
   * Takes a slot of the caller's account for `upstream`; the returned function releases it. Returns at once if a slot is
   * free, else a promise. Rejects with `TooManyRequests` after a minute, and with `Aborted` when the caller leaves. Work
   * without an account needs no slot.
   */
  take(caller: Caller | undefined, upstream: string): (() => void) | Promise<() => void> {
    const account = caller?.account;
    if (!caller || account === undefined) return () => undefined;
    const taken = this.#semaphore.take(account, {
      group: upstream,
      patience: this.#options.wait,
      whenLeft: endingWait(caller),
    });
    return typeof taken === 'function' ? taken : this.#wait(taken, upstream, account);
  }

  /** How many fetches from `upstream` wait. */
  waiting(upstream: string): number {
    return this.#semaphore.waiting(upstream);
  }

  async #wait(
    taken: Promise<(() => void) | undefined> | undefined,
    upstream: string,
    account: string,
  ): Promise<() => void> {
    const { max, wait, report } = this.#options;
    const timer = setTimeout(() => report(upstream, account), wait * reportShare);
    const release = await Promise.resolve(taken).finally(() => clearTimeout(timer));
    if (release) return release;
    throw new DomainError(
      'TooManyRequests',
      `This account may have ${max} fetches from upstreams in progress, and all that this one may use are. Try again in a moment.`,
      { retryAfter: 5 },
    );
  }
}
