import { randomUUID, type Hash } from 'node:crypto';
import { constants, copyFile, open, rename, unlink, type FileHandle } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { digestSoFar, startHash, type Digest, type DigestAlgorithm } from '../digest.ts';
import { DomainError } from '../errors.ts';
import { release, whenSilent } from '../incoming.ts';
import type { Content } from './content.ts';
import { openFileContent } from './file-content.ts';
import type { Paths } from './paths.ts';

const gather = 1024 * 1024;
const highWater = 2 * gather;

export interface AppendOptions {
  /** Bytes the file may reach in all; more is `TooLarge`. */
  limit?: number | undefined;
  /** A source that is silent for so many milliseconds is destroyed; `Aborted`. */
  idle?: number | undefined;
  /** Somebody follows the file: written as it arrives instead of gathered, and told of each piece. */
  progress?: (() => void) | undefined;
  /** The source's chunks are nobody else's: each is freed as soon as it is written. */
  consume?: boolean;
  /** When it is aborted, the append ends with what was taken until then, and leaves the rest in the paused source. */
  until?: AbortSignal | undefined;
}

/**
 * Bytes on their way in: invisible until a commit, hashed once as they arrive, written in gathered pieces. What has
 * arrived stays when the source breaks off, so that an upload session can go on.
 */
export class StagedFile {
  readonly id: string;
  readonly path: string;
  readonly #handle: FileHandle;
  readonly #hashes = new Map<DigestAlgorithm, Hash>();
  #size: number;
  #closed = false;

  private constructor(
    id: string,
    path: string,
    handle: FileHandle,
    size: number,
    algorithms: readonly DigestAlgorithm[],
  ) {
    this.id = id;
    this.path = path;
    this.#handle = handle;
    this.#size = size;
    for (const algorithm of algorithms) this.#hashes.set(algorithm, startHash(algorithm));
  }

  /** A new, empty file; `algorithms` are computed while it fills, others by a second read. */
  static async create(paths: Paths, algorithms: readonly DigestAlgorithm[] = ['sha256']): Promise<StagedFile> {
    const id = randomUUID();
    const path = paths.staged(id);
    return new StagedFile(id, path, await open(path, 'wx+', 0o600), 0, algorithms);
  }

  /**
   * The file of an earlier session, cut to the `size` that was recorded; `UploadUnknown` when it is gone or shorter.
   * `detach` replaces it by a copy, out of reach of a writer that may still hold it open.
   */
  static async reopen(paths: Paths, id: string, size: number, detach = false): Promise<StagedFile> {
    const path = paths.staged(id);
    let handle: FileHandle | undefined;
    try {
      if (detach) {
        const copy = paths.staged(randomUUID());
        await copyFile(path, copy, constants.COPYFILE_FICLONE);
        await rename(copy, path);
      }
      handle = await open(path, 'r+');
      if ((await handle.stat()).size < size) throw new Error('shorter than recorded');
      await handle.truncate(size);
      return new StagedFile(id, path, handle, size, size === 0 ? ['sha256'] : []);
    } catch (error) {
      await handle?.close();
      throw new DomainError('UploadUnknown', 'This upload is not known here any more. Start a new one.', {
        cause: error,
      });
    }
  }

  /** Bytes written so far. */
  get size(): number {
    return this.#size;
  }

