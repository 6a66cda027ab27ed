import type { Logger } from 'pino';
import { DomainError } from '../errors.ts';
import { Underway } from './underway.ts';
import type { Counts, RunningJob, JobRun, Runs } from './runs.ts';
import type { Schedule } from './schedule.ts';

/** What a job is given to work with. */
export interface Work {
  /** Ends the run: the instance closes, or another one has taken over. */
  signal: AbortSignal;
  /** Only tell what would be done. */
  dryRun: boolean;
  /** Tells of one thing that is done, or would be; one line. */
  say: (line: string) => void;
}

export interface Job {
  name: string;
  /** What it does, in a few words. */
  summary: string;
  /** Undefined when it is off. */
  schedule: Schedule | undefined;
  canDryRun: boolean;
  run(work: Work): Promise<Counts>;
}

export interface JobStatus {
  job: Job;
  last: JobRun | undefined;
}

export interface JobsOptions {
  runs: Runs;
  jobs: readonly Job[];
  log: Logger;
  /** Milliseconds since 1970 UTC; may jump. */
  now: () => number;
  /** How often the clock is looked at, in milliseconds. */
  tick?: number;
  /** A due run begins up to so many milliseconds later, so that not all instances come at once. */
  jitter?: number;
  /** A run whose instance has not been heard of for so many milliseconds is taken over. */
  lease?: number;
}

/** Hears of each run that ends: its job, what came of it, what it did. */
export type Observer = (name: string, outcome: string, counts: Counts) => void;

/**
 * Scheduled work: each due time of a job has one run among all instances that share a database, no run overlaps another
 * of its job, and the run of an instance that died is begun anew by another one.
 */
export class Jobs {
  readonly #runs: Runs;
  readonly #jobs: ReadonlyMap<string, Job>;
  readonly #log: Logger;
  readonly #now: () => number;
  readonly #tick: number;
  readonly #jitter: number;
  readonly #lease: number;
  readonly #due = new Map<string, number>();
  readonly #underway = new Map<string, Underway>();
  readonly #seen = new Map<string, RunningJob & { since: number }>();
  readonly #pending = new Set<Promise<void>>();
  #timers: NodeJS.Timeout[] = [];
  #checkedUntil = 0;
  #observe: Observer = () => undefined;

  constructor({ runs, jobs, log, now, tick = 1000, jitter = 10_000, lease = 30_000 }: JobsOptions) {
    this.#runs = runs;
    this.#jobs = new Map(jobs.map((job) => [job.name, job]));
    this.#log = log;
    this.#now = now;
    this.#tick = tick;
    this.#jitter = jitter;
    this.#lease = lease;
  }

  /** Begins to run what is due, until `close`. */
  start(observe: Observer = () => undefined): void {
    this.#observe = observe;
    this.#checkedUntil = this.#now();
    this.#timers.push(setInterval(() => this.#lookAtTheClock(), this.#tick).unref());
    this.#timers.push(setInterval(() => this.#track(this.#lookAfterOthers()), this.#lease / 3).unref());
  }

