import type { Logger } from 'pino';
import { typed } from '../runtime/command-name.ts';
import { runForSystem } from '../runtime/caller.ts';
import { inBackground } from '../database/time-limits.ts';
import { DomainError } from '../runtime/errors.ts';
import { ActiveRun } from './active-run.ts';
import type { Counts, RunningJob, JobRun, Runs } from './runs.ts';

export type { JobRun };
import type { Schedule } from './schedule.ts';

/** The parameters of a job's run. */
export interface Work {
  /** Aborted when the run must end: the instance closes, or another one has taken over the run. */
  signal: AbortSignal;
  /** Only report what the run would do. */
  dryRun: boolean;
  /** Whether a user has started the run. */
  isAsked?: boolean;
  /** Reports one action that is done, or would be done in a dry run; one line. */
  say: (line: string) => void;
}

export interface Job {
  name: string;
  /** A short description. */
  summary: string;
  /** Undefined if the job is off. */
  schedule: Schedule | undefined;
  canDryRun: boolean;
  run(work: Work): Promise<Counts>;
}

export interface JobStatus {
  job: Job;
  last: JobRun | undefined;
}

interface JobsOptions {
  runs: Runs;
  jobs: readonly Job[];
  log: Logger;
  /** Milliseconds since 1970 UTC; may jump. */
  now: () => number;
  /** Milliseconds between two checks of the schedules. */
  tick?: number;
  /** A due run starts up to this many milliseconds later, so that not all instances start at the same time. */
  jitter?: number;
  /** A run without a heartbeat for this many milliseconds is taken over. */
  lease?: number;
}

/** Called after each run, with the name of the job, the outcome and the counts. */
type Observer = (name: string, outcome: string, counts: Counts) => void;

