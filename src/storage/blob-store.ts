import { close, open as openFile, read as readFile } from 'node:fs';
import { mkdir, open, readdir, rename, rm, stat, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import { promisify } from 'node:util';
import type { Database, Transaction } from '../database/database.ts';
import { digestOf, type Digest, type DigestAlgorithm } from '../digest.ts';
import { DomainError } from '../errors.ts';
import type { Content } from './content.ts';
import type { Paths } from './paths.ts';
import { SmallBlobs } from './small-blobs.ts';
import { StagedFile } from './staged-file.ts';

const openDescriptor = promisify(openFile);

/** A staged file and the digest under which it becomes visible. */
export interface Arrival {
  staged: StagedFile;
  digest: Digest;
}

/**
 * Content by digest: a row in `blobs` and a file. Bytes are durable and complete before the row is; whoever refers to a
 * blob does so in the transaction that commits it, so that a collector never sees it unreferenced in between.
 */
export class BlobStore {
  readonly #database: Database;
  readonly #paths: Paths;
  readonly #now: () => number;
  readonly #small = new SmallBlobs();

  constructor(database: Database, paths: Paths, now: () => number) {
    this.#database = database;
    this.#paths = paths;
    this.#now = now;
  }

  /** Makes the folders; rejects when the data folder cannot be written. */
  async prepare(): Promise<void> {
    await mkdir(this.#paths.blobs, { recursive: true });
    await mkdir(this.#paths.staging, { recursive: true });
  }

  /** A new staged file, hashed with `algorithms` as it fills. */
  stage(algorithms?: readonly DigestAlgorithm[]): Promise<StagedFile> {
    return StagedFile.create(this.#paths, algorithms);
  }

  /** The staged file of an earlier upload session; `detach` takes it away from a writer that may still hold it. */
  reopen(id: string, size: number, detach = false): Promise<StagedFile> {
    return StagedFile.reopen(this.#paths, id, size, detach);
  }

  /** Removes a staged file that nobody is to commit, if it is there. */
  async discardStaged(id: string): Promise<void> {
    await rm(this.#paths.staged(id), { force: true });
  }

  /** Small content from memory, staged under its own digest. */
  async stageBytes(bytes: Buffer, algorithm: DigestAlgorithm = 'sha256'): Promise<Arrival> {
    const staged = await this.stage([]);
    await staged.write(bytes);
    return { staged, digest: digestOf(bytes, algorithm) };
  }

  /**
   * Makes `arrivals` visible together with what `refer` writes: all or nothing. The digests must have been verified.
   * The staged files are used up, whatever the outcome.
   */
  async commit<T>(arrivals: readonly Arrival[], refer: (tx: Transaction) => Promise<T>): Promise<T> {
    try {
      for (const { staged } of arrivals) await staged.sync();
      return await this.#database.transaction(async (tx) => {
        for (const { staged, digest } of arrivals) await this.#record(tx, digest, staged.size);
        const result = await refer(tx);
        for (const { staged, digest } of arrivals) await this.#moveIntoPlace(staged, digest);
        return result;
      });
    } finally {
      for (const { staged } of arrivals) await staged.discard();
    }
  }

  /** The size of a blob, if it is stored. */
  async stat(digest: Digest): Promise<number | undefined> {
    return (await this.#database.get<{ size: number }>('SELECT size FROM blobs WHERE digest = ?', [digest]))?.size;
  }

  /** Opens a stored blob of known `size`; the caller has checked that its principal may read it. */
  open(digest: Digest, size: number): Promise<Content> {
    return this.#small.open(digest, size, () => this.#openFile(digest, size));
  }

  /** A blob's file, for readers that need random access by path. */
  pathOf(digest: Digest): string {
    return this.#paths.blob(digest);
  }

  /** Removes staged files untouched since `before` that `keep` does not claim; resolves to their number. */
  async expireStaged(before: number, keep: (id: string) => Promise<boolean>): Promise<number> {
    let removed = 0;
    for (const id of await readdir(this.#paths.staging)) {
      const path = this.#paths.staged(id);
      const info = await stat(path).catch(() => undefined);
      if (!info || info.mtimeMs >= before || (await keep(id))) continue;
      await unlink(path).catch(() => undefined);
      removed += 1;
    }
    return removed;
  }

  async #openFile(digest: Digest, size: number): Promise<Content> {
    try {
      return await openFileContent(this.#paths.blob(digest), size);
    } catch (error) {
      // Anything else, such as too many open files, does not mean that it is gone.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      throw new DomainError('BlobUnknown', 'The content is missing from the storage.', {
        detail: { digest },
        cause: error,
      });
    }
  }

  /** The row's lock also keeps a collector from removing the file until this transaction ends. */
  async #record(tx: Transaction, digest: Digest, size: number): Promise<void> {
    await tx.upsert('blobs', ['digest'], [{ digest, size, stored_at: this.#now() }], 'stored_at = new.stored_at');
    const row = await tx.get<{ size: number }>('SELECT size FROM blobs WHERE digest = ?', [digest]);
    if (row?.size !== size) throw new Error(`${digest} is recorded with ${row?.size} bytes and came with ${size}`);
  }

  async #moveIntoPlace(staged: StagedFile, digest: Digest): Promise<void> {
    const path = this.#paths.blob(digest);
    const there = await stat(path).catch(() => undefined);
    if (there?.size === staged.size) return;
    const folder = dirname(path);
    const made = await mkdir(folder, { recursive: true });
    await rename(staged.path, path);
    await syncFolder(folder);
    if (made) await syncFolder(dirname(folder));
  }
}

async function syncFolder(path: string): Promise<void> {
  const handle = await open(path, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** The bytes of a file of known `size`; they stay readable when the file is moved or removed meanwhile. */
export async function openFileContent(path: string, size: number): Promise<Content> {
  const descriptor = await openDescriptor(path, 'r');
  let reading = 0;
  let closing = false;
  const closeWhenIdle = () => {
    if (closing && reading === 0) close(descriptor, () => undefined);
  };
  return {
    size,
    source: path,
    read: (target, position) =>
      new Promise((resolve, reject) => {
        reading += 1;
        readFile(descriptor, target, 0, Math.min(target.length, size - position), position, (error, bytesRead) => {
          reading -= 1;
          closeWhenIdle();
          if (error) reject(error);
          else resolve(bytesRead);
        });
      }),
    close: () => {
      if (closing) return;
      closing = true;
      closeWhenIdle();
    },
  };
}
