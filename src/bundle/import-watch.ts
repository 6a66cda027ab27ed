import type { Cache } from '../cache/cache.ts';
import type { Database } from '../database/database.ts';

/** Lets this process show what another one has imported: it drops what it has in memory. */
export class ImportWatch {
  readonly #database: Database;
  readonly #cache: Pick<Cache, 'forgetMemory'>;
  #times: number | string | null | undefined;

  constructor(database: Database, cache: Pick<Cache, 'forgetMemory'>) {
    this.#database = database;
    this.#cache = cache;
  }

  async run(): Promise<void> {
    // The sum, because the latest time stays the same after the clock was set back. MySQL gives it as a text.
    const sql = "SELECT SUM(changed_at) AS times FROM bundles WHERE direction = 'imported' AND state = 'complete'";
    const row = await this.#database.getCached<{ times: number | string | null }>(sql, [], { lag: 0 });
    const times = row?.times ?? null;
    if (this.#times !== undefined && times !== this.#times) this.#cache.forgetMemory();
    this.#times = times;
  }
}
