import { forUpdate, type Database, type Transaction } from '../../database/database.ts';
import type { EventType, NewEvent } from '../../events/event.ts';
import { recordEvent } from '../../events/record.ts';
import { RunRows } from '../../jobs/run-rows.ts';
import { DomainError } from '../../runtime/errors.ts';
import { importOutcomes } from '../item.ts';
import type { ImportProblem, ImportRun, ImportRunProgress, ImportRunSettings, ImportRunState } from './run.ts';

/** Most imports that run at a time, of all instances, and runs of an account that are kept. */
const maxRunning = 4;
const kept = 20;
const uncached = { uncached: true };

interface ImportRunRow {
  id: string;
  state: ImportRunState;
  createdAt: number;
  endedAt: number | null;
  settings: string;
  progress: string;
}

const columns = 'id, state, created_at AS createdAt, ended_at AS endedAt, settings, progress';

/** The imports that users of all accounts have started by `/v1`, in the database. An account sees only its own. */
export class ImportRunTable {
  readonly rows: RunRows;
  readonly #database: Database;
  readonly #now: () => number;

  constructor(database: Database, now: () => number) {
    this.rows = new RunRows(database, 'import_runs', now);
    this.#database = database;
    this.#now = now;
  }

  /** Begins a run; resolves to its ID. Throws `TooManyRequests` while another one of the account runs, or too many of others. */
  async begin(accountId: number, settings: ImportRunSettings): Promise<string> {
    const row = { ...this.rows.made('running', settings, String(accountId)), account_id: accountId };
    await this.#database.transaction(async (tx) => {
      await this.#requireRoom(tx);
      if ((await tx.insertNew('import_runs', [row])) === 0) throw busy();
      await forgetOld(tx, accountId);
      await recordEvent(tx, eventOf('job.started', accountId, row.id), this.#now());
    }, uncached);
    return row.id;
  }

  /** Begins a run anew that has ended. Throws `NotFound`, `Invalid` if it is done, and as `begin`. */
  async resume(accountId: number, id: string): Promise<void> {
    await this.#database.transaction(async (tx) => {
      await this.#requireRoom(tx);
      const row = await tx.get<{ state: ImportRunState; settings: string }>(
        `SELECT state, settings FROM import_runs WHERE id = ? AND account_id = ?${forUpdate(tx)}`,
        [id, accountId],
      );
      if (!row) throw unknownRun();
      if (row.state === 'running') throw busy();
      const settings = JSON.parse(row.settings) as ImportRunSettings;
      const started = { ...this.rows.made('running', settings, String(accountId)), id, account_id: accountId };
      // Written anew, because the slot of another run refuses new rows only.
      await tx.run('DELETE FROM import_runs WHERE id = ?', [id]);
      await tx.run('DELETE FROM import_problems WHERE run_id = ?', [id]);
      if ((await tx.insertNew('import_runs', [started])) === 0) throw busy();
      await recordEvent(tx, eventOf('job.started', accountId, id), this.#now());
    }, uncached);
  }

  /** Adds conflicts and failures to a run. */
  async addProblems(id: string, problems: readonly ImportProblem[]): Promise<void> {
    if (problems.length === 0) return;
    await this.#database.transaction(
      (tx) =>
        tx.insertNew(
          'import_problems',
          problems.map((each) => ({ run_id: id, ...each })),
        ),
      uncached,
    );
  }

  /** Asks the process of a run to stop it; one that does not run is forgotten. Throws `NotFound`. */
  async cancel(accountId: number, id: string): Promise<void> {
    const { state } = await this.get(accountId, id);
    await this.#database.transaction(async (tx) => {
      const isChanged = state === 'running' ? await this.rows.stop(tx, id) : await forget(tx, id);
      if (isChanged) await recordEvent(tx, eventOf('job.cancelled', accountId, id), this.#now());
    }, uncached);
  }

  /** The latest runs of an account, the newest first. */
  async list(accountId: number): Promise<ImportRun[]> {
    await this.rows.loseDeadNow();
    const rows = await this.#database.select<ImportRunRow>(
      `SELECT ${columns} FROM import_runs WHERE account_id = ? ORDER BY created_at DESC, id DESC LIMIT ${kept}`,
      [accountId],
    );
    return rows.map(runOf);
  }

  /** Throws `NotFound`. */
  async get(accountId: number, id: string): Promise<ImportRun> {
    await this.rows.loseDeadNow();
    const sql = `SELECT ${columns} FROM import_runs WHERE id = ? AND account_id = ?`;
    const row = await this.#database.get<ImportRunRow>(sql, [id, accountId]);
    if (row) return runOf(row);
    throw unknownRun();
  }

  /** Up to `limit` conflicts and failures of a run after a position. The caller has checked that it may read the run. */
  problems(id: string, limit: number, after: number): Promise<ImportProblem[]> {
    return this.#database.select<ImportProblem & { [column: string]: never }>(
      `SELECT position, outcome, name, reference, note FROM import_problems WHERE run_id = ? AND position > ?
       ORDER BY position LIMIT ?`,
      [id, after, limit],
    );
  }

  async #requireRoom(tx: Transaction): Promise<void> {
    await this.rows.loseDead(tx);
    const running = await tx.select(`SELECT id FROM import_runs WHERE slot IS NOT NULL LIMIT ${maxRunning}`);
    if (running.length < maxRunning) return;
    const message = `${maxRunning} imports run now. Start this one when one has ended.`;
    throw new DomainError('TooManyRequests', message, { retryAfter: 60 });
  }
}

async function forget(tx: Transaction, id: string): Promise<boolean> {
  await tx.run('DELETE FROM import_problems WHERE run_id = ?', [id]);
  return (await tx.run('DELETE FROM import_runs WHERE id = ?', [id])) > 0;
}

async function forgetOld(tx: Transaction, accountId: number): Promise<void> {
  const rows = await tx.select<{ id: string; slot: string | null }>(
    'SELECT id, slot FROM import_runs WHERE account_id = ? ORDER BY created_at DESC, id DESC',
    [accountId],
  );
  for (const { id, slot } of rows.slice(kept)) if (slot === null) await forget(tx, id);
}

function busy(): DomainError {
  const message = 'Another import into this account runs now. Start this one when it has ended.';
  return new DomainError('TooManyRequests', message, { retryAfter: 60 });
}

function unknownRun(): DomainError {
  return new DomainError('NotFound', `There is no import with this ID. The latest ${kept} are kept.`);
}

function runOf({ settings, progress, ...row }: ImportRunRow): ImportRun {
  return {
    ...row,
    settings: JSON.parse(settings) as ImportRunSettings,
    progress: { ...emptyProgress(), ...(JSON.parse(progress) as Partial<ImportRunProgress>) },
  };
}

/** The progress of a run that has done nothing yet. */
export function emptyProgress(): ImportRunProgress {
  const counts = Object.fromEntries(importOutcomes.map((each) => [each, { count: 0, bytes: 0 }]));
  return { known: 0, ended: 0, received: 0, counts: counts as ImportRunProgress['counts'], warnings: [] };
}

function eventOf(type: EventType, accountId: number, reference: string): NewEvent {
  return { type, accountId, subject: { kind: 'job', name: 'import', reference } };
}
