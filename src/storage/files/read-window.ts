import type { ZipBytes } from './zip-bytes.ts';

/** Reads a file from start to end through one buffer, if it is not in memory. */
export class ReadWindow {
  readonly #file: ZipBytes;
  #buffer = Buffer.alloc(0);
  #start = 0;
  #length = 0;
  readonly #size: number;

  /** `size`: bytes that are read at a time. */
  constructor(file: ZipBytes, size: number) {
    this.#file = file;
    this.#size = size;
  }

  /** These bytes; valid until the next read. */
  read(position: number, length: number): Buffer | Promise<Buffer> {
    const known = this.#file.inMemory(position, length);
    if (known) return known;
    const from = position - this.#start;
    if (from >= 0 && from + length <= this.#length) return this.#buffer.subarray(from, from + length);
    return this.#load(position, length);
  }

  async #load(position: number, length: number): Promise<Buffer> {
    const size = Math.max(length, Math.min(this.#size, this.#file.size - position));
    if (size > this.#buffer.length) this.#buffer = Buffer.allocUnsafeSlow(size);
    await this.#file.readInto(this.#buffer.subarray(0, size), position);
    this.#start = position;
    this.#length = size;
    return this.#buffer.subarray(0, length);
  }
}