/**
 * Scheduled work. Of all instances on one database, one performs each due run. Runs of the same job do not overlap. If
 * an instance dies, another one starts its run again.
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
  readonly #active = new Map<string, ActiveRun>();
  readonly #seen = new Map<string, RunningJob & { since: number }>();
  readonly #pending = new Set<Promise<void>>();
  #timers: NodeJS.Timeout[] = [];
  #checkedUntil = 0;
  #isClosing = false;
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

  /** Runs due jobs until `close`, at once those that an ended process has left. */
  start(observe: Observer = () => undefined): void {
    this.#observe = observe;
    this.#checkedUntil = this.#now();
    this.#timers.push(setInterval(() => this.#checkSchedules(), this.#tick).unref());
    this.#timers.push(setInterval(() => this.#track(this.#takeOverLostRuns()), this.#lease / 3).unref());
    this.#track(this.#takeOverLostRuns());
  }

  get names(): string[] {
    return [...this.#jobs.keys()];
  }

  /** The names of the jobs that have a schedule. */
  get scheduled(): string[] {
    return [...this.#jobs.values()].filter(({ schedule }) => schedule).map(({ name }) => name);
  }

  /** When each job last succeeded on any instance, in milliseconds since 1970. */
  successes(): Promise<Map<string, number>> {
    return this.#runs.successes();
  }

  /** Ends the active runs. Another instance, or the next start, starts the scheduled ones again. */
  async close(): Promise<void> {
    this.#isClosing = true;
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers = [];
    for (const each of this.#active.values()) each.interrupt();
    while (this.#pending.size > 0) await Promise.all(this.#pending);
  }

  /** All jobs, and the last run of each. */
  async list(): Promise<JobStatus[]> {
    const list: JobStatus[] = [];
    for (const job of this.#jobs.values()) list.push({ job, last: (await this.#runs.latest(job.name, 1))[0] });
    return list;
  }

  /**
   * Runs a job now, even if it is off; resolves to its counts, rejects if it fails. `Invalid` while another run of this job
   * is alive. A dry run is not recorded, and may overlap with other runs; `Aborted` if it has not ended when `signal` is aborted.
   */
  async run(name: string, { dryRun = false, say = () => undefined, signal }: Partial<Work> = {}): Promise<Counts> {
    const job = this.#get(name);
    if (dryRun && !job.canDryRun) throw new DomainError('Invalid', `The job "${name}" has no dry run.`);
    if (dryRun) return this.#dryRun(job, signal ?? new AbortController().signal, say);
    return this.#perform(job, await this.#claimNow(name), { byHand: true, isAsked: true, say });
  }

  async #dryRun(job: Job, signal: AbortSignal, say: Work['say']): Promise<Counts> {
    try {
      return await job.run({ signal, dryRun: true, say });
    } catch (cause) {
      if (!signal.aborted) throw cause;
      const command = typed(`jobs run ${job.name} --dry-run`);
      const message = `The preview of the job "${job.name}" takes too long here. "${command}" has no limit of time.`;
      throw new DomainError('Aborted', message, { cause });
    }
  }

  /** As `run`, but resolves when the run has begun. Its outcome is in the runs of the job, and in the log. */
  async launch(name: string): Promise<void> {
    const job = this.#get(name);
    const id = await this.#claimNow(name);
    this.#track(this.#perform(job, id, { isAsked: true }).then(ignore, ignore));
  }

  /** The latest runs of a job, newest first. */
  history(name: string, limit: number): Promise<JobRun[]> {
    return this.#runs.latest(this.#get(name).name, limit);
  }

  #get(name: string): Job {
    const job = this.#jobs.get(name);
    if (job) return job;
    throw new DomainError('NotFound', `There is no job "${name}". The jobs are ${[...this.#jobs.keys()].join(', ')}.`);
  }

  async #claimNow(name: string): Promise<number> {
    for (;;) {
      const id = await this.#runs.claim(name, null);
      if (typeof id === 'number') return id;
      await this.#waitForEnd(name);
    }
  }

  #checkSchedules(): void {
    const now = this.#now();
    // After the clock was set back, continue from its new time.
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
      // A later time that became due meanwhile is claimed separately.
      if (this.#due.get(job.name) === time) this.#due.delete(job.name);
      else this.#later(0, () => this.#begin(job));
      if (id === 'held') this.#log.info({ job: job.name }, 'run skipped: the previous run has not ended');
      if (typeof id === 'number') await this.#perform(job, id).catch(() => undefined);
    } catch (error) {
      this.#log.warn({ job: job.name, err: error }, 'a job could not start; retrying');
      this.#later(this.#tick * 5, () => this.#begin(job));
    }
  }

  /** Takes over runs of other instances that have ended, or have shown no heartbeat for a lease. Those of jobs that are off only end. */
  async #takeOverLostRuns(): Promise<void> {
    try {
      for (const held of await this.#runs.held()) {
        if (this.#isClosing) return;
        const job = this.#jobs.get(held.name);
        if (!job || this.#active.has(held.name) || !(await this.#isLost(held))) continue;
        if (!job.schedule) {
          await this.#runs.abandon(held);
          this.#log.warn(
            { job: held.name, run: held.runId },
            'the instance that ran this job is gone; the run is lost',
          );
          continue;
        }
        const id = await this.#runs.takeOver(held);
        if (id === undefined) continue;
        this.#log.warn(
          { job: held.name, run: held.runId },
          'the instance that ran this job is gone; starting the run again',
        );
        this.#track(this.#perform(job, id).then(ignore, ignore));
      }
    } catch (error) {
      this.#log.warn({ err: error }, 'the runs of other instances could not be checked');
    }
  }

  /** Whether the process of a run has ended, or the run has shown no heartbeat for a lease by the clock of this process. */
  async #isLost(held: RunningJob): Promise<boolean> {
    if (await this.#runs.isLeft(held, this.#lease)) return true;
    const seen = this.#seen.get(held.name);
    if (seen?.runId === held.runId && seen.beat === held.beat) return performance.now() - seen.since >= this.#lease;
    this.#seen.set(held.name, { ...held, since: performance.now() });
    return false;
  }

  /** Resolves when the active run has ended or was lost. Throws `Invalid` as soon as it shows a heartbeat. */
  async #waitForEnd(name: string): Promise<void> {
    let first: RunningJob | undefined;
    for (;;) {
      const held = (await this.#runs.held()).find((each) => each.name === name);
      if (!held) return;
      first ??= held;
      if (held.runId !== first.runId || held.beat !== first.beat || this.#active.has(name)) {
        throw new DomainError('Invalid', `The job "${name}" is already running. See "${typed('jobs list')}".`);
      }
      if (await this.#isLost(held)) {
        await this.#runs.abandon(held);
        continue;
      }
      await new Promise((resolve) => setTimeout(resolve, this.#lease / 10));
    }
  }

  /** Performs a claimed run. If it fails, records that and rejects. */
  async #perform(
    job: Job,
    id: number,
    { byHand = false, isAsked = false, say }: { byHand?: boolean; isAsked?: boolean; say?: Work['say'] } = {},
  ): Promise<Counts> {
    const { name } = job;
    const startedAt = performance.now();
    const active = new ActiveRun({ runs: this.#runs, name, id, lease: this.#lease });
    this.#active.set(name, active);
    const log = this.#log.child({ job: name });
    try {
      // It was claimed while the instance began to close: nothing would interrupt it any more.
      if (this.#isClosing) active.interrupt();
      active.signal.throwIfAborted();
      const work = {
        signal: active.signal,
        dryRun: false,
        isAsked,
        say: say ?? ((line: string) => log.info(line)),
      };
      const counts = await runForSystem(name, () => inBackground(() => job.run(work)));
      await active.end('done', counts, null);
      const seconds = (performance.now() - startedAt) / 1000;
      log.info({ ...counts, seconds }, 'done');
      this.#observe(name, 'done', counts);
      return counts;
    } catch (error) {
      const outcome = active.signal.aborted && !byHand ? 'interrupted' : 'failed';
      const reason = active.signal.aborted ? (active.signal.reason as Error) : (error as Error);
      if (outcome === 'failed') log.error({ err: error }, 'failed');
      else log.info({ reason: reason.message }, 'interrupted');
      await active
        .end(outcome, {}, reason.message)
        .catch((err: unknown) => log.warn({ err }, 'the end of the run was not recorded'));
      this.#observe(name, outcome, {});
      throw reason;
    } finally {
      active.stop();
      this.#active.delete(name);
    }
  }

  #later(milliseconds: number, work: () => Promise<void>): void {
    if (this.#isClosing) return;
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
