import { access, constants, mkdir, readdir, rm, stat, unlink } from 'node:fs/promises';
import type { Database, Transaction } from '../database/database.ts';
import { digestOf, type Digest, type DigestAlgorithm } from '../digest.ts';
import type { Content } from './content.ts';
import type { Driver } from './driver.ts';
import type { Paths } from './paths.ts';
import { SmallBlobs } from './small-blobs.ts';
import { StagedFile } from './staged-file.ts';

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
  readonly #driver: Driver;
  readonly #paths: Paths;
  readonly #now: () => number;
  readonly #small = new SmallBlobs();

  /** `paths` are for staged files, which are always local. */
  constructor(database: Database, driver: Driver, paths: Paths, now: () => number) {
    this.#database = database;
    this.#driver = driver;
    this.#paths = paths;
    this.#now = now;
  }

  /** Makes the storage ready; rejects when it cannot be written. */
  async prepare(): Promise<void> {
    await mkdir(this.#paths.staging, { recursive: true });
    await this.#driver.prepare();
  }

  /** Rejects when nothing can be stored now. */
  async check(): Promise<void> {
    await access(this.#paths.staging, constants.W_OK);
    await this.#driver.check();
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
      return await this.#database.transaction(async (tx) => {
        for (const { staged, digest } of arrivals) await this.#record(tx, digest, staged.size);
        const result = await refer(tx);
        for (const { staged, digest } of arrivals) await this.#driver.put(digest, staged);
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
    return this.#small.open(digest, size, () => this.#driver.open(digest, size));
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

  /** The row's lock also keeps a collector from removing the file until this transaction ends. */
  async #record(tx: Transaction, digest: Digest, size: number): Promise<void> {
    await tx.upsert('blobs', ['digest'], [{ digest, size, stored_at: this.#now() }], 'stored_at = new.stored_at');
    const row = await tx.get<{ size: number }>('SELECT size FROM blobs WHERE digest = ?', [digest]);
    if (row?.size !== size) throw new Error(`${digest} is recorded with ${row?.size} bytes and came with ${size}`);
  }
}
