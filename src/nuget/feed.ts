import type { Config } from '../config/schema.ts';
import type { Database } from '../database/database.ts';
import type { BlobStore } from '../storage/blob-store.ts';

/** The hosted packages of all accounts. */
export class Feed {
  readonly #database: Database;
  readonly #blobs: BlobStore;
  readonly #limits: Config['limits'];
  readonly #now: () => number;

  constructor(database: Database, blobs: BlobStore, limits: Config['limits'], now: () => number) {
    this.#database = database;
    this.#blobs = blobs;
    this.#limits = limits;
    this.#now = now;
  }
}
