import { forUpdate, type Database, type Transaction } from '../database/database.ts';

/** What a run did, in numbers. */
export type Counts = Record<string, number>;

/** `interrupted`: its instance was closed; `lost`: its instance died. Both are taken up again if they were scheduled. */
export type RunState = 'running' | 'done' | 'failed' | 'interrupted' | 'lost';

export interface JobRun {
  id: number;
  job: string;
  /** The time it was due; null for one by hand. */
  scheduledAt: number | null;
  startedAt: number;
  endedAt: number | null;
  outcome: RunState;
  counts: Counts;
  error: string | null;
}

/** A run that is under way somewhere, and the count that shows whether it is alive. */
export interface RunningJob {
  name: string;
  runId: number;
  beat: number;
}

interface JobRow {
  run_id: number | null;
  beat: number;
}

/** Runs kept for each job. A time has no second run while its first is among them. */
const kept = 1000;
/** How often one scheduled run may be lost: one that kills its instance is not to kill the next, and so on. */
const attempts = 3;
const longestError = 500;

/** The runs of all instances, in the database: who runs what, and what came of it. */
export class Runs {
  readonly #database: Database;
  readonly #now: () => number;

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  /**
   * Begins the run of `job` that was due at `scheduledAt`, or one by hand (null); resolves to its id. `held` while
   * another run of the job is under way, `past` when that time has had its run.
   */
  claim(job: string, scheduledAt: number | null): Promise<number | 'held' | 'past'> {
    return this.#database.transaction(async (tx) => {
      const row = await lockJob(tx, job);
      if (scheduledAt !== null && (await timesBegun(tx, job, scheduledAt)) > 0) return 'past';
      if (row.run_id !== null) return 'held';
      return this.#begin(tx, job, scheduledAt);
    });
  }

  /**
   * Ends a run whose `beat` has stood still for too long and begins it anew; resolves to the new run's id. Undefined when
   * it is alive after all, was by hand, or was lost too often.
   */
  takeOver(held: RunningJob): Promise<number | undefined> {
    return this.#database.transaction(async (tx) => {
      const lost = await this.#lose(tx, held);
      if (!lost || lost.scheduledAt === null) return undefined;
      if ((await timesBegun(tx, held.name, lost.scheduledAt, 'lost')) >= attempts) return undefined;
      return this.#begin(tx, held.name, lost.scheduledAt);
    });
  }

  /** As `takeOver`, without beginning it anew. */
  async abandon(held: RunningJob): Promise<void> {
    await this.#database.transaction((tx) => this.#lose(tx, held));
  }

  /** Shows that a run is alive; resolves to whether it is still this one that counts. */
  async beat(job: string, runId: number): Promise<boolean> {
    const beating = await this.#database.transaction((tx) =>
      tx.run('UPDATE jobs SET beat = beat + 1 WHERE name = ? AND run_id = ?', [job, runId]),
    );
    return beating > 0;
  }

  /** Writes down what came of a run. An interrupted one is left to be taken over. */
  async end(job: string, runId: number, outcome: RunState, counts: Counts, error: string | null): Promise<void> {
    await this.#database.transaction(async (tx) => {
      const { run_id: current } = await lockJob(tx, job);
      if (current !== runId) return;
      await tx.run('UPDATE job_runs SET ended_at = ?, outcome = ?, counts = ?, error = ? WHERE id = ?', [
        this.#now(),
        outcome,
        JSON.stringify(counts),
        error?.slice(0, longestError) ?? null,
        runId,
      ]);
      if (outcome !== 'interrupted') await tx.run('UPDATE jobs SET run_id = NULL WHERE name = ?', [job]);
    });
  }

  /** The runs under way. */
  async held(): Promise<RunningJob[]> {
    return this.#database.select<RunningJob>('SELECT name, run_id AS runId, beat FROM jobs WHERE run_id IS NOT NULL');
  }

  /** The latest runs of a job, the last one first. */
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

/** The job's row, made if there is none, locked until the transaction ends. */
async function lockJob(tx: Transaction, job: string): Promise<JobRow> {
  await tx.insertNew('jobs', [{ name: job }]);
  return (await tx.get<JobRow>(`SELECT run_id, beat FROM jobs WHERE name = ?${forUpdate(tx)}`, [job]))!;
}

/** How often the run of that time has been begun. A clock that comes by it again finds it so. */
async function timesBegun(tx: Transaction, job: string, scheduledAt: number, outcome?: RunState): Promise<number> {
  const row = await tx.get<{ times: number }>(
    `SELECT COUNT(*) AS times FROM job_runs WHERE job = ? AND scheduled_at = ?${outcome ? ' AND outcome = ?' : ''}`,
    [job, scheduledAt, ...(outcome ? [outcome] : [])],
  );
  return row!.times;
}
