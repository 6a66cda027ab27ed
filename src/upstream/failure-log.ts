import type { Logger } from 'pino';

/** Each reason is told once in so many milliseconds, and so many reasons at most. */
const period = 10_000;
const reasons = 20;

/** Tells of an upstream's failures: clients that ask again and again for what fails must not fill the log. */
export class FailureLog {
  readonly #log: Logger;
  readonly #upstream: string;
  readonly #now: () => number;
  readonly #told = new Set<string>();
  #since = -Infinity;
  #untold = 0;

  constructor(log: Logger, upstream: string, now: () => number) {
    this.#log = log;
    this.#upstream = upstream;
    this.#now = now;
  }

  /** Writes a line, or counts it where the same was told a moment ago; the number comes with a later line. */
  warn(message: string, subject: string, reason: string): void {
    const now = this.#now();
    // A clock that was set back begins anew as well.
    if (now < this.#since || now >= this.#since + period) {
      this.#told.clear();
      this.#since = now;
    }
    const key = `${message}: ${reason}`;
    if (this.#told.has(key) || this.#told.size >= reasons) {
      this.#untold += 1;
      return;
    }
    this.#told.add(key);
    const untold = this.#untold > 0 && { untold: this.#untold };
    this.#log.warn({ upstream: this.#upstream, subject: subject.slice(0, 200), reason, ...untold }, message);
    this.#untold = 0;
  }
}
