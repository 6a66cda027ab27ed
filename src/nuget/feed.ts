import type { Config } from '../config/schema.ts';
import type { Database } from '../database/database.ts';
import type { BlobStore } from '../storage/blob-store.ts';
import type { StagedFile } from '../storage/staged-file.ts';
import { deleteVersion, publish, setListed, type Published } from './publish.ts';
import { getPackage, listPackages, type PackageDetails, type PackageSummary } from './summary.ts';

/** What the feed's modules work with. */
export interface FeedParts {
  readonly database: Database;
  readonly blobs: BlobStore;
  readonly limits: Config['limits'];
  /** Milliseconds since 1970 UTC. */
  readonly now: () => number;
}

/**
 * The hosted packages of all accounts. Ids and versions are taken in any spelling; another account's packages are not
 * there. Its answers are values, so that packages from elsewhere can be answered with in the same shapes.
 */
export class Feed {
  readonly #parts: FeedParts;

  constructor(database: Database, blobs: BlobStore, limits: Config['limits'], now: () => number) {
    this.#parts = { database, blobs, limits, now };
  }

  /** See `publish`. */
  publish(accountId: number, staged: StagedFile): Promise<Published> {
    return publish(this.#parts, accountId, staged);
  }

  /** See `setListed`. */
  setListed(accountId: number, id: string, version: string, listed: boolean): Promise<void> {
    return setListed(this.#parts, accountId, id, version, listed);
  }

  /** See `deleteVersion`. */
  deleteVersion(accountId: number, id: string, version: string): Promise<void> {
    return deleteVersion(this.#parts, accountId, id, version);
  }

  /** See `listPackages`. */
  listPackages(accountId: number, limit: number, after?: string): Promise<PackageSummary[]> {
    return listPackages(this.#parts.database, accountId, limit, after);
  }

  /** See `getPackage`. */
  getPackage(accountId: number, id: string): Promise<PackageDetails> {
    return getPackage(this.#parts.database, accountId, id);
  }
}
