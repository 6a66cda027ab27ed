import type { Database } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import type { Driver, ListedBlob } from '../drivers/driver.ts';
import { Pace } from './pace.ts';
import { removeBlobs } from '../blobs/removal.ts';
import { deletionTimes, findBlobs, newGeneration, type BlobRow } from '../blobs/states.ts';

interface FilesFound {
  files: number;
  bytes: number;
  /** Files without a row that were stored too recently. */
  recent: number;
}

interface FilesOptions {
  /** Only files stored before this time; milliseconds since 1970 UTC, by the clock of the storage. */
  before: number;
  signal?: AbortSignal | undefined;
  /** Called for each file that is found. */
  report?: ((file: ListedBlob) => void) | undefined;
}

/** Files that are removed together. */
const batch = 50;

/**
 * Files of the storage whose digest has no row in the database. They come from outside: from a backup, from another
 * database, or from a push whose row a power failure lost. Only an operator can decide that nothing needs them, so no
 * scheduled job removes them.
 */
export class FilesWithoutRow {
  readonly #database: Database;
  readonly #driver: Driver;

  constructor(database: Database, driver: Driver) {
    this.#database = database;
    this.#driver = driver;
  }

  /** Counts the files. */
  async find({ before, signal, report }: FilesOptions): Promise<FilesFound> {
    const found: FilesFound = { files: 0, bytes: 0, recent: 0 };
    for await (const files of this.#pages(signal)) {
      const old = files.filter(({ storedAt }) => storedAt < before);
      found.recent += files.length - old.length;
      for (const file of old) {
        found.files += 1;
        found.bytes += file.size;
        report?.(file);
      }
    }
    return found;
  }

  /** Removes the files, also while pushes continue. Rejects if a deletion failed; earlier deletions stay. */
  async remove({ before, signal, report }: FilesOptions): Promise<FilesFound> {
    const removed: FilesFound = { files: 0, bytes: 0, recent: 0 };
    for await (const files of this.#pages(signal)) {
      const old = files.filter(({ storedAt }) => storedAt < before);
      removed.recent += files.length - old.length;
      for (let start = 0; start < old.length; start += batch) {
        const some = new Map(old.slice(start, start + batch).map((file) => [file.digest, file]));
        const { rows, failures } = await this.#remove([...some.values()]);
        for (const { digest, size } of rows) {
          removed.files += 1;
          removed.bytes += size;
          report?.(some.get(digest)!);
        }
        if (failures.length > 0) throw failures[0];
      }
    }
    return removed;
  }

  /**
   * Inserts rows that are `deleting`, then removes them with their bytes. So a push of the same content waits until its
   * bytes can be put again, and the collector finishes what a killed process leaves.
   */
  #remove(files: readonly ListedBlob[]): ReturnType<typeof removeBlobs> {
    return removeBlobs(this.#database, this.#driver, deletionTimes, async (tx) => {
      const generation = newGeneration();
      const rows: BlobRow[] = [];
      // Pushes and the collector lock rows in the same order.
      for (const { digest, size } of files.toSorted((a, b) => (a.digest < b.digest ? -1 : 1))) {
        const row = { digest, size, state: 'deleting', generation } as const;
        if ((await tx.insertNew('blobs', [{ ...row, stored_at: 0 }])) > 0) rows.push(row);
      }
      return rows;
    });
  }

  async *#pages(signal: AbortSignal | undefined): AsyncGenerator<ListedBlob[]> {
    const pace = new Pace(signal);
    for await (const page of this.#driver.list()) {
      await pace.step();
      if (page.length === 0) continue;
      const rows = await findBlobs(
        this.#database,
        page.map(({ digest }) => digest),
      );
      const known = new Set<Digest>(rows.map(({ digest }) => digest));
      const files = page.filter(({ digest }) => !known.has(digest));
      if (files.length > 0) yield files;
    }
  }
}
