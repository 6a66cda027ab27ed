import type { Config } from '../../config/schema.ts';
import type { Database } from '../../database/database.ts';
import type { BlobStore } from '../../storage/blobs/blob-store.ts';

/**
 * The parts that functions on hosted packages need. These functions take ids and versions in any spelling, and return
 * only packages of the given account.
 */
export interface FeedContext {
  readonly database: Database;
  readonly blobs: BlobStore;
  readonly limits: Config['limits'];
  /** Milliseconds since 1970 UTC. */
  readonly now: () => number;
  /** How long a deletion can be undone; milliseconds. */
  readonly deletedFor: number;
}
