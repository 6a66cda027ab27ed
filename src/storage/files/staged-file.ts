import { randomUUID } from 'node:crypto';
import { open, rename, rm, stat, unlink, type FileHandle } from 'node:fs/promises';
import { devNull } from 'node:os';
import type { Readable } from 'node:stream';
import { digestSoFar, startHash, type Digest, type DigestAlgorithm } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { append, updateHashes, type AppendOptions, type AppendTarget } from './append.ts';
import { contentOf, wholeBytes, type Content } from './content.ts';
import { localDisk, storageFull, writeAll, type Writing } from './disk.ts';
import { openFileContent } from './file-content.ts';
import { Overflow, type OverflowMemory } from './overflow.ts';
import type { Paths } from './paths.ts';
import { storageFailure, storageUnavailable } from './unavailable.ts';

/** Bytes of one read when a digest is computed from the file. */
const readSize = 1024 * 1024;

/**
 * A file for bytes that arrive: invisible until a commit, hashed once as they arrive, written in large pieces. If the
 * source breaks off, the received bytes stay, so that an upload session can continue.
 */
export class StagedFile {
  readonly id: string;
  readonly path: string;
  readonly #file: AppendTarget;
  readonly #overflow: Overflow | undefined;
  #synced: Promise<void> = Promise.resolve();
  #isLost = false;
  #closed = false;
  #isDiscarded = false;

  private constructor(
    id: string,
    path: string,
    handle: FileHandle,
    size: number,
    algorithms: readonly DigestAlgorithm[],
    disk: Writing,
  ) {
    this.id = id;
    this.path = path;
    const hashes = new Map(algorithms.map((algorithm) => [algorithm, startHash(algorithm)]));
    this.#file = { disk, handle, hashes, size };
    this.#overflow = disk instanceof Overflow ? disk : undefined;
  }

  /**
   * Creates an empty file. Digests with `algorithms` are computed while it fills, others need a second read. With `memory`,
   * the end of the file stays there if the disk becomes full; then the file must not be committed.
   */
  static async create(
    paths: Paths,
    algorithms: readonly DigestAlgorithm[] = ['sha256'],
    disk: Writing = localDisk,
    memory?: OverflowMemory,
  ): Promise<StagedFile> {
    const id = randomUUID();
    const path = paths.staged(id);
    const handle = await open(path, 'wx+', 0o600).catch((error: NodeJS.ErrnoException) => {
      throw error.code === 'ENOENT' ? storageUnavailable('The staging folder is missing.', error) : error;
    });
    return new StagedFile(id, path, handle, 0, algorithms, memory ? new Overflow(disk, memory) : disk);
  }

  /**
   * For upstream content while the disk takes no file: what is appended is kept in `memory`, or, without it, may only be
   * hashed. It must not be committed.
   */
  static async createInMemory(algorithms: readonly DigestAlgorithm[], memory?: OverflowMemory): Promise<StagedFile> {
    const overflow = memory && new Overflow(localDisk, memory);
    overflow?.begin();
    return new StagedFile(randomUUID(), devNull, await open(devNull, 'r+'), 0, algorithms, overflow ?? localDisk);
  }

  /**
   * Opens the file of an earlier session, truncated to the recorded `size`; `UploadUnknown` when it is gone or shorter.
   * `detach` first replaces it by a copy, so that another process which still has it open cannot write to it; `StorageFull`
   * when the disk has no room for the copy. A file that has another name is replaced, too: a blob may have the same bytes, if the
   * power failed before its session ended.
   */
  static async reopen(
    paths: Paths,
    id: string,
    size: number,
    detach = false,
    disk: Writing = localDisk,
  ): Promise<StagedFile> {
    const path = paths.staged(id);
    let handle: FileHandle | undefined;
    try {
      if (detach || (await stat(path)).nlink > 1) await replaceByCopy(disk, path, paths.staged(randomUUID()));
      handle = await open(path, 'r+');
      if ((await handle.stat()).size < size) throw new Error('shorter than recorded');
      await handle.truncate(size);
      return new StagedFile(id, path, handle, size, size === 0 ? ['sha256'] : [], disk);
    } catch (error) {
      await handle?.close();
      throw (
        storageFull(error) ??
        storageFailure(error) ??
        new DomainError('UploadUnknown', 'This upload no longer exists. Start a new one.', {
          cause: error,
        })
      );
    }
  }

  /** Bytes written so far. */
  get size(): number {
    return this.#file.size;
  }

