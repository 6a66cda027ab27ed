import { access, constants, mkdir, readdir, rm, stat, unlink } from 'node:fs/promises';
import type { Database, Transaction } from '../../database/database.ts';
import { digestOf, type Digest, type DigestAlgorithm } from '../../runtime/digest.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import { contentDamaged, type Content } from '../files/content.ts';
import { localDisk, storageFull, type Disk, type Writing } from '../files/disk.ts';
import type { Driver, EarlyPut } from '../drivers/driver.ts';
import { OverflowMemory } from '../files/overflow.ts';
import type { Paths } from '../files/paths.ts';
import { makeLive, ReservationLost, BlobReservations, type ReservedBlob } from './blob-reservations.ts';
import { removeBlobs } from './removal.ts';
import { maxSmallBytes, SmallBlobs } from '../drivers/small-blobs.ts';
import type { DiskReserve } from '../files/disk-reserve.ts';
import { StagedFile } from '../files/staged-file.ts';
import { storageFailure, storageUnavailable } from '../files/unavailable.ts';
import { deletionTimes, findBlobs, lockBlobs, sampleBlobs, type BlobRow, type DeletionTimes } from './states.ts';
import { Recent } from '../../runtime/recent.ts';

/** A staged file and the digest under which it becomes visible. */
export interface Arrival {
  staged: StagedFile;
  digest: Digest;
}

/** Most blobs of which one check of the storage reads a byte. */
const maxSamples = 3;
/** Most bytes in memory of all upstream content that the disk has no room for. */
const overflowBytes = 64 * 2 ** 20;
/** Attempts of a commit whose bytes the collector removes before they are live. */
const maxAttempts = 20;
/** A damaged blob is examined at most once in this time, in milliseconds, so that its readers cause no further writes. */
const examineEvery = 60_000;
const maxExamined = 1000;

/**
 * Examines a blob whose bytes look missing or wrong, takes wrong bytes out of use and logs it; with `hash` it also reads the
 * bytes. Resolves to whether the blob is damaged.
 */
type Examine = (row: BlobRow, hash: boolean) => Promise<boolean>;

interface BlobStoreOptions {
  times?: DeletionTimes | undefined;
  /** Without it, damaged bytes stay where they are. */
  examine?: Examine | undefined;
  /** Where files are staged. */
  disk?: Disk | undefined;
  /** Keeps the reserve free when hosted content is staged; without it there is no reserve. */
  room?: DiskReserve | undefined;
  /** Most bytes of small blobs in memory. */
  smallBytes?: number | undefined;
}

/**
 * Content by digest: a row in `blobs`, and bytes in a driver. A commit writes a `pending` row, then puts the bytes, then
 * makes the row `live` in the transaction that refers to it. So the bytes are durable and complete before a row refers
 * to them, the collector never sees them live before the reference, and bytes of an interrupted put have a row.
 */
export class BlobStore {
  readonly #database: Database;
  readonly #driver: Driver;
  readonly #paths: Paths;
  readonly #now: () => number;
  readonly #times: DeletionTimes;
  readonly #pending: BlobReservations;
  readonly #small: SmallBlobs;
  readonly #examine: Examine | undefined;
  /** The latest examinations, also those in progress. */
  readonly #examined: Recent<Digest, Promise<boolean>>;
  readonly #disk: Disk;
  readonly #room: DiskReserve | undefined;
  readonly #overflow = new OverflowMemory(overflowBytes);
  /** Bytes that this process has stored for each account since it started, also those that were stored already. */
  readonly added = new Map<number, number>();

