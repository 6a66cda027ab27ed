import { setTimeout as sleep } from 'node:timers/promises';
import { DomainError, isDomainError } from '../runtime/errors.ts';
import type { Upstream } from '../upstream/upstream.ts';
import type { UpstreamError } from '../upstream/upstream-error.ts';
import { untilOpen, type DailyTimes } from './daily-times.ts';

/** The longest pause of an upstream to wait for; milliseconds. */
const maxPause = 120_000;
/** The pause before an interrupted body is requested again; milliseconds. */
const afterBreak = 1000;
/** The wait for the window checks the clock this often, because the clock or daylight saving time may change; milliseconds. */
const clockCheck = 60_000;

export interface GateOptions {
  upstreams: readonly Upstream[];
  signal: AbortSignal;
  now: () => number;
  window?: DailyTimes | undefined;
  /** Share of an upstream's announced rate limit that may be used, by all of its clients together; from 0 to 1. */
  share: number;
  /** An upstream that is unavailable for this long is not tried again; milliseconds. */
  patience: number;
  /** Everything is stored or in a bundle: no upstream is asked, so that none has to be waited for. */
  isOffline?: boolean;
  /** Called with the reason when the prefetch waits, and with undefined when it continues. */
  waiting: (reason: string | undefined) => void;
}

/** Something is not fetched; the message is the reason. */
export class Declined extends Error {}

/** Decides when a request may be sent to an upstream. */
export class Gate {
  readonly #options: GateOptions;
  readonly #unavailable = new Map<Upstream, { since: number }>();
  readonly #givenUp = new Map<Upstream, string>();

  constructor(options: GateOptions) {
    this.#options = options;
  }

  /**
   * Resolves when a request may be sent to `upstream`. Throws `Declined` if none may be sent any more, and `Aborted` if
   * the prefetch is cancelled. Registries do not count blobs, so with `isCounted` false the rate limit does not apply.
   */
  async pass(upstream: Upstream, isCounted = true): Promise<void> {
    const { waiting, isOffline } = this.#options;
    if (isOffline) return;
    for (;;) {
      await this.open();
      const reason = this.#givenUp.get(upstream) ?? (isCounted ? this.#limitReached(upstream) : undefined);
      if (reason !== undefined) throw new Declined(reason);
      const refusal = upstream.unavailable();
      if (!refusal) return;
      const pause = (refusal.retryAfter ?? 1) * 1000;
      const { since } = this.#unavailable.get(upstream) ?? { since: performance.now() };
      this.#unavailable.set(upstream, { since });
      const isOver = performance.now() - since > this.#options.patience;
      if (refusal.offline || pause > maxPause || isOver) {
        this.#givenUp.set(upstream, refusal.message);
      } else {
        waiting(`${upstream.name} is unavailable`);
        await this.#rest(pause);
      }
    }
  }

  /** Resolves when the window is open. Throws `Aborted` if the prefetch is cancelled. */
  async open(): Promise<void> {
    const { signal, window, now, waiting } = this.#options;
    for (let closed = window ? untilOpen(window, now()) : 0; closed > 0; closed = untilOpen(window!, now())) {
      waiting('outside the time window');
      await this.#rest(Math.min(closed, clockCheck));
    }
    if (signal.aborted) throw cancelled();
  }

  /**
   * Milliseconds to wait before work that failed with `error` is tried again; undefined if it must not be tried again. 0
   * if the whole upstream is paused: `pass` waits for that.
   */
  pauseAfter(error: UpstreamError): number | undefined {
    const { cause, retryAfter } = error;
    const upstream = this.#options.upstreams.find(({ id }) => id === error.id);
    if (upstream?.unavailable()) return 0;
    // The mirror could not resume an interrupted body. A new request may get all of it.
    if (isDomainError(cause, 'Aborted')) return afterBreak;
    if (retryAfter === undefined || retryAfter * 1000 > maxPause) return undefined;
    return retryAfter * 1000;
  }

  /** Call this after each success. Upstreams that are available again get their full `patience` back. */
  succeeded(): void {
    this.#options.waiting(undefined);
    for (const upstream of this.#unavailable.keys()) {
      if (!upstream.unavailable()) this.#unavailable.delete(upstream);
    }
  }

  #limitReached({ name, counts }: Upstream): string | undefined {
    const { limit, remaining = 0 } = counts.rateLimit(this.#options.now()) ?? {};
    if (!limit) return undefined;
    const { share } = this.#options;
    if (limit - remaining < limit * share) return undefined;
    return `${name} has ${remaining} of ${limit} requests left in its rate limit, of which a prefetch uses at most ${Math.round(share * 100)}%`;
  }

  async #rest(milliseconds: number): Promise<void> {
    try {
      await sleep(milliseconds, undefined, { signal: this.#options.signal });
    } catch {
      throw cancelled();
    }
  }
}

function cancelled(): DomainError {
  return new DomainError('Aborted', 'The prefetch was cancelled.');
}
