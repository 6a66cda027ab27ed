/** After a failure an upstream is left alone for a while, longer each time, so that the next requests answer at once. */
export class Breaker {
  readonly #now: () => number;
  #failures = 0;
  #openUntil = 0;
  #probing = false;
  #reason = '';

  constructor(now: () => number) {
    this.#now = now;
  }

  /** Milliseconds until the upstream is asked again; 0 when it may be asked. Past the time, one request is the probe. */
  wait(): number {
    if (this.#failures === 0) return 0;
    const rest = this.#openUntil - this.#now();
    if (rest > 0) return rest;
    if (this.#probing) return 1;
    this.#probing = true;
    return 0;
  }

  /** Why the upstream is left alone. */
  get reason(): string {
    return this.#reason;
  }

  succeeded(): void {
    this.#failures = 0;
    this.#probing = false;
  }

  /** A request that neither succeeded nor failed (its reader left): lets another one probe. */
  abandoned(): void {
    this.#probing = false;
  }

  /** Opens for 1 s, doubling to a minute, or for as long as the upstream itself asked (`retryAfter`, milliseconds). */
  failed(reason: string, retryAfter = 0): void {
    const pause = Math.min(60_000, 1000 * 2 ** Math.min(this.#failures, 6));
    this.#failures += 1;
    this.#probing = false;
    this.#reason = reason;
    this.#openUntil = Math.max(this.#openUntil, this.#now() + Math.max(pause, retryAfter));
  }
}
