import type { Logger } from 'pino';

/** Short work that every instance repeats, for example writing counts from memory to the database. */
export interface RepeatedWork {
  /** In milliseconds. */
  interval: number;
  run(): Promise<void>;
  /** The log message for a run that fails; the next run tries again. */
  failure: string;
}

/** Repeats chores from now until `dispose`. A chore that has not ended is not begun again. */
export class Chores implements Disposable {
  readonly #timers: NodeJS.Timeout[];

  constructor(chores: readonly RepeatedWork[], log: Logger) {
    const running = new Set<RepeatedWork>();
    this.#timers = chores.map((chore) =>
      setInterval(() => {
        if (running.has(chore)) return;
        running.add(chore);
        chore
          .run()
          .catch((error: unknown) => log.warn({ err: error }, chore.failure))
          .finally(() => running.delete(chore));
      }, chore.interval),
    );
  }

  [Symbol.dispose](): void {
    for (const timer of this.#timers) clearInterval(timer);
  }
}
