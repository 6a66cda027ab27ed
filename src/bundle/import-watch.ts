import type { Cache } from '../cache/cache.ts';
import type { Database } from '../database/database.ts';

/** Lets this process show what another one has imported: it drops what it has in memory. */
export class ImportWatch {
  readonly #database: Database;
  readonly #cache: Cache;
  #latest: number | null | undefined;

  constructor(database: Database, cache: Cache) {
    this.#database = database;
    this.#cache = cache;
  }

  async run(): Promise<void> {
    const sql = "SELECT MAX(changed_at) AS latest FROM bundles WHERE direction = 'imported' AND state = 'complete'";
    const row = await this.#database.getCached<{ latest: number | null }>(sql, [], { lag: 0 });
    const latest = row?.latest ?? null;
    if (this.#latest !== undefined && latest !== this.#latest) this.#cache.forgetMemory();
    this.#latest = latest;
  }
}
