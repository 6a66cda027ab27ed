import { promisify } from 'node:util';
import { gunzip, gzip } from 'node:zlib';
import type { Database, Transaction } from '../database/database.ts';
import { DomainError } from '../runtime/errors.ts';
import type { Details, NewEvent } from '../events/event.ts';
import { recordEvent } from '../events/record.ts';
import type { PrefetchFile, PrefetchProgress, PrefetchRunItem, PrefetchSettings } from './prefetch-run.ts';
import { RunRows } from './run-rows.ts';

/** Most runs at a time, of all instances. */
export const maxRuns = 2;
/** Runs that are kept, and dry runs whose files are kept. */
const kept = 50;
const inputsKept = 5;

const compress = promisify(gzip);
const decompress = promisify(gunzip);

type RunRow = Omit<PrefetchRunItem, 'settings' | 'progress' | 'canFetch'> & {
  settings: string;
  progress: string;
  hasInput: number;
};

const columns =
  'id, state, created_at AS createdAt, ended_at AS endedAt, settings, progress, input IS NOT NULL AS hasInput';
const ephemeral = { uncached: true };

/** The runs of all instances, in the database. */
export class PrefetchTable {
  readonly rows: RunRows;
  readonly #database: Database;
  readonly #now: () => number;

  constructor(database: Database, now: () => number) {
    this.rows = new RunRows(database, 'prefetch_runs', now);
    this.#database = database;
    this.#now = now;
  }

  /** Begins a run; resolves to its ID. Throws `TooManyRequests` while `maxRuns` run. */
  async begin(accountId: number, settings: PrefetchSettings, files: readonly PrefetchFile[]): Promise<string> {
    const input = settings.dryRun ? (await compress(JSON.stringify(files))).toString('base64') : null;
    const progress = JSON.stringify({ known: 0, ended: 0, received: 0 } satisfies PrefetchProgress);
    const row = { ...this.rows.made('running', settings, null), account_id: accountId, input, progress };
    const { id } = row;
    await this.#database.transaction(async (tx) => {
      await this.rows.loseDead(tx);
      for (let slot = 0; slot < maxRuns; slot += 1) {
        if ((await tx.insertNew('prefetch_runs', [{ ...row, slot }])) === 0) continue;
        await forgetOld(tx);
        return recordEvent(tx, eventOf('job.started', accountId, id, { dry_run: settings.dryRun }), this.#now());
      }
      throw new DomainError('TooManyRequests', `${maxRuns} prefetches run now. Start this one when one has ended.`, {
        retryAfter: 10,
      });
    }, ephemeral);
    return id;
  }

  /** Asks the process of a run to stop it, for a user of `accountId`. Throws `NotFound`. */
  async cancel(accountId: number, id: string): Promise<void> {
    await this.get(id);
    await this.#database.transaction(async (tx) => {
      if (await this.rows.stop(tx, id)) await recordEvent(tx, eventOf('job.cancelled', accountId, id), this.#now());
    }, ephemeral);
  }

  /** The latest runs, the newest first. */
  async list(): Promise<PrefetchRunItem[]> {
    await this.rows.loseDeadNow();
    const rows = await this.#database.select<RunRow>(
      `SELECT ${columns} FROM prefetch_runs ORDER BY created_at DESC, id DESC LIMIT ${kept}`,
    );
    return rows.map(itemOf);
  }

  /** Throws `NotFound`. */
  async get(id: string): Promise<PrefetchRunItem> {
    await this.rows.loseDeadNow();
    const row = await this.#database.get<RunRow>(`SELECT ${columns} FROM prefetch_runs WHERE id = ?`, [id]);
    if (row) return itemOf(row);
    throw new DomainError('NotFound', `There is no prefetch with this ID. The latest ${kept} are kept.`);
  }

  /** The files of a dry run. Throws `NotFound`. */
  async filesOf(id: string): Promise<PrefetchFile[]> {
    const row = await this.#database.get<{ input: string | null }>('SELECT input FROM prefetch_runs WHERE id = ?', [
      id,
    ]);
    if (row?.input) {
      return JSON.parse((await decompress(Buffer.from(row.input, 'base64'))).toString()) as PrefetchFile[];
    }
    throw new DomainError('NotFound', `The files of this prefetch are not kept any more. Send them again.`);
  }
}

async function forgetOld(tx: Transaction): Promise<void> {
  const rows = await tx.select<{ id: string; has_input: number; slot: number | null }>(
    'SELECT id, slot, input IS NOT NULL AS has_input FROM prefetch_runs ORDER BY created_at DESC, id DESC',
  );
  for (const { id, slot } of rows.slice(kept)) {
    if (slot === null) await tx.run('DELETE FROM prefetch_runs WHERE id = ?', [id]);
  }
  for (const { id } of rows.filter((each) => each.has_input === 1).slice(inputsKept)) {
    await tx.run('UPDATE prefetch_runs SET input = NULL WHERE id = ?', [id]);
  }
}

function itemOf({ settings, progress, hasInput, ...row }: RunRow): PrefetchRunItem {
  return {
    ...row,
    settings: JSON.parse(settings) as PrefetchSettings,
    progress: JSON.parse(progress) as PrefetchProgress,
    canFetch: hasInput === 1 && row.state === 'done',
  };
}

function eventOf(type: 'job.started' | 'job.cancelled', accountId: number, id: string, details?: Details): NewEvent {
  return { type, accountId, subject: { kind: 'job', name: 'prefetch', reference: id }, details };
}