  /**
   * Appends all of `source`; resolves to the number of bytes appended. Rejects with `TooLarge` or `Aborted`
   * (the source broke off or fell silent), after what had arrived is in the file and in the hash.
   */
  append(source: Readable, options: AppendOptions = {}): Promise<number> {
    const start = this.#size;
    const atLeast = options.progress ? 1 : gather;
    return new Promise((resolve, reject) => {
      if (source.readableEnded) {
        resolve(0);
        return;
      }
      if (source.destroyed) {
        reject(new DomainError('Aborted', 'The connection closed before the body was complete.'));
        return;
      }
      let pending: Buffer[] = [];
      let pendingBytes = 0;
      let accepted = this.#size;
      let writing = false;
      let ended = false;
      let failure: Error | undefined;
      let stopListening: (() => void) | undefined;

      const stop = (error?: Error) => {
        if (ended) return;
        ended = true;
        failure = error;
        stopListening?.();
        source.off('data', take);
        if (error) source.resume();
        flush();
      };
      const flush = () => {
        if (writing) return;
        if (pendingBytes >= atLeast || (ended && pendingBytes > 0)) {
          const pieces = pending;
          const position = this.#size;
          const bytes = pendingBytes;
          pending = [];
          pendingBytes = 0;
          writing = true;
          this.#handle
            .writev(pieces, position)
            .then(({ bytesWritten }) => written(bytesWritten, bytes, pieces), settle);
        } else if (ended) {
          settle(failure);
        }
      };
      const written = (count: number, wanted: number, pieces: readonly Buffer[]) => {
        if (options.consume) for (const piece of pieces) release(piece);
        writing = false;
        this.#size += count;
        if (count < wanted) {
          settle(new Error(`short write to ${this.path}`));
          return;
        }
        options.progress?.();
        if (!ended && source.isPaused()) source.resume();
        flush();
      };
      const hold = () => {
        if (ended) return;
        source.pause();
        stop();
      };
      const settle = (error?: Error) => {
        ended = true;
        stopListening?.();
        options.until?.removeEventListener('abort', hold);
        source.off('data', take).off('end', finish).off('error', broken).off('close', broken);
        if (error) reject(error);
        else resolve(this.#size - start);
      };
      const take = (chunk: Buffer) => {
        if (options.limit !== undefined && accepted + chunk.length > options.limit) {
          stop(new DomainError('TooLarge', `The body is larger than the ${options.limit} bytes allowed here.`));
          return;
        }
        accepted += chunk.length;
        for (const hash of this.#hashes.values()) hash.update(chunk);
        pending.push(chunk);
        pendingBytes += chunk.length;
        if (pendingBytes >= highWater) source.pause();
        flush();
      };

      if (options.idle !== undefined) {
        stopListening = whenSilent(source, options.idle, (error) => {
          source.destroy();
          stop(error);
        });
      }
      const finish = () => stop();
      const broken = (cause?: Error) =>
        stop(new DomainError('Aborted', 'The connection closed before the body was complete.', { cause }));
      options.until?.addEventListener('abort', hold);
      source.on('data', take).once('end', finish).once('error', broken).once('close', broken);
    });
  }

  /** Counts a piece into the digests without writing it: what comes after the file's end and is not stored. */
  hashOn(piece: Buffer): void {
    for (const hash of this.#hashes.values()) hash.update(piece);
  }

  /** Appends bytes that are in memory. */
  async write(bytes: Uint8Array): Promise<void> {
    for (const hash of this.#hashes.values()) hash.update(bytes);
    await this.#handle.write(bytes, 0, bytes.length, this.#size);
    this.#size += bytes.length;
  }

  /** The digest of what is there, if it is known without reading the file. */
  runningDigest(algorithm: DigestAlgorithm): Digest | undefined {
    const running = this.#hashes.get(algorithm);
    return running && digestSoFar(running, algorithm);
  }

  /** The digest of what is there, from the running hash or, after a reopening, by reading the file. */
  async digest(algorithm: DigestAlgorithm = 'sha256'): Promise<Digest> {
    const running = this.#hashes.get(algorithm);
    if (running) return digestSoFar(running, algorithm);
    const hash = startHash(algorithm);
    const buffer = Buffer.allocUnsafe(gather);
    for (let position = 0; position < this.#size;) {
      const { bytesRead } = await this.#handle.read(buffer, 0, Math.min(gather, this.#size - position), position);
      if (bytesRead === 0) throw new Error(`${this.path} is shorter than its ${this.#size} bytes`);
      hash.update(buffer.subarray(0, bytesRead));
      position += bytesRead;
    }
    this.#hashes.set(algorithm, hash);
    return digestSoFar(hash, algorithm);
  }

  /** Reads from what has been written. */
  async read(target: Buffer, position: number): Promise<number> {
    return (await this.#handle.read(target, 0, target.length, position)).bytesRead;
  }

  /** Opens what has arrived, by a descriptor of its own. */
  open(): Promise<Content & { readonly size: number }> {
    return openFileContent(this.path, this.#size);
  }

  /** Opens the file for reading what has arrived and what is still to come. */
  follow(): Promise<Content> {
    return openFileContent(this.path, undefined);
  }

  /** The whole of it, for what was limited to a size that fits in memory. */
  async bytes(): Promise<Buffer> {
    const bytes = Buffer.allocUnsafe(this.#size);
    for (let length = 0; length < bytes.length;) {
      const read = await this.read(bytes.subarray(length), length);
      if (read === 0) throw new Error(`${this.path} is shorter than its ${this.#size} bytes`);
      length += read;
    }
    return bytes;
  }

  /** Makes what is there durable. */
  async sync(): Promise<void> {
    await this.#handle.datasync();
  }

  /** Removes all bytes after the first `size`, and closes the file. */
  async cut(size: number): Promise<void> {
    if (!this.#closed) await this.#handle.truncate(size);
    await this.close();
  }

  /** Lets go of the file; it stays in the staging folder. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#handle.close();
  }

  /** Lets go of the file and removes it. */
  async discard(): Promise<void> {
    await this.close();
    await unlink(this.path).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
  }
}
