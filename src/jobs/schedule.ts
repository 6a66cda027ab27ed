import { createTask } from 'node-cron';

const second = 1000;
const minute = 60 * second;
const hour = 60 * minute;

/**
 * When a job is due: a cron expression in UTC, as node-cron reads it. Its timers are not used: they wait for the time
 * that they have worked out, so a clock that is set back would stop them for as long.
 */
export class Schedule {
  readonly #task: ReturnType<typeof createTask>;
  /** How exact the expression is, and how far back is looked for a time that passed unseen; milliseconds. */
  readonly #step: number;
  readonly #lookBack: number;

  /** Throws when `expression` is none; the configuration has checked it. */
  constructor(expression: string) {
    this.#task = createTask(expression, () => undefined, { timezone: 'UTC' });
    // It goes on matching; what is given up is its place in a list that holds it for ever.
    void this.#task.destroy();
    const toTheSecond = expression.trim().split(/\s+/).length === 6;
    this.#step = toTheSecond ? second : minute;
    this.#lookBack = toTheSecond ? hour : 24 * hour;
  }

  /** The latest time that is due after `after` and not after `now`; undefined when there is none. */
  latest(after: number, now: number): number | undefined {
    const from = Math.max(after, now - this.#lookBack);
    for (let time = Math.floor(now / this.#step) * this.#step; time > from; time -= this.#step) {
      if (this.#task.match(new Date(time))) return time;
    }
    return undefined;
  }

  /** The next time that is due, by this machine's clock. */
  next(): number {
    return this.#task.getNextRuns(1)[0]!.getTime();
  }
}
