import { constants, copyFile, statfs, type FileHandle } from 'node:fs/promises';
import { DomainError } from '../../runtime/errors.ts';

/** The calls to the file system that fail when it is full. Tests replace them. */
export interface Disk {
  /** The free bytes of the file system that holds `path`. */
  free(path: string): Promise<number>;
  /** Writes `pieces` at `position`; resolves to the number of bytes written, which may be fewer. */
  write(handle: FileHandle, pieces: readonly Uint8Array[], position: number): Promise<number>;
  /** Copies a file; a file system that can does so without a copy of its bytes. */
  copy(from: string, to: string): Promise<void>;
}

/** What a staged file needs. */
export type Writing = Pick<Disk, 'write' | 'copy'>;

export const localDisk: Disk = {
  free: async (path) => {
    const { bavail, bsize } = await statfs(path);
    return bavail * bsize;
  },
  write: async (handle, pieces, position) => (await handle.writev(pieces, position)).bytesWritten,
  copy: (from, to) => copyFile(from, to, constants.COPYFILE_FICLONE),
};

/** Writes all of `pieces` at `position`. If this fails, the file is truncated to `position`: no part of them stays. */
export async function writeAll(
  disk: Writing,
  handle: FileHandle,
  pieces: readonly Uint8Array[],
  position: number,
): Promise<void> {
  let rest = pieces.filter(({ length }) => length > 0);
  let end = position;
  try {
    while (rest.length > 0) {
      const written = await disk.write(handle, rest, end);
      if (written === 0) throw new Error('the file system wrote no bytes');
      end += written;
      rest = after(rest, written);
    }
  } catch (error) {
    // A device, such as `/dev/null`, keeps nothing and cannot be truncated.
    if ((await handle.stat()).isFile()) await handle.truncate(position);
    throw error;
  }
}

/** `pieces` without their first `bytes`. */
function after(pieces: readonly Uint8Array[], bytes: number): Uint8Array[] {
  let skipped = 0;
  let index = 0;
  while (index < pieces.length && skipped + pieces[index]!.length <= bytes) {
    skipped += pieces[index]!.length;
    index += 1;
  }
  const [first, ...rest] = pieces.slice(index);
  return first ? [first.subarray(bytes - skipped), ...rest] : [];
}

const advice = 'Ask the operator to free some space. Downloads and deletions still work.';
const diskFull = `The disk of this server is full. ${advice}`;
const databaseFull = `The disk of this server's database is full. ${advice}`;

/** By the code of the system call. */
const messages = new Map<string, string>([
  ['ENOSPC', diskFull],
  ['EDQUOT', `The disk quota of this server is used up. ${advice}`],
  [
    'EFBIG',
    'A file on this server reached the limit for the size of a file. Ask the operator to raise it (ulimit -f, or the file system).',
  ],
]);
/** SQLITE_FULL. */
const sqliteFull = 13;
/** ER_DISK_FULL, ER_RECORD_FILE_FULL. */
const mysqlFull: ReadonlySet<number | undefined> = new Set([1021, 1114]);

/** `StorageFull`, if `error` says that the disk, its quota or the database is full; undefined for any other error. */
export function storageFull(error: unknown): DomainError | undefined {
  if (error instanceof DomainError) return error.name === 'StorageFull' ? error : undefined;
  const { code, errcode, errno, parent } = (error ?? {}) as {
    code?: string;
    errcode?: number;
    errno?: number;
    parent?: unknown;
  };
  const isDatabase = (errcode ?? 0) % 256 === sqliteFull || mysqlFull.has(errno);
  const message = isDatabase ? databaseFull : messages.get(code ?? '');
  if (message !== undefined) return new DomainError('StorageFull', message, { cause: error });
  // Sequelize wraps the error of the database.
  return parent === undefined ? undefined : storageFull(parent);
}

/** `StorageFull`, for a write that would use the reserve of the disk. */
export function reserveReached(): DomainError {
  return new DomainError('StorageFull', `The disk of this server is almost full, so it stores nothing now. ${advice}`);
}
