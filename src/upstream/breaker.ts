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

  /** Milliseconds until the upstream is asked again; 0 when it may be asked now. */
  get wait(): number {
    if (this.#failures === 0) return 0;
    const rest = this.#openUntil - this.#now();
    if (rest > 0) return rest;
    return this.#probing ? 1000 : 0;
  }

  /** Why the upstream is left alone. */
  get reason(): string {
    return this.#reason;
  }

  /** Somebody is about to ask. After a pause that one is the probe, and the others wait for what it finds. */
  began(): void {
    this.#probing = this.#failures > 0;
  }

  /** An answer to a request that was under way before the pause began does not end it. */
  succeeded(): void {
    if (this.#failures > 0 && !this.#probing) return;
    this.#failures = 0;
    this.#probing = false;
  }

  /** A request that neither succeeded nor failed (its reader left): lets another one probe. */
  abandoned(): void {
    this.#probing = false;
  }

  /**
   * Opens for 1 s, doubling to a minute, or for as long as the upstream itself asked (`retryAfter`, milliseconds).
   * Requests that were under way together and fail together count once.
   */
  failed(reason: string, retryAfter = 0): void {
    const now = this.#now();
    const together = this.#failures > 0 && now < this.#openUntil;
    const pause = together ? 0 : Math.min(60_000, 1000 * 2 ** Math.min(this.#failures, 6));
    if (!together) this.#failures += 1;
    this.#probing = false;
    this.#reason = reason;
    this.#openUntil = Math.max(this.#openUntil, now + Math.max(pause, retryAfter));
  }
}
