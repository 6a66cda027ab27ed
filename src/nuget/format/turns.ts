/** Runs up to `width` pieces of work at the same time; others wait, in order. */
export class Turns {
  readonly #width: number;
  readonly #waiting: (() => void)[] = [];
  #running = 0;

  constructor(width: number) {
    this.#width = width;
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    if (this.#running >= this.#width) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    else this.#running += 1;
    try {
      return await work();
    } finally {
      // The turn goes to the next one that waits.
      const next = this.#waiting.shift();
      if (next) next();
      else this.#running -= 1;
    }
  }
}
