import { statfs } from 'node:fs/promises';

/** Free bytes of the disk that holds `path`. */
export type ReadFree = (path: string) => Promise<number>;

async function readFree(path: string): Promise<number> {
  const { bavail, bsize } = await statfs(path);
  return bavail * bsize;
}

/**
 * The room on the disk. Below the reserve nothing more of upstreams is stored, so that the database can always work. Half
 * of the reserve may be used for files that are removed as soon as they were sent.
 */
export class Room {
  readonly #path: string;
  readonly #reserve: number;
  readonly #free: ReadFree;
  /** Bytes that were announced and are still to come. */
  #expected = 0;

  /** `reserve` in bytes. */
  constructor(path: string, reserve: number, free: ReadFree = readFree) {
    this.#path = path;
    this.#reserve = reserve;
    this.#free = free;
  }

  /** Whether `bytes` more can be stored, beside what is expected already, and the reserve is left. */
  async has(bytes: number): Promise<boolean> {
    return (await this.#free(this.#path)) - this.#expected - bytes >= this.#reserve;
  }

  /** Whether a file of `bytes` that is soon removed again fits into half of the reserve. */
  async hasForAMoment(bytes: number): Promise<boolean> {
    return (await this.#free(this.#path)) - this.#expected - bytes >= this.#reserve / 2;
  }

  /** Counts `bytes` as expected; the returned function says how many of them have come, and 0 at the end. */
  expect(bytes: number): (rest: number) => void {
    let counted = bytes;
    this.#expected += counted;
    return (rest) => {
      this.#expected += rest - counted;
      counted = rest;
    };
  }
}
