import type { Logger } from 'pino';
import type { ServerPart, UsedPart } from './unavailable.ts';

/** One check of a part that the service needs. */
export interface Check {
  readonly part: ServerPart;
  /** What clients are told when it fails. The reason is only in the log: it may contain paths and addresses. */
  readonly failure: string;
  /** Rejects with the reason. */
  readonly run: () => Promise<unknown>;
  /**
   * Milliseconds after a success in which it is not repeated, unless a request has met a failure of the part since; default 0.
   * For checks that cost money.
   */
  readonly every?: number;
}

/** Times in milliseconds. */
export interface HealthTimes {
  /** Longest time of one check. */
  limit: number;
  /** Shortest time between two checks of writes. */
  writeEvery: number;
  /** Most times in one second that the checks run. Further callers get the latest result, because no token is needed. */
  perSecond: number;
  /** How long a failure that a request met counts. */
  remember: number;
}

export const healthTimes: HealthTimes = {
  limit: 2000,
  writeEvery: 3000,
  perSecond: 10,
  remember: 30_000,
};

interface HealthOptions {
  /** The service is ready while none of these fails. */
  reads: readonly Check[];
  /** The service is degraded while one of these fails. */
  writes: readonly Check[];
  /** When a request last met a failure of Redis, by `performance.now()`. */
  redisFailedAt: () => number | undefined;
  log: Logger;
  times?: HealthTimes | undefined;
}

export interface State {
  /** The checks of reads that failed. */
  readonly failed: readonly Check[];
  /** Every part that is in trouble, with what clients are told. */
  readonly troubles: ReadonlyMap<ServerPart, string>;
}

const met: Record<UsedPart, string> = {
  database: 'Requests have met an unavailable database.',
  storage: 'Requests have met an unavailable storage.',
  redis: 'Requests have met an unavailable Redis.',
};

/** Whether this instance can serve, from small reads and writes and from what its requests have met. */
export class Health {
  readonly #reads: readonly LimitedCheck[];
  readonly #writes: readonly LimitedCheck[];
  readonly #options: HealthOptions;
  readonly #times: HealthTimes;
  readonly #metAt = new Map<UsedPart, number>();
  /** The failures that are logged, so that each is logged once. */
  #logged = new Set<string>();
  #failedWrites: readonly Check[] = [];
  #nextWrites = 0;
  /** The latest result, also while the checks run. */
  #latest: Promise<State> | undefined;
  #isRunning = false;
  #second = { startedAt: Number.NEGATIVE_INFINITY, looks: 0 };

  constructor(options: HealthOptions) {
    const { reads, writes, times = healthTimes } = options;
    this.#options = options;
    this.#times = times;
    this.#reads = reads.map((check) => new LimitedCheck(check, times.limit));
    this.#writes = writes.map((check) => new LimitedCheck(check, times.limit));
  }

  /** Counts a failure that a request has just met. */
  note(part: UsedPart): void {
    this.#metAt.set(part, performance.now());
  }

  /** Checks everything, within the time limit of one check. All callers at the same time share the checks. */
  look(): Promise<State> {
    const isTooSoon = this.#isTooSoon();
    if (this.#latest && (this.#isRunning || isTooSoon)) return this.#latest;
    this.#second.looks += 1;
    this.#isRunning = true;
    this.#latest = this.#look().finally(() => (this.#isRunning = false));
    return this.#latest;
  }

  #isTooSoon(): boolean {
    const now = performance.now();
    if (now - this.#second.startedAt >= 1000) this.#second = { startedAt: now, looks: 0 };
    return this.#second.looks >= this.#times.perSecond;
  }

  async #look(): Promise<State> {
    const failures = new Map<Check, unknown>();
    const isWriteDue = performance.now() >= this.#nextWrites;
    if (isWriteDue) this.#nextWrites = performance.now() + this.#times.writeEvery;
    const [failed, failedWrites] = await Promise.all([
      failing(
        this.#reads.filter((each) => this.#isDue(each)),
        failures,
      ),
      isWriteDue ? failing(this.#writes, failures) : this.#failedWrites,
    ]);
    this.#failedWrites = failedWrites;
    const troubles = new Map<ServerPart, string>();
    for (const part of this.recentlyMet()) troubles.set(part, met[part]);
    for (const { part, failure } of [...failedWrites, ...failed]) troubles.set(part, failure);
    this.#log([...failed, ...failedWrites], failures);
    return { failed, troubles };
  }

  #isDue({ check: { part, every = 0 }, succeededAt }: LimitedCheck): boolean {
    const metAt = this.#metAt.get(part as UsedPart) ?? Number.NEGATIVE_INFINITY;
    return performance.now() - succeededAt >= every || metAt >= succeededAt;
  }

  /** The parts whose failure a request of this process has met a short time ago. */
  recentlyMet(): UsedPart[] {
    const redis = this.#options.redisFailedAt();
    if (redis !== undefined) this.#metAt.set('redis', redis);
    const since = performance.now() - this.#times.remember;
    return [...this.#metAt].filter(([, at]) => at >= since).map(([part]) => part);
  }

  #log(now: readonly Check[], reasons: ReadonlyMap<Check, unknown>): void {
    for (const check of now) {
      if (this.#logged.has(check.failure)) continue;
      this.#options.log.error({ err: reasons.get(check) }, `the service is not ready or degraded: ${check.failure}`);
    }
    this.#logged = new Set(now.map(({ failure }) => failure));
  }
}

/** Those of `checks` that fail; adds the reasons to `failures`. */
async function failing(checks: readonly LimitedCheck[], failures: Map<Check, unknown>): Promise<Check[]> {
  const failed = await Promise.all(
    checks.map(async (each) => {
      try {
        await each.run();
        return undefined;
      } catch (error) {
        failures.set(each.check, error);
        return each.check;
      }
    }),
  );
  return failed.filter((each) => each !== undefined);
}

/** A check with a time limit. A check that hangs is not started again, so that it takes no more connections or threads. */
class LimitedCheck {
  readonly check: Check;
  /** When the last successful run began. */
  succeededAt = Number.NEGATIVE_INFINITY;
  readonly #limit: number;
  #running: Promise<unknown> | undefined;

  constructor(check: Check, limit: number) {
    this.check = check;
    this.#limit = limit;
  }

  /** Rejects when the check fails, or takes longer than the limit. */
  run(): Promise<void> {
    this.#running ??= this.#run().finally(() => (this.#running = undefined));
    const running = this.#running;
    return new Promise((resolve, reject) => {
      const late = () => reject(new Error(`no answer within ${this.#limit} ms`));
      const timer = setTimeout(late, this.#limit);
      running.then(() => resolve(), reject).finally(() => clearTimeout(timer));
    });
  }

  async #run(): Promise<void> {
    const startedAt = performance.now();
    await this.check.run();
    this.succeededAt = startedAt;
  }
}