  /** `paths` are for staged files, which are always on the local disk. `now` is milliseconds since 1970 UTC. */
  constructor(
    database: Database,
    driver: Driver,
    paths: Paths,
    now: () => number,
    { times = deletionTimes, examine, disk = localDisk, room, smallBytes }: BlobStoreOptions = {},
  ) {
    this.#database = database;
    this.#driver = driver;
    this.#paths = paths;
    this.#now = now;
    this.#times = times;
    this.#pending = new BlobReservations(database, now, times);
    this.#small = new SmallBlobs(driver, times.watch, smallBytes);
    this.#examine = examine;
    this.#examined = new Recent(maxExamined, {
      ttl: examineEvery,
      ttlResolution: 0,
      perf: { now: times.watch },
    });
    this.#disk = disk;
    this.#room = room;
  }

  /** Creates the folders of the storage; rejects when it is not writable. */
  async prepare(): Promise<void> {
    await mkdir(this.#paths.staging, { recursive: true });
    await this.#driver.prepare();
  }

  /**
   * Reads one byte of a stored blob, if there is any, through the driver. Rejects when the storage cannot be read now. One
   * blob that is missing or on a bad part of the disk is not enough for that.
   */
  async checkReads(): Promise<void> {
    await this.#driver.check();
    const samples = await sampleBlobs(this.#database, maxSamples);
    let failure: { error: unknown } | undefined;
    for (const { digest, size } of samples) {
      try {
        const content = await this.#driver.open(digest, size, true);
        await content.read(Buffer.alloc(1), 0).finally(() => content.close());
        return;
      } catch (error) {
        if (!isDomainError(error, 'BlobUnknown')) failure = { error };
      }
    }
    if (failure) throw failure.error;
  }

  /** Rejects when there is no staging folder that this process may write to. A read-only disk is left to `checkWrites`. */
  async checkStaging(): Promise<void> {
    const folder = await stat(this.#paths.staging);
    if (!folder.isDirectory()) throw new Error(`${this.#paths.staging} is not a folder`);
    await access(this.#paths.staging, constants.W_OK | constants.X_OK).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EROFS') throw error;
    });
  }

  /** Writes, syncs and removes a small file. Rejects when the storage cannot be written now. */
  async checkWrites(): Promise<void> {
    const staged = await StagedFile.create(this.#paths, [], this.#disk);
    try {
      await staged.write(Buffer.alloc(1));
      await staged.sync();
    } finally {
      await staged.discard();
    }
    await this.#driver.checkWrites();
  }

  /**
   * Creates a staged file for upstream content, hashed with `algorithms` as it fills. The caller observes the reserve. With
   * `mayOverflow`, the end of the file stays in memory if the disk becomes full, or all of it if the disk takes no file.
   */
  async stage(algorithms: readonly DigestAlgorithm[] = ['sha256'], mayOverflow = false): Promise<StagedFile> {
    const memory = mayOverflow ? this.#overflow : undefined;
    try {
      return await StagedFile.create(this.#paths, algorithms, this.#disk, memory);
    } catch (error) {
      if (!isDomainError(error, 'StorageUnavailable') && !storageFailure(error) && !storageFull(error)) throw error;
      return StagedFile.createInMemory(algorithms, memory);
    }
  }

  /**
   * As `stage`, for hosted content of `announced` bytes, 0 if that is unknown. Throws `StorageFull` if the reserve of the
   * disk would not stay free, and so do writes to the file.
   */
  async stageHosted(announced: number, algorithms?: readonly DigestAlgorithm[]): Promise<StagedFile> {
    await this.admit(announced);
    return StagedFile.create(this.#paths, algorithms, this.#hosted);
  }

  /** Begins to send a body to the storage whose digest is known before it arrives. See `Driver.putEarly`. */
  putEarly(digest: Digest, staged: StagedFile, size: number): EarlyPut | undefined {
    return this.#driver.putEarly?.(digest, staged, size);
  }

  /** Opens the staged file of an earlier upload session. See `StagedFile.reopen` and `stageHosted`. */
  reopen(id: string, size: number, detach = false): Promise<StagedFile> {
    return StagedFile.reopen(this.#paths, id, size, detach, this.#hosted);
  }

  /** Throws `StorageFull` unless the reserve of the disk stays free if `bytes` of hosted content are stored. */
  async admit(bytes: number): Promise<void> {
    await this.#room?.admit(bytes);
  }

  /** Removes a staged file that will not be committed, if it exists. */
  async discardStaged(id: string): Promise<void> {
    await rm(this.#paths.staged(id), { force: true });
  }

  /** Stages small hosted content from memory under its own digest. Throws as `stageHosted`. */
  async stageBytes(bytes: Buffer, algorithm: DigestAlgorithm = 'sha256'): Promise<Arrival> {
    const staged = await StagedFile.create(this.#paths, [], this.#hosted);
    try {
      // The write observes the reserve.
      await staged.write(bytes);
    } catch (error) {
      await staged.discard();
      throw error;
    }
    return { staged, digest: digestOf(bytes, algorithm) };
  }

  /**
   * Makes `arrivals` visible together with the rows that `refer` writes: all or nothing. The caller has verified the
   * digests. `refer` may run more than once. The staged files are removed in any case. Throws `StorageUnavailable` if one of
   * them is not wholly on the disk. `owner` is the id of the account that hosts them.
   */
  async commit<T>(arrivals: readonly Arrival[], refer: (tx: Transaction) => Promise<T>, owner?: number): Promise<T> {
    try {
      if (arrivals.some(({ staged }) => staged.isOffDisk || staged.isInMemory)) {
        throw storageUnavailable('The disk of this server takes no files now.');
      }
      const byDigest = new Map(arrivals.map(({ digest, staged }) => [digest, staged]));
      for (let attempt = 1; ; attempt += 1) {
        try {
          const result = await this.#attempt(byDigest, refer, attempt === 1);
          const bytes = arrivals.reduce((sum, { staged }) => sum + staged.size, 0);
          if (owner !== undefined) this.added.set(owner, (this.added.get(owner) ?? 0) + bytes);
          return result;
        } catch (error) {
          if (!(error instanceof ReservationLost) || attempt >= maxAttempts) throw error;
        }
      }
    } finally {
      await Promise.all(arrivals.map(({ staged }) => staged.discard()));
    }
  }

  /**
   * Opens a stored blob of known `size`. The caller has checked that its principal may read it. `BlobUnknown` if it is not
   * stored; `StorageUnavailable` if the whole storage is gone; `ContentDamaged` if its bytes are missing or have another size, or, for a small blob, another digest. A small blob
   * can come from memory for some seconds after its bytes were damaged, but not with `checked`.
   */
  async open(digest: Digest, size: number, checked = false): Promise<Content> {
    for (let isLast = false; ; isLast = true) {
      try {
        const content = await this.#small.open(digest, size, checked);
        content.location = this.#driver.locationOf?.(digest);
        return content;
      } catch (error) {
        if (!isDomainError(error, 'BlobUnknown') && !isDomainError(error, 'ContentDamaged')) throw error;
        const [row] = await findBlobs(this.#database, [digest]);
        // A collector has removed it.
        if (row?.state !== 'live') throw isDomainError(error, 'BlobUnknown') ? error : blobGone(digest, error);
        await this.#driver.check().catch(unreadable);
        if ((await this.#isDamaged(row)) || isLast) throw contentDamaged(digest, error);
        // A push has replaced the bytes meanwhile.
      }
    }
  }

  /** Whether the blob is live and its bytes are there, with the right size. Examines a damaged one. */
  async isWhole(digest: Digest): Promise<boolean> {
    const [row] = await findBlobs(this.#database, [digest]);
    if (row?.state !== 'live') return false;
    if ((await this.#driver.stat(digest))?.size === row.size) return true;
    return !(await this.#isDamaged(row));
  }

  #isDamaged(row: BlobRow): Promise<boolean> {
    const known = this.#examined.get(row.digest);
    if (known || !this.#examine) return known ?? Promise.resolve(true);
    const examined = this.#examine(row, row.size <= maxSmallBytes);
    this.#examined.set(row.digest, examined);
    void examined.then((isDamaged) => isDamaged || this.#examined.delete(row.digest));
    return examined;
  }

  /** The bytes of a staged file; undefined if there is no such file. */
  async stagedSize(id: string): Promise<number | undefined> {
    return (await stat(this.#paths.staged(id)).catch(() => undefined))?.size;
  }

  /** The ids of all staged files. */
  async stagedIds(): Promise<string[]> {
    return readdir(this.#paths.staging);
  }

  /** The bytes of all staged files. */
  async stagedBytes(): Promise<number> {
    let bytes = 0;
    // One after another, so that many files do not keep other work from the file system.
    for (const id of await readdir(this.#paths.staging)) bytes += (await this.stagedSize(id)) ?? 0;
    return bytes;
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

  /** Writes hosted content: the reserve stays free. */
  get #hosted(): Writing {
    const disk = this.#disk;
    const room = this.#room;
    if (!room) return disk;
    return {
      copy: (from, to) => disk.copy(from, to),
      write: (handle, pieces, position) => {
        const bytes = pieces.reduce((sum, { length }) => sum + length, 0);
        return room.write(bytes, () => disk.write(handle, pieces, position));
      },
    };
  }

  async #attempt<T>(
    byDigest: ReadonlyMap<Digest, StagedFile>,
    refer: (tx: Transaction) => Promise<T>,
    isFirst: boolean,
  ): Promise<T> {
    const sizes = new Map([...byDigest].map(([digest, { size }]) => [digest, size]));
    // Later, a pending row can be one of this commit.
    const announced = await this.#pending.announce(sizes, isFirst && this.#driver.isRemote);
    try {
      const puts = announced.map((row) => this.#put(row, byDigest.get(row.digest)!));
      for (const put of await Promise.allSettled(puts)) if (put.status === 'rejected') throw put.reason;
      return await this.#database.transaction(async (tx) => {
        await makeLive(tx, announced, this.#now());
        return refer(tx);
      });
    } catch (error) {
      if (error instanceof ReservationLost) throw error;
      // Without the database, waiting again would only delay the answer. A deletion that the storage does not confirm would make
      // the next push of these bytes wait until it is given up. The collector removes the pending rows later.
      if (isDomainError(error, 'DatabaseUnavailable') || isDomainError(error, 'StorageUnavailable')) throw error;
      // If this fails, the collector removes the pending rows later.
      await this.#takeBack(announced).catch(() => undefined);
      throw error;
    }
  }

  /** Skips the put if the row is live and the driver has bytes of this size, and for a small blob of this digest. */
  async #put({ digest, state, size }: ReservedBlob, staged: StagedFile): Promise<void> {
    const stored = state === 'live' ? await this.#driver.stat(digest) : undefined;
    if (stored?.size === size) {
      if (size > maxSmallBytes || (await this.#hasDigest(digest, size))) return this.#driver.keepCopy?.(digest, staged);
      // A put would keep bytes of the same size.
      const move = await this.#driver.setAside(digest, stored.version);
      await move();
    }
    await this.#driver.put(digest, staged);
    this.#examined.delete(digest);
  }

  async #hasDigest(digest: Digest, size: number): Promise<boolean> {
    try {
      await this.#small.read(digest, size);
      return true;
    } catch (error) {
      if (isDomainError(error)) return false;
      throw error;
    }
  }

  /** Removes what a failed commit has put. Other commits that put the same bytes meanwhile notice, and put them again. */
  async #takeBack(announced: readonly ReservedBlob[]): Promise<void> {
    const found = await findBlobs(
      this.#database,
      announced.map(({ digest }) => digest),
    );
    const there = new Set(found.filter(({ state }) => state !== 'deleting').map(({ digest }) => digest));
    // If the collector removed the row before the put, the bytes have no row now.
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

/** The bytes that were read had no row any more. */
function blobGone(digest: Digest, cause: unknown): DomainError {
  return new DomainError('BlobUnknown', 'The content was removed from the storage.', { detail: { digest }, cause });
}

/** For `catch`: a disk that is not there has lost nothing. */
function unreadable(error: unknown): never {
  throw isDomainError(error, 'StorageUnavailable') ? error : storageUnavailable('The storage cannot be read.', error);
}
