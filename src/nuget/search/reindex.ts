import { forUpdate, type Database } from '../../database/database.ts';
import { parseMetadata } from '../format/metadata.ts';
import { indexPackage, indexVersion, type IndexedPackage } from '../hosted/term-index.ts';

/** Packages that one run indexes, so that pushes do not wait long for the database. */
const maxPackages = 200;

/**
 * Indexes packages again that an older release indexed by other rules. Until then, a search finds a package by the old
 * rules.
 */
export class Reindexing {
  readonly #database: Database;
  #running: Promise<void> | undefined;
  #isClosed = false;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Indexes up to `maxPackages` packages. Joins a run that has not ended. */
  run(): Promise<void> {
    this.#running ??= this.#run().finally(() => (this.#running = undefined));
    return this.#running;
  }

  /** Ends a run after its current package. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#running?.catch(() => undefined);
  }

  async #run(): Promise<void> {
    const old = await this.#database.select<{ id: number }>(
      'SELECT id FROM packages WHERE index_version < ? ORDER BY index_version, id LIMIT ?',
      [indexVersion, maxPackages],
    );
    for (const { id } of old) {
      if (this.#isClosed) return;
      await this.#index(id);
    }
  }

  /** If a power failure undoes it, a later run repeats it. */
  async #index(id: number): Promise<void> {
    const columns = 'id, account_id, standing, flags, terms, index_version, latest_pre2';
    await this.#database.transaction(
      async (tx) => {
        const row = await tx.get<IndexedPackage & { latest_pre2: number | null }>(
          `SELECT ${columns} FROM packages WHERE id = ?${forUpdate(tx)}`,
          [id],
        );
        if (!row || row.index_version >= indexVersion) return;
        const newest = await tx.get<{ metadata: string }>('SELECT metadata FROM package_versions WHERE id = ?', [
          row.latest_pre2,
        ]);
        await indexPackage(tx, row, row.flags, newest && parseMetadata(newest.metadata));
      },
      { fleeting: true },
    );
  }
}
