import { open, rm, type FileHandle } from 'node:fs/promises';
import type { Digest } from '../../runtime/digest.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import type { BlobCache } from './blob-cache.ts';
import type { Content } from '../files/content.ts';

const pieceSize = 512 * 1024;
/** A reader that is this far ahead of the fill reads from the storage itself. */
const maxLead = 8 * 2 ** 20;
/** Without readers, a fill continues only if at most this much is missing. */
const unreadRest = 16 * 2 ** 20;

/**
 * Copies a blob from the storage to the cache while any number of readers follow, so that the first reader does not wait
 * for the whole blob, and all together cost one request. The content verifies its digest with its last bytes.
 */
export class CacheFill {
  readonly #cache: BlobCache;
  readonly #digest: Digest;
  readonly #size: number;
  readonly #from: Content;
  readonly #path: string;
  #file: FileHandle | undefined;
  #written = 0;
  #readers = 0;
  #isDropped = false;
  #failure: { error: unknown } | undefined;
  #progress = Promise.withResolvers<void>();
  /** Resolves when the fill has ended, also after a failure. */
  readonly ended: Promise<void>;

  /** Takes over `from`. */
  constructor(cache: BlobCache, digest: Digest, size: number, from: Content) {
    this.#cache = cache;
    this.#digest = digest;
    this.#size = size;
    this.#from = from;
    this.#path = cache.partPath();
    this.ended = this.#run();
  }

  /** Whether new readers can follow. */
  get isUsable(): boolean {
    return !this.#failure && !this.#isDropped;
  }

  /** The blob was deleted: its copy is not kept. */
  drop(): void {
    this.#isDropped = true;
  }

  /** Ends the fill. */
  abort(): void {
    this.#failure ??= { error: new DomainError('Aborted', 'The copy of the content was ended.') };
    this.#from.close();
  }

  enter(): void {
    this.#readers += 1;
  }

  leave(): void {
    this.#readers -= 1;
    if (this.#readers === 0 && this.#size - this.#written > unreadRest) this.abort();
  }

  /**
   * Reads from the copy, and waits until it has bytes at `position`. Undefined if the bytes must come from the storage:
   * because they are not soon here, or because the disk of the cache failed. Rejects if the storage failed.
   */
  async read(target: Buffer, position: number): Promise<number | undefined> {
    while (position >= this.#written) {
      if (this.#failure) {
        if (isDomainError(this.#failure.error)) throw this.#failure.error;
        return undefined;
      }
      if (position > this.#written + maxLead) return undefined;
      await this.#progress.promise;
    }
    const length = Math.min(target.length, this.#written - position);
    return (await this.#file!.read(target, 0, length, position)).bytesRead;
  }

  /** Closes the file. The last reader and the end of the fill call it. */
  async close(): Promise<void> {
    await this.#file?.close();
    this.#file = undefined;
  }

  get hasReaders(): boolean {
    return this.#readers > 0;
  }

  async #run(): Promise<void> {
    try {
      const file = (this.#file = await open(this.#path, 'wx+', 0o600));
      const buffer = Buffer.allocUnsafe(Math.min(pieceSize, this.#size));
      while (this.#written < this.#size) {
        if (this.#failure) throw this.#failure.error;
        const read = await this.#from.read(buffer, this.#written);
        if (read === 0) throw new Error('content is shorter than its size');
        for (let done = 0; done < read;)
          done += (await file.write(buffer, done, read - done, this.#written + done)).bytesWritten;
        this.#written += read;
        this.#advance();
      }
      // Otherwise a copy could have its size but not its bytes after a power cut.
      await file.datasync();
      if (!this.#isDropped) await this.#cache.keep(this.#digest, this.#path, this.#size);
    } catch (error) {
      this.#failure ??= { error };
    } finally {
      this.#from.close();
      this.#advance();
      await rm(this.#path).catch(() => undefined);
    }
  }

  #advance(): void {
    const { resolve } = this.#progress;
    this.#progress = Promise.withResolvers();
    resolve();
  }
}