  /**
   * Appends all of `source`; resolves to the number of appended bytes. Rejects with `TooLarge`, or with `Aborted` when
   * the source breaks off or sends nothing for too long. The file and the hash then have the bytes received before. When
   * the disk is full, rejects with `StorageFull`; the file and the hash then have the bytes of all complete writes.
   */
  append(source: Readable, options: AppendOptions = {}): Promise<number> {
    return append(this.#file, source, options);
  }

  /** Counts a piece into the digests without writing it, for the rest of a body that is not stored. */
  hashOn(piece: Buffer): void {
    updateHashes(this.#file.hashes, piece);
  }

  /** Appends bytes from memory: all, or none if it fails. */
  async write(bytes: Uint8Array): Promise<void> {
    const { disk, handle, hashes, size } = this.#file;
    await writeAll(disk, handle, [bytes], size);
    updateHashes(hashes, bytes);
    this.#file.size += bytes.length;
  }

  /** Whether there is no file on the disk. */
  get isOffDisk(): boolean {
    return this.path === devNull;
  }

  /** Whether a part of the file is in memory, because the disk was full. Such a file must not be committed. */
  get isInMemory(): boolean {
    return (this.#overflow?.base ?? Number.POSITIVE_INFINITY) !== Number.POSITIVE_INFINITY;
  }

  /** Keeps what is appended from now on in memory; false if there is no memory for `bytes` more. */
  continueInMemory(bytes: number): boolean {
    if (!this.#overflow || this.#overflow.room < bytes) return false;
    this.#overflow.begin();
    return true;
  }

  /** The digest of the bytes so far; undefined if that needs a read of the file. */
  runningDigest(algorithm: DigestAlgorithm): Digest | undefined {
    const running = this.#file.hashes.get(algorithm);
    return running && digestSoFar(running, algorithm);
  }

  /** The digest of the bytes so far, from the running hash or, in a reopened file, by reading the file. */
  async digest(algorithm: DigestAlgorithm = 'sha256'): Promise<Digest> {
    const running = this.#file.hashes.get(algorithm);
    if (running) return digestSoFar(running, algorithm);
    const hash = startHash(algorithm);
    const buffer = Buffer.allocUnsafe(readSize);
    for (let position = 0; position < this.#file.size;) {
      const read = await this.read(buffer.subarray(0, this.#file.size - position), position);
      if (read === 0) throw new Error(`${this.path} is shorter than its ${this.#file.size} bytes`);
      hash.update(buffer.subarray(0, read));
      position += read;
    }
    this.#file.hashes.set(algorithm, hash);
    return digestSoFar(hash, algorithm);
  }

  /** Reads written bytes into `target` from `position` on; resolves to the number of bytes read, 0 at the end. */
  async read(target: Buffer, position: number): Promise<number> {
    const base = this.#overflow?.base ?? Number.POSITIVE_INFINITY;
    if (position >= base) return this.#overflow!.read(target, position);
    return (await this.#file.handle.read(target, 0, Math.min(target.length, base - position), position)).bytesRead;
  }

  /** Opens the bytes written so far: in memory if they are few, else with a separate file descriptor. */
  async open(): Promise<Content & { readonly size: number }> {
    const { size } = this.#file;
    if (size <= wholeBytes && !this.#closed) return { ...contentOf(await this.bytes()), size };
    return this.#withOverflow(openFileContent(this.path, size));
  }

  /** Opens the file for reading also the bytes that arrive later. */
  follow(): Promise<Content> {
    return this.#withOverflow(openFileContent(this.path, undefined));
  }

  /** All bytes, in memory. The caller has limited the size of the file. */
  async bytes(): Promise<Buffer> {
    const bytes = Buffer.allocUnsafe(this.#file.size);
    for (let length = 0; length < bytes.length;) {
      const read = await this.read(bytes.subarray(length), length);
      if (read === 0) throw new Error(`${this.path} is shorter than its ${this.#file.size} bytes`);
      length += read;
    }
    return bytes;
  }

  /** Makes the bytes written so far durable. After a failure it fails always: Linux tells only once that the disk has lost something. */
  async sync(): Promise<void> {
    if (this.isOffDisk) return;
    this.#synced = this.#synced.then(() => this.#file.handle.datasync());
    try {
      await this.#synced;
    } catch (error) {
      this.#isLost = true;
      throw storageFailure(error) ?? error;
    }
  }

  /** Whether the disk may lack some of its bytes, because a sync has failed. */
  get isLost(): boolean {
    return this.#isLost;
  }

  /** Removes all bytes after the first `size`, and closes the file. */
  async cut(size: number): Promise<void> {
    if (!this.#closed) await this.#file.handle.truncate(size);
    await this.close();
  }

  /** Closes the file; it stays in the staging folder. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#file.handle.close();
  }

  /** Reads the part in memory, too. */
  async #withOverflow<C extends Content>(opening: Promise<C>): Promise<C> {
    const overflow = this.#overflow;
    if (!overflow) return opening;
    const leave = overflow.use();
    const file = await opening.catch((error: unknown) => {
      leave();
      throw error;
    });
    let isOpen = true;
    return {
      ...file,
      read: async (target, position) => {
        const { base } = overflow;
        if (position < base) return file.read(target.subarray(0, base - position), position);
        const end = file.size ?? Number.POSITIVE_INFINITY;
        return overflow.read(target.subarray(0, Math.max(0, end - position)), position);
      },
      close: () => {
        if (isOpen) leave();
        isOpen = false;
        file.close();
      },
    };
  }

  /** Closes the file and removes it. If another writer has detached its path, the copy there is left to that writer. */
  async discard(): Promise<void> {
    if (this.#isDiscarded) return;
    this.#isDiscarded = true;
    this.#overflow?.leave();
    try {
      if (await this.isAtPath()) await unlink(this.path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
    } finally {
      await this.close();
    }
  }

  /**
   * Whether its path still leads to this file; false if another writer has detached the path by `reopen`. Rejects if there is
   * nothing at the path. A closed file is taken to be there.
   */
  async isAtPath(): Promise<boolean> {
    if (this.isOffDisk) return false;
    if (this.#closed) return true;
    const [own, found] = await Promise.all([
      this.#file.handle.stat({ bigint: true }),
      stat(this.path, { bigint: true }),
    ]);
    return own.ino === found.ino && own.dev === found.dev;
  }
}

/** Replaces the file at `path` by a copy, which is made at `copy`. */
async function replaceByCopy(disk: Writing, path: string, copy: string): Promise<void> {
  try {
    await disk.copy(path, copy);
    await rename(copy, path);
  } catch (error) {
    await rm(copy, { force: true });
    throw error;
  }
}
