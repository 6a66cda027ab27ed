import type { FileHandle } from 'node:fs/promises';
import { storageFull, type Writing } from './disk.ts';
import { copyPieces } from './pieces.ts';

/** The memory that all files with an overflow may use together. */
export class OverflowMemory {
  /** Bytes that are not used. */
  left: number;

  /** `bytes` in total. */
  constructor(bytes: number) {
    this.left = bytes;
  }
}

/**
 * The end of a file that the full disk does not take, in memory. Writes begin to go here when one fails for want of space,
 * or after `begin`; they fail with `ENOSPC` when the memory is used up. Its memory is freed when all of its users have left.
 */
export class Overflow implements Writing {
  readonly #disk: Writing;
  readonly #memory: OverflowMemory;
  #base = Number.POSITIVE_INFINITY;
  #pieces: Buffer[] = [];
  #isForced = false;
  #users = 1;

  constructor(disk: Writing, memory: OverflowMemory) {
    this.#disk = disk;
    this.#memory = memory;
  }

  /** The position in the file where the memory begins; infinite while all of the file is on the disk. */
  get base(): number {
    return this.#base;
  }

  /** Bytes that can still be kept in memory. */
  get room(): number {
    return this.#memory.left;
  }

  /** Sends all further writes to memory. */
  begin(): void {
    this.#isForced = true;
  }

  async write(handle: FileHandle, pieces: readonly Uint8Array[], position: number): Promise<number> {
    if (!this.#isForced && this.#base === Number.POSITIVE_INFINITY) {
      try {
        return await this.#disk.write(handle, pieces, position);
      } catch (error) {
        if (!storageFull(error)) throw error;
      }
    }
    // A copy, because an append frees its chunks after the write.
    const bytes = Buffer.concat(pieces);
    if (bytes.length > this.#memory.left) {
      throw Object.assign(new Error('the disk is full, and so is the memory for what it cannot take'), {
        code: 'ENOSPC',
      });
    }
    this.#memory.left -= bytes.length;
    this.#base = Math.min(this.#base, position);
    this.#pieces.push(bytes);
    return bytes.length;
  }

  copy(from: string, to: string): Promise<void> {
    return this.#disk.copy(from, to);
  }

  /** Copies into `target` from `position` on, which is not before `base`; returns the number of bytes copied. */
  read(target: Buffer, position: number): number {
    return copyPieces(this.#pieces, this.#base, target, position);
  }

  /** Adds a user. Call the returned function once when it has left. */
  use(): () => void {
    this.#users += 1;
    return () => this.leave();
  }

  leave(): void {
    this.#users -= 1;
    if (this.#users > 0) return;
    for (const { length } of this.#pieces) this.#memory.left += length;
    this.#pieces = [];
  }
}
