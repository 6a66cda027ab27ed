import { stat, writeFile, type FileHandle } from 'node:fs/promises';
import { localDisk, type Disk } from '../../src/storage/files/disk.ts';

/** The local disk with a chosen amount of space. As a real disk does, it first takes a part of what has no room. */
export class TestDisk implements Disk {
  /** Free bytes, as the file system reports them. */
  reported = 2 ** 40;
  /** Bytes that can still be written before writes fail. */
  left = Number.POSITIVE_INFINITY;
  /** The code of the failing writes. */
  code = 'ENOSPC';

  free(): Promise<number> {
    return Promise.resolve(this.reported);
  }

  async copy(from: string, to: string): Promise<void> {
    if (this.left < (await stat(from)).size) {
      await writeFile(to, 'a part');
      throw this.#full('copyfile');
    }
    await localDisk.copy(from, to);
  }

  async write(handle: FileHandle, pieces: readonly Uint8Array[], position: number): Promise<number> {
    const wanted = pieces.reduce((sum, { length }) => sum + length, 0);
    if (this.left >= wanted) {
      this.left -= wanted;
      return localDisk.write(handle, pieces, position);
    }
    if (this.left === 0) throw this.#full('write');
    const some = Buffer.concat(pieces).subarray(0, this.left);
    this.left = 0;
    return localDisk.write(handle, [some], position);
  }

  #full(call: string): Error {
    return Object.assign(new Error(`${this.code}: a test's full disk, ${call}`), { code: this.code });
  }
}
