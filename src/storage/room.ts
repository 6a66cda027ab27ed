import { statfs } from 'node:fs/promises';

/** Resolves to the free bytes of the disk that holds `path`. */
export type ReadFree = (path: string) => Promise<number>;

async function readFree(path: string): Promise<number> {
  const { bavail, bsize } = await statfs(path);
  return bavail * bsize;
}

/**
 * The free space on the disk. Upstream content is stored only while the reserve stays free, so that the database can
 * always write. Files that are removed as soon as they are sent may use half of the reserve.
 */
export class Room {
  readonly #path: string;
  readonly #reserve: number;
  readonly #free: ReadFree;
  /** Bytes that were announced and have not arrived yet. */
  #expected = 0;

  /** `reserve` in bytes. */
  constructor(path: string, reserve: number, free: ReadFree = readFree) {
    this.#path = path;
    this.#reserve = reserve;
    this.#free = free;
  }

  /** Whether the reserve stays free if `bytes` more are stored, besides the bytes that are expected already. */
  async has(bytes: number): Promise<boolean> {
    return (await this.#free(this.#path)) - this.#expected - bytes >= this.#reserve;
  }

  /** Whether half of the reserve stays free if a file of `bytes` is stored for a short time. */
  async hasForAMoment(bytes: number): Promise<boolean> {
    return (await this.#free(this.#path)) - this.#expected - bytes >= this.#reserve / 2;
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
}
