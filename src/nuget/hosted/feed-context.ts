import type { Config } from '../../config/schema.ts';
import type { Database } from '../../database/database.ts';
import type { BlobStore } from '../../storage/blob-store.ts';

/** What functions on hosted packages work with. They take ids and versions in any spelling, of one account at a time. */
export interface FeedContext {
  readonly database: Database;
  readonly blobs: BlobStore;
  readonly limits: Config['limits'];
  /** Milliseconds since 1970 UTC. */
  readonly now: () => number;
}
