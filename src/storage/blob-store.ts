import { access, constants, mkdir, readdir, rm, stat, unlink } from 'node:fs/promises';
import type { Database, Transaction } from '../database/database.ts';
import { digestOf, type Digest, type DigestAlgorithm } from '../digest.ts';
import type { Content } from './content.ts';
import type { Driver } from './driver.ts';
import type { Paths } from './paths.ts';
import { makeLive, Overtaken, Pending, type Announced } from './pending.ts';
import { removeBlobs } from './removal.ts';
import { SmallBlobs } from './small-blobs.ts';
import { StagedFile } from './staged-file.ts';
import { deletionTimes, findBlobs, lockBlobs, type DeletionTimes } from './states.ts';

/** A staged file and the digest under which it becomes visible. */
export interface Arrival {
  staged: StagedFile;
  digest: Digest;
}

/** How often bytes are put again that a collector removes meanwhile. */
const mostAttempts = 20;

/**
 * Content by digest: a row in `blobs`, and bytes that a driver keeps. A commit writes a `pending` row, then puts the
 * bytes, then makes the row `live` in the transaction that refers to it. So bytes are durable and complete before
 * anything refers to them, a collector never sees them unreferenced in between, and a put that was cut off is known.
 */
export class BlobStore {
  readonly #database: Database;
  readonly #driver: Driver;
  readonly #paths: Paths;
  readonly #now: () => number;
  readonly #times: DeletionTimes;
  readonly #pending: Pending;
  readonly #small = new SmallBlobs();

  /** `paths` are for staged files, which are always local. */
  constructor(database: Database, driver: Driver, paths: Paths, now: () => number, times = deletionTimes) {
    this.#database = database;
    this.#driver = driver;
    this.#paths = paths;
    this.#now = now;
    this.#times = times;
    this.#pending = new Pending(database, now, times);
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
   * `refer` may run more than once. The staged files are used up, whatever the outcome.
   */
  async commit<T>(arrivals: readonly Arrival[], refer: (tx: Transaction) => Promise<T>): Promise<T> {
    try {
      const byDigest = new Map(arrivals.map(({ digest, staged }) => [digest, staged]));
      for (let attempt = 1; ; attempt += 1) {
        try {
          return await this.#attempt(byDigest, refer);
        } catch (error) {
          if (!(error instanceof Overtaken) || attempt >= mostAttempts) throw error;
        }
      }
    } finally {
      for (const { staged } of arrivals) await staged.discard();
    }
  }

  /** The size of a blob, if it is stored. */
  async stat(digest: Digest): Promise<number | undefined> {
    return (
      await this.#database.get<{ size: number }>("SELECT size FROM blobs WHERE digest = ? AND state = 'live'", [digest])
    )?.size;
  }

  /** Opens a stored blob of known `size`; the caller has checked that its principal may read it. */
  open(digest: Digest, size: number): Promise<Content> {
    return this.#small.open(digest, size, () => this.#driver.open(digest, size));
  }

  /** The bytes of a staged file; undefined if there is no such file. */
  async stagedSize(id: string): Promise<number | undefined> {
    return (await stat(this.#paths.staged(id)).catch(() => undefined))?.size;
  }

  /** Removes staged files that have not changed since `before`, except those to `keep`; resolves to their number and size. */
  async expireStaged(
    before: number,
    keep: (id: string) => Promise<boolean>,
  ): Promise<{ files: number; bytes: number }> {
    const removed = { files: 0, bytes: 0 };
    for (const id of await readdir(this.#paths.staging)) {
      const path = this.#paths.staged(id);
      const info = await stat(path).catch(() => undefined);
      if (!info || info.mtimeMs >= before || (await keep(id))) continue;
      await unlink(path).catch(() => undefined);
      removed.files += 1;
      removed.bytes += info.size;
    }
    return removed;
  }

  async #attempt<T>(byDigest: ReadonlyMap<Digest, StagedFile>, refer: (tx: Transaction) => Promise<T>): Promise<T> {
    const sizes = new Map([...byDigest].map(([digest, { size }]) => [digest, size]));
    const announced = await this.#pending.announce(sizes);
    try {
      const puts = announced.map((row) => this.#put(row, byDigest.get(row.digest)!));
      for (const put of await Promise.allSettled(puts)) if (put.status === 'rejected') throw put.reason;
      return await this.#database.transaction(async (tx) => {
        await makeLive(tx, announced, this.#now());
        return refer(tx);
      });
    } catch (error) {
      if (error instanceof Overtaken) throw error;
      // What cannot be taken back now, the collector finds.
      await this.#takeBack(announced).catch(() => undefined);
      throw error;
    }
  }

  /** The bytes of a live row are there, unless the disk has lost them. */
  async #put({ digest, state, size }: Announced, staged: StagedFile): Promise<void> {
    if (state === 'live' && (await this.#driver.stat(digest))?.size === size) return;
    await this.#driver.put(digest, staged);
  }

  /** A commit that failed leaves nothing; others that put the same bytes meanwhile notice, and put them again. */
  async #takeBack(announced: readonly Announced[]): Promise<void> {
    const found = await findBlobs(
      this.#database,
      announced.map(({ digest }) => digest),
    );
    const there = new Set(found.filter(({ state }) => state !== 'deleting').map(({ digest }) => digest));
    // Where a collector was quicker than the put, bytes have come without a row.
    const lost = announced
      .filter(({ digest }) => !there.has(digest))
      .map(({ digest, size }) => [digest, size] as const);
    const rows = [...announced, ...(await this.#pending.announce(new Map(lost)))].filter(({ isNew }) => isNew);
    if (rows.length === 0) return;
    const ours = new Set(rows.map(({ generation }) => generation));
    const digests = [...new Set(rows.map(({ digest }) => digest))];
    await removeBlobs(this.#database, this.#driver, this.#times, async (tx) => {
      const locked = await lockBlobs(tx, digests);
      return locked.filter(({ state, generation }) => state === 'pending' && ours.has(generation));
    });
  }
}
