import type { Logger } from 'pino';

/** Milliseconds in which each reason is logged once at most. */
const period = 10_000;
/** Reasons that are logged in one period at most. */
const reasons = 20;

/** Logs an upstream's failures at a limited rate, so that clients that repeat a failing request cannot fill the log. */
export class FailureLog {
  readonly #log: Logger;
  readonly #upstream: string;
  readonly #now: () => number;
  readonly #logged = new Set<string>();
  #since = -Infinity;
  #suppressed = 0;

  constructor(log: Logger, upstream: string, now: () => number) {
    this.#log = log;
    this.#upstream = upstream;
    this.#now = now;
  }

  /** Writes a line, or, above the limit, counts it for the field `untold` of the next line. */
  warn(message: string, subject: string, reason: string): void {
    const now = this.#now();
    // A clock that was set back starts a new period, too.
    if (now < this.#since || now >= this.#since + period) {
      this.#logged.clear();
      this.#since = now;
    }
    const key = `${message}: ${reason}`;
    if (this.#logged.has(key) || this.#logged.size >= reasons) {
      this.#suppressed += 1;
      return;
    }
    this.#logged.add(key);
    const suppressed = this.#suppressed > 0 && { untold: this.#suppressed };
    this.#log.warn({ upstream: this.#upstream, subject: subject.slice(0, 200), reason, ...suppressed }, message);
    this.#suppressed = 0;
  }
}
