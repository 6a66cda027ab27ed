import { forUpdate, type Database, type Row, type Transaction } from '../../database/database.ts';
import type { EventType, NewEvent } from '../../events/event.ts';
import { recordEvent } from '../../events/record.ts';
import { RunRows } from '../../jobs/run-rows.ts';
import { DomainError } from '../../runtime/errors.ts';
import type { BundleRun, BundleRunProgress, BundleRunState, ImportSettings, MakeSettings } from './run.ts';

type Direction = BundleRun['direction'];

/** Most imports whose segments may be sent at a time. */
const maxImports = 3;
/** Runs that are kept of each direction. */
const kept = 50;
/** The files of a run are kept for this many milliseconds after it was used last. */
const filesKept = 86_400_000;
/** Most bundles that were made whose files are kept. */
const maxMadeKept = 3;

interface BundleRunRow {
  id: string;
  direction: Direction;
  state: BundleRunState;
  createdAt: number;
  endedAt: number | null;
  settings: string;
  progress: string;
}

const columns = 'id, direction, state, created_at AS createdAt, ended_at AS endedAt, settings, progress';
const uncached = { uncached: true };

/** The makings and imports of all instances, in the database. */
export class BundleRunTable {
  readonly rows: RunRows;
  readonly #database: Database;
  readonly #now: () => number;

  constructor(database: Database, now: () => number) {
    this.rows = new RunRows(database, 'bundle_runs', now);
    this.#database = database;
    this.#now = now;
  }

  /** Begins to make a bundle; resolves to the ID of the run. Throws `TooManyRequests` while another is made. */
  async make(settings: MakeSettings): Promise<string> {
    const row = { ...this.rows.made('running', settings, 'made'), direction: 'made' };
    await this.#database.transaction(async (tx) => {
      await this.rows.loseDead(tx);
      if ((await tx.insertNew('bundle_runs', [row])) === 0) throw busy('made');
      await forgetOld(tx, 'made');
      await recordEvent(tx, eventOf('job.started', 'bundle', row.id), this.#now());
    }, uncached);
    return row.id;
  }

  /** Begins an import, whose segments are sent next; resolves to its ID. Throws `TooManyRequests` if too many are open. */
  async beginImport(): Promise<string> {
    const settings: ImportSettings = { unsigned: false, older: false };
    const row = { ...this.rows.made('receiving', settings, null), direction: 'imported' };
    await this.#database.transaction(async (tx) => {
      const open = await tx.select('SELECT id FROM bundle_runs WHERE direction = ? AND state = ? AND beat_at > ?', [
        'imported',
        'receiving',
        this.#now() - filesKept,
      ]);
      if (open.length >= maxImports)
        throw new DomainError(
          'TooManyRequests',
          `${maxImports} imports are waiting for segments. Run one of them, or give it up.`,
          { retryAfter: 60 },
        );
      await tx.insertNew('bundle_runs', [row]);
      await forgetOld(tx, 'imported');
    }, uncached);
    return row.id;
  }

  /** Begins to run an import. Throws `NotFound`, `UploadBusy`, `Invalid` if it is done, and `TooManyRequests` while another runs. */
  async startImport(id: string, settings: ImportSettings): Promise<void> {
    await this.#database.transaction(async (tx) => {
      await this.rows.loseDead(tx);
      const sql = `SELECT * FROM bundle_runs WHERE id = ?${forUpdate(tx)}`;
      const [row] = await tx.select<Row & { state: BundleRunState }>(sql, [id]);
      if (!row) throw unknownRun();
      refuseEnded(row.state);
      const now = this.#now();
      const started = {
        ...row,
        slot: 'imported',
        state: 'running',
        cancelled: 0,
        beat_at: now,
        ended_at: null,
        settings: JSON.stringify(settings),
        progress: '{}',
      };
      // Written anew, because the slot of another run refuses new rows only.
      await tx.run('DELETE FROM bundle_runs WHERE id = ?', [id]);
      if ((await tx.insertNew('bundle_runs', [started])) === 0) throw busy('imported');
      await recordEvent(tx, eventOf('job.started', 'bundle-import', id), now);
    }, uncached);
  }

  /** Notes that an import is in use. Throws `NotFound`, `UploadBusy`, and `Invalid` if it is done. */
  async receive(id: string): Promise<void> {
    const { state } = await this.get('imported', id);
    refuseEnded(state);
    await this.#database.transaction(
      (tx) => tx.run('UPDATE bundle_runs SET beat_at = ? WHERE id = ?', [this.#now(), id]),
      uncached,
    );
  }

  /** Asks the process of a run to stop it; one that does not run is given up. Resolves to whether it ran. Throws `NotFound`. */
  async cancel(direction: Direction, id: string): Promise<boolean> {
    const { state } = await this.get(direction, id);
    const isRunning = state === 'running';
    const name = direction === 'made' ? 'bundle' : 'bundle-import';
    await this.#database.transaction(async (tx) => {
      const isChanged = isRunning
        ? await this.rows.stop(tx, id)
        : (await tx.run('DELETE FROM bundle_runs WHERE id = ?', [id])) > 0;
      if (isChanged) await recordEvent(tx, eventOf('job.cancelled', name, id), this.#now());
    }, uncached);
    return isRunning;
  }

  /** The latest runs of a direction, the newest first. */
  async list<D extends Direction>(direction: D): Promise<Extract<BundleRun, { direction: D }>[]> {
    await this.rows.loseDeadNow();
    const rows = await this.#database.select<BundleRunRow>(
      `SELECT ${columns} FROM bundle_runs WHERE direction = ? ORDER BY created_at DESC, id DESC LIMIT ${kept}`,
      [direction],
    );
    return rows.map(runOf) as Extract<BundleRun, { direction: D }>[];
  }

  /** Throws `NotFound`. */
  async get<D extends Direction>(direction: D, id: string): Promise<Extract<BundleRun, { direction: D }>> {
    await this.rows.loseDeadNow();
    const sql = `SELECT ${columns} FROM bundle_runs WHERE id = ? AND direction = ?`;
    const row = await this.#database.get<BundleRunRow>(sql, [id, direction]);
    if (row) return runOf(row) as Extract<BundleRun, { direction: D }>;
    throw unknownRun();
  }

  /** Ends imports that were not used for a day. Resolves to the IDs of the runs whose files are kept. */
  async withFiles(): Promise<Set<string>> {
    const now = this.#now();
    const expire = `UPDATE bundle_runs SET state = 'expired', ended_at = ?
      WHERE direction = 'imported' AND state NOT IN ('done', 'running', 'expired') AND beat_at <= ?`;
    await this.#database.transaction((tx) => tx.run(expire, [now, now - filesKept]), uncached);
    const rows = await this.#database.select<{ id: string; direction: Direction; state: BundleRunState }>(
      `SELECT id, direction, state FROM bundle_runs
       WHERE (direction = 'made' AND state IN ('running', 'done') AND (beat_at > ? OR state = 'running'))
          OR (direction = 'imported' AND state NOT IN ('done', 'expired'))
       ORDER BY created_at DESC, id DESC`,
      [now - filesKept],
    );
    const done = rows.filter(({ direction, state }) => direction === 'made' && state === 'done');
    const dropped = new Set(done.slice(maxMadeKept).map(({ id }) => id));
    return new Set(rows.map(({ id }) => id).filter((id) => !dropped.has(id)));
  }
}

