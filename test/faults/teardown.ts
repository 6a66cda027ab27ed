/** Closes what was opened for a fault, in reverse order. */
export class Teardown implements AsyncDisposable {
  readonly #steps: (() => unknown)[] = [];

  teardown(step: () => unknown): void {
    this.#steps.push(step);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const step of this.#steps.toReversed()) await step();
  }
}
