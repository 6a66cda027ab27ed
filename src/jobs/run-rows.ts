import { randomUUID } from 'node:crypto';
import type { Database, Row, Transaction } from '../database/database.ts';

/** A run without a heartbeat for this many milliseconds is lost. */
const lease = 60_000;
const uncached = { uncached: true };
/** Condition on a row, with two times: without a heartbeat for a lease, or with one from before the clock was set back. */
const isSilent = '(slot IS NOT NULL AND (beat_at < ? OR beat_at > ?))';

/** The columns that tables of runs have in common: of work that users start, and that ends with its process. */
export class RunRows {
  readonly #database: Database;
  readonly #table: string;
  readonly #now: () => number;

  constructor(database: Database, table: string, now: () => number) {
    this.#database = database;
    this.#table = table;
    this.#now = now;
  }

  /** The row of a new run. One with a slot runs, and no other run can have that slot. */
  made(state: string, settings: object, slot: string | null): Row & { id: string } {
    const now = this.#now();
    return {
      id: randomUUID(),
      slot,
      state,
      cancelled: 0,
      created_at: now,
      beat_at: now,
      ended_at: null,
      settings: JSON.stringify(settings),
      progress: '{}',
    };
  }

  /** Writes the progress of a run. Resolves to whether it should go on. */
  async beat(id: string, progress: object): Promise<boolean> {
    const sql = `UPDATE ${this.#table} SET progress = ?, beat_at = ? WHERE id = ? AND state = 'running' AND cancelled = 0`;
    const values = [JSON.stringify(progress), this.#now(), id];
    if ((await this.#database.transaction((tx) => tx.run(sql, values), uncached)) > 0) return true;
    // MySQL does not count a row that stays the same.
    const row = await this.#database.get<{ state: string; cancelled: number }>(
      `SELECT state, cancelled FROM ${this.#table} WHERE id = ?`,
      [id],
    );
    return row?.state === 'running' && row.cancelled === 0;
  }

  async end(id: string, state: string, progress: object): Promise<void> {
    const sql = `UPDATE ${this.#table} SET slot = NULL, state = ?, progress = ?, ended_at = ?, beat_at = ?
      WHERE id = ? AND state = 'running'`;
    const now = this.#now();
    const values = [state, JSON.stringify(progress), now, now, id];
    await this.#database.transaction((tx) => tx.run(sql, values), uncached);
  }

  /** Asks the process of a run to stop it. Resolves to false if it was asked before. */
  async stop(tx: Transaction, id: string): Promise<boolean> {
    const sql = `UPDATE ${this.#table} SET cancelled = 1 WHERE id = ? AND cancelled = 0 AND state = 'running'`;
    return (await tx.run(sql, [id])) > 0;
  }

  /** Whether a user has cancelled the run. */
  async isCancelled(id: string): Promise<boolean> {
    const row = await this.#database.get<{ cancelled: number }>(`SELECT cancelled FROM ${this.#table} WHERE id = ?`, [
      id,
    ]);
    return row?.cancelled === 1;
  }

  /** As `loseDead`, for a reader: writes nothing while all processes live. */
  async loseDeadNow(): Promise<void> {
    const now = this.#now();
    const sql = `SELECT id FROM ${this.#table} WHERE ${isSilent} LIMIT 1`;
    if (!(await this.#database.get(sql, [now - lease, now + lease]))) return;
    await this.#database.transaction((tx) => this.loseDead(tx), uncached);
  }

  /** Ends the runs whose process died. */
  async loseDead(tx: Transaction): Promise<void> {
    const now = this.#now();
    const sql = `UPDATE ${this.#table} SET slot = NULL, state = 'lost', ended_at = ? WHERE ${isSilent}`;
    await tx.run(sql, [now, now - lease, now + lease]);
  }
}