  /** Ends the runs under way; those that were scheduled are begun anew elsewhere, or after the next start. */
  async close(): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers = [];
    this.#due.clear();
    for (const each of this.#underway.values()) each.interrupt();
    while (this.#pending.size > 0) await Promise.all(this.#pending);
  }

  /** All jobs, and the last run of each. */
  async list(): Promise<JobStatus[]> {
    const list: JobStatus[] = [];
    for (const job of this.#jobs.values()) list.push({ job, last: (await this.#runs.latest(job.name, 1))[0] });
    return list;
  }

  /**
   * Runs a job now, off or not; resolves to what it did, rejects with why it failed. While another run of it is under
   * way that is alive: `Invalid`. A dry run is no run: it overlaps with anything and leaves no trace.
   */
  async run(
    name: string,
    { dryRun = false, say = () => undefined }: Partial<Omit<Work, 'signal'>> = {},
  ): Promise<Counts> {
    const job = this.#jobs.get(name);
    if (!job)
      throw new DomainError('NotFound', `There is no job "${name}"; there are ${[...this.#jobs.keys()].join(', ')}.`);
    if (dryRun && !job.canDryRun) throw new DomainError('Invalid', `The job "${name}" has no dry run.`);
    if (dryRun) return job.run({ signal: new AbortController().signal, dryRun, say });
    for (;;) {
      const id = await this.#runs.claim(name, null);
      if (typeof id === 'number') return this.#perform(job, id, true, say);
      await this.#waitForItsEnd(name);
    }
  }

  #lookAtTheClock(): void {
    const now = this.#now();
    // A clock that was set back begins anew from where it is.
    const since = Math.min(this.#checkedUntil, now);
    this.#checkedUntil = now;
    for (const job of this.#jobs.values()) {
      const time = job.schedule?.latest(since, now);
      if (time === undefined) continue;
      const isWaiting = this.#due.has(job.name);
      this.#due.set(job.name, time);
      if (!isWaiting) this.#later(Math.random() * this.#jitter, () => this.#begin(job));
    }
  }

  async #begin(job: Job): Promise<void> {
    const time = this.#due.get(job.name);
    if (time === undefined) return;
    try {
      const id = await this.#runs.claim(job.name, time);
      // A time that came meanwhile has its own claim.
      if (this.#due.get(job.name) === time) this.#due.delete(job.name);
      else this.#later(0, () => this.#begin(job));
      if (id === 'held') this.#log.info({ job: job.name }, 'left out: the run before it is not over');
      if (typeof id === 'number') await this.#perform(job, id, false).catch(() => undefined);
    } catch (error) {
      this.#log.warn({ job: job.name, err: error }, 'a job could not begin and is tried again');
      this.#later(this.#tick * 5, () => this.#begin(job));
    }
  }

  /** Takes over runs whose beat has stood still for the length of a lease, by this process's watch. */
  async #lookAfterOthers(): Promise<void> {
    try {
      for (const held of await this.#runs.held()) {
        const job = this.#jobs.get(held.name);
        if (!job?.schedule || this.#underway.has(held.name) || !this.#stoodStill(held)) continue;
        const id = await this.#runs.takeOver(held);
        if (id === undefined) continue;
        this.#log.warn({ job: held.name, run: held.runId }, 'the instance that ran this is gone: begun anew');
        this.#track(this.#perform(job, id, false).then(ignore, ignore));
      }
    } catch (error) {
      this.#log.warn({ err: error }, 'the runs of other instances could not be looked at');
    }
  }

  /** Whether nothing has been heard of a run for the length of a lease. No clock is compared with another's. */
  #stoodStill(held: RunningJob): boolean {
    const seen = this.#seen.get(held.name);
    if (seen?.runId === held.runId && seen.beat === held.beat) return performance.now() - seen.since >= this.#lease;
    this.#seen.set(held.name, { ...held, since: performance.now() });
    return false;
  }

  /** Resolves when the run under way has ended or was lost; `Invalid` as soon as it shows that it is alive. */
  async #waitForItsEnd(name: string): Promise<void> {
    let first: RunningJob | undefined;
    for (;;) {
      const held = (await this.#runs.held()).find((each) => each.name === name);
      if (!held) return;
      first ??= held;
      if (held.runId !== first.runId || held.beat !== first.beat || this.#underway.has(name)) {
        throw new DomainError('Invalid', `The job "${name}" is running already; "entrepot jobs list" shows it.`);
      }
      if (this.#stoodStill(held)) await this.#runs.abandon(held);
      await new Promise((resolve) => setTimeout(resolve, this.#lease / 10));
    }
  }

  /** Does a run that has been claimed; rejects when it fails, after that has been written down. */
  async #perform(job: Job, id: number, byHand: boolean, say?: (line: string) => void): Promise<Counts> {
    const { name } = job;
    const startedAt = performance.now();
    const underway = new Underway({ runs: this.#runs, name, id, lease: this.#lease });
    this.#underway.set(name, underway);
    const log = this.#log.child({ job: name });
    const tell = say ?? ((line: string) => log.info(line));
    try {
      const counts = await job.run({ signal: underway.signal, dryRun: false, say: tell });
      await underway.end('done', counts, null);
      const seconds = (performance.now() - startedAt) / 1000;
      log.info({ ...counts, seconds }, 'done');
      this.#observe(name, 'done', counts);
      return counts;
    } catch (error) {
      const outcome = underway.signal.aborted && !byHand ? 'interrupted' : 'failed';
      const reason = underway.signal.aborted ? (underway.signal.reason as Error) : (error as Error);
      if (outcome === 'failed') log.error({ err: error }, 'failed');
      else log.info({ reason: reason.message }, 'interrupted');
      await underway
        .end(outcome, {}, reason.message)
        .catch((err: unknown) => log.warn({ err }, 'its end was not written'));
      this.#observe(name, outcome, {});
      throw reason;
    } finally {
      underway.stop();
      this.#underway.delete(name);
    }
  }

  #later(milliseconds: number, work: () => Promise<void>): void {
    const timer = setTimeout(() => {
      this.#timers = this.#timers.filter((each) => each !== timer);
      this.#track(work());
    }, milliseconds).unref();
    this.#timers.push(timer);
  }

  #track(work: Promise<void>): void {
    const tracked = work.finally(() => this.#pending.delete(tracked));
    this.#pending.add(tracked);
  }
}

function ignore(): void {}
