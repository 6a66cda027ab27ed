import { Times } from './times.ts';

/** Milliseconds between two looks. */
const every = 100;

/** How late timers of this process run: long work that does not yield delays everything else by as much. */
export class EventLoopDelay implements Disposable {
  readonly times = new Times([0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10]);
  readonly #timer: NodeJS.Timeout;

  constructor() {
    let due = performance.now() + every;
    this.#timer = setInterval(() => {
      const now = performance.now();
      this.times.observe(Math.max(0, now - due) / 1000);
      due = now + every;
    }, every).unref();
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}
