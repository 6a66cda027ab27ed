import { randomUUID } from 'node:crypto';
import { promisify } from 'node:util';
import { gunzip, gzip } from 'node:zlib';
import type { Database, Transaction } from '../database/database.ts';
import { DomainError } from '../runtime/errors.ts';
import type { Details, NewEvent } from '../events/event.ts';
import { recordEvent } from '../events/record.ts';
import type {
  PrefetchFile,
  PrefetchProgress,
  PrefetchRunItem,
  PrefetchSettings,
  PrefetchState,
} from './prefetch-run.ts';

/** Most runs at a time, of all instances. */
export const maxRuns = 2;
/** Runs that are kept, and dry runs whose files are kept. */
const kept = 50;
const inputsKept = 5;
/** A run without a heartbeat for this many milliseconds is lost. */
const lease = 60_000;

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
  readonly #database: Database;
  readonly #now: () => number;

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  /** Begins a run; resolves to its ID. Throws `TooManyRequests` while `maxRuns` run. */
  async begin(accountId: number, settings: PrefetchSettings, files: readonly PrefetchFile[]): Promise<string> {
    const id = randomUUID();
    const input = settings.dryRun ? (await compress(JSON.stringify(files))).toString('base64') : null;
    await this.#database.transaction(async (tx) => {
      await this.#loseDead(tx);
      const now = this.#now();
      for (let slot = 0; slot < maxRuns; slot += 1) {
        const row = {
          id,
          slot,
          account_id: accountId,
          state: 'running',
          cancelled: 0,
          created_at: now,
          beat_at: now,
          settings: JSON.stringify(settings),
          input,
          progress: JSON.stringify({ known: 0, ended: 0, received: 0 } satisfies PrefetchProgress),
        };
        if ((await tx.insertNew('prefetch_runs', [row])) === 0) continue;
        await forgetOld(tx);
        return recordEvent(tx, eventOf('job.started', accountId, id, { dry_run: settings.dryRun }), now);
      }
      throw new DomainError('TooManyRequests', `${maxRuns} prefetches run now. Start this one when one has ended.`, {
        retryAfter: 10,
      });
    }, ephemeral);
    return id;
  }

  /** Writes the progress of a run. Resolves to whether it should go on. */
  async beat(id: string, progress: PrefetchProgress): Promise<boolean> {
    const sql =
      "UPDATE prefetch_runs SET progress = ?, beat_at = ? WHERE id = ? AND state = 'running' AND cancelled = 0";
    const values = [JSON.stringify(progress), this.#now(), id];
    const updated = await this.#database.transaction((tx) => tx.run(sql, values), ephemeral);
    if (updated > 0) return true;
    // MySQL does not count a row that stays the same.
    const row = await this.#database.get<{ state: string; cancelled: number }>(
      'SELECT state, cancelled FROM prefetch_runs WHERE id = ?',
      [id],
    );
    return row?.state === 'running' && row.cancelled === 0;
  }

  async end(id: string, state: PrefetchState, progress: PrefetchProgress): Promise<void> {
    const sql = `UPDATE prefetch_runs SET slot = NULL, state = ?, progress = ?, ended_at = ?
      WHERE id = ? AND state = 'running'`;
    const values = [state, JSON.stringify(progress), this.#now(), id];
    await this.#database.transaction((tx) => tx.run(sql, values), ephemeral);
  }

  /** Asks the process of a run to stop it, for a user of `accountId`. Throws `NotFound`. */
  async cancel(accountId: number, id: string): Promise<void> {
    await this.get(id);
    const sql = "UPDATE prefetch_runs SET cancelled = 1 WHERE id = ? AND cancelled = 0 AND state = 'running'";
    await this.#database.transaction(async (tx) => {
      const cancelled = await tx.run(sql, [id]);
      if (cancelled > 0) await recordEvent(tx, eventOf('job.cancelled', accountId, id), this.#now());
    }, ephemeral);
  }

  /** Whether a user has cancelled the run. */
  async isCancelled(id: string): Promise<boolean> {
    const row = await this.#database.get<{ cancelled: number }>('SELECT cancelled FROM prefetch_runs WHERE id = ?', [
      id,
    ]);
    return row?.cancelled === 1;
  }

  /** The latest runs, the newest first. */
  async list(): Promise<PrefetchRunItem[]> {
    await this.#database.transaction((tx) => this.#loseDead(tx), ephemeral);
    const rows = await this.#database.select<RunRow>(
      `SELECT ${columns} FROM prefetch_runs ORDER BY created_at DESC, id DESC LIMIT ${kept}`,
    );
    return rows.map(itemOf);
  }

  /** Throws `NotFound`. */
  async get(id: string): Promise<PrefetchRunItem> {
    await this.#database.transaction((tx) => this.#loseDead(tx), ephemeral);
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

  /** Ends the runs whose process died. */
  async #loseDead(tx: Transaction): Promise<void> {
    const now = this.#now();
    const sql =
      "UPDATE prefetch_runs SET slot = NULL, state = 'lost', ended_at = ? WHERE slot IS NOT NULL AND beat_at < ?";
    await tx.run(sql, [now, now - lease]);
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
