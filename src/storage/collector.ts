import { placeholders, type Database } from '../database/database.ts';
import type { Digest } from '../digest.ts';
import type { Driver, ListedBlob } from './driver.ts';
import { Pace } from './pace.ts';
import { isReferenced, lockBlobs, pageEnd, type BlobRow } from './references.ts';

export interface CollectOptions {
  /** Only what came before this time goes; milliseconds since 1970 UTC. */
  before: number;
  /** Counts, and removes nothing. */
  dryRun?: boolean | undefined;
  signal?: AbortSignal | undefined;
}

export interface Collected {
  /** Blobs that nothing referred to, and their size. */
  blobs: number;
  bytes: number;
  /** Files that no row knew. */
  files: number;
}

/** Rows looked at in one statement, and removed in one transaction. */
const page = 500;
const batch = 50;
/** Marks rows that exist only inside a transaction. */
const passing = -1;

/**
 * Removes bytes that nothing refers to, while pushes go on. A row goes first, in a transaction that holds its lock and
 * then finds no reference; a commit that wants the blob waits for that lock, and every reference is written under it. The
 * file goes in a second transaction, which holds the same lock by a row of its own. So a row that can be seen has its
 * file at each instant, whenever a process is killed.
 */
export class Collector {
  readonly #database: Database;
  readonly #driver: Driver;

  constructor(database: Database, driver: Driver) {
    this.#database = database;
    this.#driver = driver;
  }

  /** Goes through all blobs, then through all files. Rejects when `signal` ends it; what is done is done. */
  async collect(options: CollectOptions): Promise<Collected> {
    const collected: Collected = { blobs: 0, bytes: 0, files: 0 };
    await this.#collectBlobs(options, collected);
    await this.#collectFiles(options, collected);
    return collected;
  }

  async #collectBlobs({ before, dryRun, signal }: CollectOptions, collected: Collected): Promise<void> {
    const pace = new Pace(signal);
    for (let after: string | undefined = ''; after !== undefined;) {
      const last: string | undefined = await pageEnd(this.#database, after, page);
      const free = await this.#database.select<BlobRow>(
        `SELECT digest, size FROM blobs WHERE digest > ? ${last === undefined ? '' : 'AND digest <= ?'}
         AND stored_at < ? AND NOT ${isReferenced} ORDER BY digest`,
        [after, ...(last === undefined ? [] : [last]), before],
      );
      await pace.step();
      for (let start = 0; start < free.length; start += batch) {
        const some = free.slice(start, start + batch);
        const removed = dryRun ? some : await this.#remove(some, before);
        collected.blobs += removed.length;
        for (const { size } of removed) collected.bytes += size;
        await pace.step();
      }
      after = last;
    }
  }

  async #collectFiles({ before, dryRun, signal }: CollectOptions, collected: Collected): Promise<void> {
    const pace = new Pace(signal);
    for await (const listed of inPages(this.#driver.list())) {
      const old = listed.filter(({ storedAt }) => storedAt < before).map(({ digest }) => digest);
      const unknown = old.length > 0 ? await this.#unknown(old) : [];
      await pace.step();
      for (const digest of unknown) {
        collected.files += dryRun ? 1 : await this.#removeFiles([digest]);
        await pace.step();
      }
    }
  }

  async #unknown(digests: readonly Digest[]): Promise<Digest[]> {
    const rows = await this.#database.select<{ digest: Digest }>(
      `SELECT digest FROM blobs WHERE digest IN (${placeholders(digests)})`,
      digests,
    );
    const known = new Set(rows.map(({ digest }) => digest));
    return digests.filter((digest) => !known.has(digest));
  }

  /** Those of `found` that went. */
  async #remove(found: readonly BlobRow[], before: number): Promise<BlobRow[]> {
    const removed = await this.#database.transaction(async (tx) => {
      const locked = await lockBlobs(tx, digestsOf(found), before);
      if (locked.length === 0) return [];
      // Asked anew, since the statement that waited for the locks saw what was there before it waited.
      const free = await tx.select<BlobRow>(
        `SELECT digest, size FROM blobs WHERE digest IN (${placeholders(locked)}) AND NOT ${isReferenced}`,
        digestsOf(locked),
      );
      if (free.length > 0) {
        await tx.run(`DELETE FROM blobs WHERE digest IN (${placeholders(free)})`, digestsOf(free));
      }
      return free;
    });
    if (removed.length > 0) await this.#removeFiles(digestsOf(removed));
    return removed;
  }

  /** Removes the files of those that have no row; resolves to how many. */
  async #removeFiles(digests: readonly Digest[]): Promise<number> {
    const keys = placeholders(digests);
    return this.#database.transaction(async (tx) => {
      const rows = digests.map((digest) => ({ digest, size: 0, stored_at: passing }));
      if ((await tx.insertNew('blobs', rows)) === 0) return 0;
      const ours = await tx.select<{ digest: Digest }>(
        `SELECT digest FROM blobs WHERE digest IN (${keys}) AND stored_at = ?`,
        [...digests, passing],
      );
      await tx.run(`DELETE FROM blobs WHERE digest IN (${keys}) AND stored_at = ?`, [...digests, passing]);
      // Last: nothing after this can make the transaction be tried again.
      for (const { digest } of ours) await this.#driver.delete(digest);
      return ours.length;
    });
  }
}

/** Folders may hold few files or many. */
async function* inPages(folders: AsyncIterable<ListedBlob[]>): AsyncGenerator<ListedBlob[]> {
  let gathered: ListedBlob[] = [];
  for await (const listed of folders) {
    gathered.push(...listed);
    for (; gathered.length >= page; gathered = gathered.slice(page)) yield gathered.slice(0, page);
  }
  if (gathered.length > 0) yield gathered;
}

function digestsOf(rows: readonly BlobRow[]): Digest[] {
  return rows.map(({ digest }) => digest);
}
