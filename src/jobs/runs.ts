import { forUpdate, type Database, type Transaction } from '../database/database.ts';
import type { Processes } from '../database/processes.ts';
import { recordEvent } from '../events/record.ts';

/** Numbers of the things that a run did, by name. */
export type Counts = Record<string, number>;

/** `3 blobs, 4096 bytes`, without counts that are zero. */
export function countsText(counts: Counts): string {
  const words = Object.entries(counts)
    .filter(([, count]) => count !== 0)
    .map(([name, count]) => `${count} ${name.replaceAll('_', ' ')}`);
  return words.length === 0 ? 'nothing' : words.join(', ');
}

/** `interrupted`: its instance was closed; `lost`: its instance died. A scheduled run is then started again. */
export type RunState = 'running' | 'done' | 'failed' | 'interrupted' | 'lost';

export interface JobRun {
  id: number;
  job: string;
  /** When it was due; null for a run that a user started. */
  scheduledAt: number | null;
  startedAt: number;
  endedAt: number | null;
  outcome: RunState;
  counts: Counts;
  error: string | null;
}

/** A run that has not ended, on any instance, and its heartbeat: a counter that its instance increases. */
export interface RunningJob {
  name: string;
  runId: number;
  beat: number;
  /** The process of the run, if the others can see whether it lives. */
  process: string | null;
}

interface JobRow {
  run_id: number | null;
  beat: number;
}

/** Runs kept for each job. A due time cannot run twice while its first run is kept. */
const kept = 1000;
/** A scheduled run that was lost this often is not started again: it may be the cause that its instances die. */
const attempts = 3;
const maxErrorLength = 500;

/** The runs of all instances, in the database. */
export class Runs {
  readonly #database: Database;
  readonly #now: () => number;
  readonly #processes: (() => Processes) | undefined;

  constructor(database: Database, now: () => number, processes?: () => Processes) {
    this.#database = database;
    this.#now = now;
    this.#processes = processes;
  }

