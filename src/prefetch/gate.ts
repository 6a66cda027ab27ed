import { setTimeout as sleep } from 'node:timers/promises';
import { DomainError, isDomainError } from '../errors.ts';
import type { Upstream } from '../upstream/upstream.ts';
import type { UpstreamError } from '../upstream/upstream-error.ts';
import { untilOpen, type Window } from './window.ts';

/** The longest pause that is waited for, milliseconds. */
const longestPause = 120_000;
/** The wait before a body that broke off is requested again, milliseconds. */
const afterBreak = 1000;
/** The clock may be set, and summer may begin, while the window is waited for. */
const look = 60_000;

export interface GateOptions {
  upstreams: readonly Upstream[];
  signal: AbortSignal;
  now: () => number;
  window?: Window | undefined;
  /** How much of an upstream's announced rate limit may be used up, by whomever; from 0 to 1. */
  share: number;
  /** An upstream that gives nothing for so long is given up, milliseconds. */
  patience: number;
  /** Hears why nothing moves. */
  waiting: (why: string | undefined) => void;
}

/** Something is not fetched, and why. */
export class Declined extends Error {}

/** Whether an upstream may be asked now. */
export class Gate {
  readonly #options: GateOptions;
  readonly #trouble = new Map<Upstream, { since: number }>();
  readonly #givenUp = new Map<Upstream, string>();

  constructor(options: GateOptions) {
    this.#options = options;
  }

  /**
   * Resolves when `upstream` may be asked. Throws `Declined` when it will not be any more, and `Aborted` when the whole
   * is called off. Registries do not count blobs: with their manifest here, they are fetched beyond the limit too.
   */
  async pass(upstream: Upstream, isCounted = true): Promise<void> {
    const { waiting } = this.#options;
    for (;;) {
      await this.open();
      const reason = this.#givenUp.get(upstream) ?? (isCounted ? this.#limitReached(upstream) : undefined);
      if (reason !== undefined) throw new Declined(reason);
      const refusal = upstream.unavailable();
      if (!refusal) return;
      const pause = (refusal.retryAfter ?? 1) * 1000;
      const { since } = this.#trouble.get(upstream) ?? { since: performance.now() };
      this.#trouble.set(upstream, { since });
      const isOver = performance.now() - since > this.#options.patience;
      if (refusal.offline || pause > longestPause || isOver) {
        this.#givenUp.set(upstream, refusal.message);
      } else {
        waiting(`${upstream.name} is in trouble`);
        await this.#rest(pause);
      }
    }
  }

  /** Resolves when the window is open, and throws `Aborted` when the whole is called off. */
  async open(): Promise<void> {
    const { signal, window, now, waiting } = this.#options;
    for (let closed = window ? untilOpen(window, now()) : 0; closed > 0; closed = untilOpen(window!, now())) {
      waiting('the window is closed');
      await this.#rest(Math.min(closed, look));
    }
    if (signal.aborted) throw calledOff();
  }

  /**
   * Milliseconds to wait before the work that failed with `error` is tried again; undefined when another try is of no
   * use. 0 when the whole upstream is paused: `pass` waits for that.
   */
  pauseAfter(error: UpstreamError): number | undefined {
    const { cause, retryAfter } = error;
    const upstream = this.#options.upstreams.find(({ id }) => id === error.id);
    if (upstream?.unavailable()) return 0;
    // The flight gave up on a body that broke off; a new request may get all of it.
    if (isDomainError(cause, 'Aborted')) return afterBreak;
    if (retryAfter === undefined || retryAfter * 1000 > longestPause) return undefined;
    return retryAfter * 1000;
  }

  /** Something came from somewhere: upstreams that answer are out of trouble. */
  succeeded(): void {
    this.#options.waiting(undefined);
    for (const upstream of this.#trouble.keys()) if (!upstream.unavailable()) this.#trouble.delete(upstream);
  }

  #limitReached({ name, rateLimit }: Upstream): string | undefined {
    const [limit, remaining] = [rateLimit.limit, rateLimit.remaining].map((text) => /^\s*(\d+)/.exec(text ?? '')?.[1]);
    if (!limit || remaining === undefined || Number(limit) === 0) return undefined;
    const { share } = this.#options;
    if (Number(limit) - Number(remaining) < Number(limit) * share) return undefined;
    return `${name} has ${remaining} of ${limit} left of its rate limit, and ${Math.round(share * 100)}% may be used`;
  }

  async #rest(milliseconds: number): Promise<void> {
    try {
      await sleep(milliseconds, undefined, { signal: this.#options.signal });
    } catch {
      throw calledOff();
    }
  }
}

function calledOff(): DomainError {
  return new DomainError('Aborted', 'This was called off.');
}
