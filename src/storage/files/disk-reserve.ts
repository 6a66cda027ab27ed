import { localDisk, reserveReached, type Disk } from './disk.ts';
import { storageUnavailable } from './unavailable.ts';

/** Resolves to the free bytes of the disk that holds `path`. */
type ReadFree = Disk['free'];

/** The part of the reserve that must be free beyond it before a full disk is reported as no longer full. */
const margin = 1 / 16;

/**
 * The free space on the disk. Bytes are stored only while the reserve stays free, so that the database can always write:
 * deletions, collection, uses of tokens and usage need that. Files of upstream content that are removed as soon as they
 * are sent may use half of the reserve.
 */
export class DiskReserve {
  readonly #path: string;
  readonly #reserve: number;
  readonly #free: ReadFree;
  readonly #report: (isFull: boolean) => void;
  /** Bytes of upstream content that were announced and have not arrived yet. */
  #expected = 0;
  /** Bytes of the writes in progress. */
  #writing = 0;
  #isFull = false;

  /** `reserve` in bytes. `report` is called when writes begin to be refused, and when they are accepted again. */
  constructor(
    path: string,
    reserve: number,
    free: ReadFree = (each) => localDisk.free(each),
    report: (isFull: boolean) => void = () => undefined,
  ) {
    this.#path = path;
    this.#reserve = reserve;
    this.#free = free;
    this.#report = report;
  }

  /** Whether the reserve stays free if `bytes` more are stored, besides the bytes that are expected already. */
  async has(bytes: number): Promise<boolean> {
    return (await this.#unused()) - this.#expected - bytes >= this.#reserve;
  }

  /** The free bytes of the disk, and the bytes of them that are kept free. */
  async measure(): Promise<{ free: number; reserve: number }> {
    return { free: await this.#freeBytes(), reserve: this.#reserve };
  }

  /** Whether half of the reserve stays free if a file of `bytes` is stored for a short time. */
  async hasForAMoment(bytes: number): Promise<boolean> {
    return (await this.#unused()) - this.#expected - bytes >= this.#reserve / 2;
  }

  /**
   * Throws `StorageFull` unless the reserve stays free if `bytes` of hosted content are stored. Expected upstream content
   * does not count: a reader could announce much of it, and keep others from storing.
   */
  async admit(bytes: number): Promise<void> {
    const unused = await this.#unused();
    const isFull = unused < this.#reserve * (this.#isFull ? 1 + margin : 1);
    if (isFull !== this.#isFull) this.#report((this.#isFull = isFull));
    if (unused - bytes < this.#reserve) throw reserveReached();
  }

  /** Throws `StorageFull` while the reserve is not free, so that uploads are refused. */
  async check(): Promise<void> {
    if ((await this.#freeBytes()) < this.#reserve) throw reserveReached();
  }

  /** Runs `write`, which stores `bytes` of hosted content. Concurrent writes count; throws as `admit`. */
  async write<T>(bytes: number, write: () => Promise<T>): Promise<T> {
    // Counted first, so that many writes cannot all be admitted for the same space.
    this.#writing += bytes;
    try {
      await this.admit(0);
      return await write();
    } finally {
      this.#writing -= bytes;
    }
  }

  /** Counts `bytes` as expected. Call the returned function with the number of bytes that are still missing; 0 at the end. */
  expect(bytes: number): (rest: number) => void {
    let counted = bytes;
    this.#expected += counted;
    return (rest) => {
      this.#expected += rest - counted;
      counted = rest;
    };
  }

  async #unused(): Promise<number> {
    return (await this.#freeBytes()) - this.#writing;
  }

  /** Throws `StorageUnavailable` if the folder is gone, or its disk does not answer. */
  async #freeBytes(): Promise<number> {
    try {
      return await this.#free(this.#path);
    } catch (error) {
      throw storageUnavailable('The data folder of this server cannot be reached.', error);
    }
  }
}
