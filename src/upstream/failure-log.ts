import type { Logger } from 'pino';

/** In so many milliseconds each reason is logged once, and so many reasons at most. */
const period = 10_000;
const reasons = 20;

/** Logs an upstream's failures at a bounded rate: clients that repeat a failing request must not fill the log. */
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

  /** Writes a line, or counts it as `untold` for a later line when the limit is reached. */
  warn(message: string, subject: string, reason: string): void {
    const now = this.#now();
    // A clock that was set back starts a new period too.
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