async function forgetOld(tx: Transaction, direction: Direction): Promise<void> {
  const rows = await tx.select<{ id: string; slot: string | null }>(
    'SELECT id, slot FROM bundle_runs WHERE direction = ? ORDER BY created_at DESC, id DESC',
    [direction],
  );
  for (const { id, slot } of rows.slice(kept))
    if (slot === null) await tx.run('DELETE FROM bundle_runs WHERE id = ?', [id]);
}

function refuseEnded(state: BundleRunState): void {
  if (state === 'running') throw new DomainError('UploadBusy', 'This import runs now. Wait until it has ended.');
  if (state === 'done') throw new DomainError('Invalid', 'This import is done. Begin a new one for another bundle.');
  if (state === 'expired')
    throw new DomainError(
      'Invalid',
      'This import was not used for a day, so its segments were removed. Begin a new one.',
    );
}

function busy(direction: Direction): DomainError {
  const what = direction === 'made' ? 'Another bundle is made now' : 'Another import runs now';
  return new DomainError('TooManyRequests', `${what}. Start this one when it has ended.`, { retryAfter: 10 });
}

function unknownRun(): DomainError {
  return new DomainError('NotFound', `There is no bundle or import with this ID. The latest ${kept} are kept.`);
}

function runOf({ settings, progress, ...row }: BundleRunRow): BundleRun {
  const parsed = { settings: JSON.parse(settings) as object, progress: JSON.parse(progress) as BundleRunProgress };
  return { ...row, ...parsed } as BundleRun;
}

function eventOf(type: EventType, name: string, reference: string): NewEvent {
  return { type, accountId: 0, subject: { kind: 'job', name, reference } };
}
