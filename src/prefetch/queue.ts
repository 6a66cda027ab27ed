/** Work that is done a few pieces at a time, the newest first: what is begun is finished before more is begun. */
export class Queue {
  readonly #width: number;
  readonly #waiting: (() => Promise<void>)[] = [];
  #running = 0;
  #failure: { error: unknown } | undefined;
  #over: (() => void) | undefined;

  constructor(width: number) {
    this.#width = width;
  }

  add(piece: () => Promise<void>): void {
    this.#waiting.push(piece);
    this.#start();
  }

  /** Resolves when everything is done; a piece that rejects ends it, when those under way have ended. */
  async done(): Promise<void> {
    if (this.#running > 0) await new Promise<void>((resolve) => (this.#over = resolve));
    if (this.#failure) throw this.#failure.error;
  }

  #start(): void {
    while (this.#running < this.#width && this.#waiting.length > 0 && !this.#failure) {
      const piece = this.#waiting.pop()!;
      this.#running += 1;
      piece()
        .catch((error: unknown) => {
          this.#failure ??= { error };
        })
        .finally(() => {
          this.#running -= 1;
          this.#start();
          if (this.#running === 0) this.#over?.();
        })
        .catch(() => undefined);
    }
  }
}
