import { createTask } from 'node-cron';

const second = 1000;
const minute = 60 * second;
const hour = 60 * minute;

/**
 * When a job is due: a cron expression of node-cron, in UTC. The timers of node-cron are not used: they wait for a
 * computed time, so after the clock is set back they would not fire for that long.
 */
export class Schedule {
  readonly #expression: string;
  #made: ReturnType<typeof createTask> | undefined;
  /** The precision of the expression, and how far back `latest` searches; milliseconds. */
  readonly #step: number;
  readonly #lookBack: number;

  /** The configuration has checked `expression`. */
  constructor(expression: string) {
    this.#expression = expression;
    const toTheSecond = expression.trim().split(/\s+/).length === 6;
    this.#step = toTheSecond ? second : minute;
    this.#lookBack = toTheSecond ? hour : 24 * hour;
  }

  /** Made when it is needed: the first one loads the names of days and months, which takes a tenth of the time of a start. */
  get #task(): ReturnType<typeof createTask> {
    if (this.#made) return this.#made;
    this.#made = createTask(this.#expression, () => undefined, { timezone: 'UTC' });
    // Removes the task from node-cron's registry, which would keep it forever. `match` still works.
    void this.#made.destroy();
    return this.#made;
  }

  /** The latest due time after `after` and up to `now`; undefined if there is none. */
  latest(after: number, now: number): number | undefined {
    const from = Math.max(after, now - this.#lookBack);
    for (let time = Math.floor(now / this.#step) * this.#step; time > from; time -= this.#step) {
      if (this.#task.match(new Date(time))) return time;
    }
    return undefined;
  }

  /** The next due time by the clock of this machine; milliseconds since 1970 UTC. */
  next(): number {
    return this.#task.getNextRuns(1)[0]!.getTime();
  }
}