  /**
   * Starts the run of `job` that was due at `scheduledAt`, or a run that a user starts (null); resolves to its id, to
   * `held` while another run of the job has not ended, or to `past` if that time already had a run.
   */
  claim(job: string, scheduledAt: number | null): Promise<number | 'held' | 'past'> {
    return this.#database.transaction(async (tx) => {
      const row = await lockJob(tx, job);
      if (scheduledAt !== null && (await timesBegun(tx, job, scheduledAt)) > 0) return 'past';
      if (row.run_id !== null) return 'held';
      const event = { type: 'job.started', accountId: 0, subject: { kind: 'job', name: job } } as const;
      if (scheduledAt === null) await recordEvent(tx, event, this.#now());
      return this.#begin(tx, job, scheduledAt);
    });
  }

  /**
   * Ends a run that has shown no heartbeat for too long and starts it again; resolves to the id of the new run. Undefined
   * if the run is alive, was started by a user, or was lost too often.
   */
  takeOver(held: RunningJob): Promise<number | undefined> {
    return this.#database.transaction(async (tx) => {
      const lost = await this.#lose(tx, held);
      if (!lost || lost.scheduledAt === null) return undefined;
      if ((await timesBegun(tx, held.name, lost.scheduledAt, 'lost')) >= attempts) return undefined;
      return this.#begin(tx, held.name, lost.scheduledAt);
    });
  }

  /** As `takeOver`, without starting the run again. */
  async abandon(held: RunningJob): Promise<void> {
    await this.#database.transaction((tx) => this.#lose(tx, held));
  }

  /** Writes a heartbeat; resolves to whether this is still the current run of the job. */
  async beat(job: string, runId: number): Promise<boolean> {
    const beating = await this.#database.transaction((tx) =>
      tx.run('UPDATE jobs SET beat = beat + 1 WHERE name = ? AND run_id = ?', [job, runId]),
    );
    return beating > 0;
  }

  /** Records the outcome of a run. An interrupted run keeps its job's lock, so that another instance takes it over. */
  async end(job: string, runId: number, outcome: RunState, counts: Counts, error: string | null): Promise<void> {
    await this.#database.transaction(async (tx) => {
      const { run_id: current } = await lockJob(tx, job);
      if (current !== runId) return;
      await tx.run('UPDATE job_runs SET ended_at = ?, outcome = ?, counts = ?, error = ? WHERE id = ?', [
        this.#now(),
        outcome,
        JSON.stringify(counts),
        error?.slice(0, maxErrorLength) ?? null,
        runId,
      ]);
      if (outcome !== 'interrupted') await tx.run('UPDATE jobs SET run_id = NULL WHERE name = ?', [job]);
    });
  }

  /** The runs that have not ended. */
  async held(): Promise<RunningJob[]> {
    return this.#database.select<RunningJob>(
      `SELECT j.name, j.run_id AS runId, j.beat, r.process FROM jobs j LEFT JOIN job_runs r ON r.id = j.run_id
       WHERE j.run_id IS NOT NULL`,
    );
  }

  /** Whether the process of a run has ended, or was not heard of for `lease` milliseconds. */
  async isLeft({ process }: RunningJob, lease: number): Promise<boolean> {
    if (!this.#processes || process === null) return false;
    return (await this.#processes().gone([process], lease)).has(process);
  }

  /** When each job last succeeded, in milliseconds since 1970. */
  async successes(): Promise<Map<string, number>> {
    const rows = await this.#database.select<{ job: string; at: number }>(
      "SELECT job, MAX(ended_at) AS at FROM job_runs WHERE outcome = 'done' GROUP BY job",
    );
    return new Map(rows.map(({ job, at }) => [job, at]));
  }

  /** The latest runs of a job, newest first. */
  async latest(job: string, limit: number): Promise<JobRun[]> {
    const rows = await this.#database.select<Omit<JobRun, 'counts'> & { counts: string }>(
      `SELECT id, job, scheduled_at AS scheduledAt, started_at AS startedAt, ended_at AS endedAt, outcome, counts, error
       FROM job_runs WHERE job = ? ORDER BY id DESC LIMIT ?`,
      [job, limit],
    );
    return rows.map((row) => ({ ...row, counts: JSON.parse(row.counts) as Counts }));
  }

  async #lose(tx: Transaction, { name, runId, beat }: RunningJob): Promise<{ scheduledAt: number | null } | undefined> {
    const row = await lockJob(tx, name);
    if (row.run_id !== runId || row.beat !== beat) return undefined;
    const ended = "UPDATE job_runs SET outcome = 'lost', ended_at = ? WHERE id = ? AND ended_at IS NULL";
    await tx.run(ended, [this.#now(), runId]);
    await tx.run('UPDATE jobs SET run_id = NULL WHERE name = ?', [name]);
    return tx.get('SELECT scheduled_at AS scheduledAt FROM job_runs WHERE id = ?', [runId]);
  }

  async #begin(tx: Transaction, job: string, scheduledAt: number | null): Promise<number> {
    const id = await tx.insert('job_runs', {
      job,
      scheduled_at: scheduledAt,
      started_at: this.#now(),
      outcome: 'running',
      counts: '{}',
      process: this.#processes?.().id ?? null,
    });
    await tx.run('UPDATE jobs SET run_id = ?, beat = 0 WHERE name = ?', [id, job]);
    const oldest = await tx.get<{ id: number }>(
      'SELECT id FROM job_runs WHERE job = ? ORDER BY id DESC LIMIT 1 OFFSET ?',
      [job, kept],
    );
    if (oldest) await tx.run('DELETE FROM job_runs WHERE job = ? AND id <= ?', [job, oldest.id]);
    return id;
  }
}

/** The row of the job, inserted if it is missing, locked until the transaction ends. */
async function lockJob(tx: Transaction, job: string): Promise<JobRow> {
  await tx.insertNew('jobs', [{ name: job }]);
  return (await tx.get<JobRow>(`SELECT run_id, beat FROM jobs WHERE name = ?${forUpdate(tx)}`, [job]))!;
}

/** Number of runs that were started for a due time. It prevents a second run after the clock was set back. */
async function timesBegun(tx: Transaction, job: string, scheduledAt: number, outcome?: RunState): Promise<number> {
  const row = await tx.get<{ times: number }>(
    `SELECT COUNT(*) AS times FROM job_runs WHERE job = ? AND scheduled_at = ?${outcome ? ' AND outcome = ?' : ''}`,
    [job, scheduledAt, ...(outcome ? [outcome] : [])],
  );
  return row!.times;
}
