import { chmod, mkdir, readdir, stat, writeFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import type { Logger } from 'pino';

// Other users of the machine may not read stored content or tokens. Existing modes are only tightened.

const owner = 0o700;

/**
 * Creates `path` and the folders above it that are missing, for this user only. With `recursive`, Node's own function never
 * returns where the system says "not found" to a new folder in an existing one, as below `/proc`.
 */
export async function makeFolder(path: string): Promise<void> {
  try {
    await mkdir(path, { mode: owner });
  } catch (error) {
    if (await isFolder(path)) return;
    const parent = dirname(path);
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || parent === path) throw error;
    await makeFolder(parent);
    await mkdir(path, { mode: owner }).catch(async (second: unknown) => {
      // Another process may have made it meanwhile.
      if (!(await isFolder(path))) throw second;
    });
  }
}

async function isFolder(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => undefined);
  return found?.isDirectory() ?? false;
}

/** What a data folder has, one of them at least. */
const ownNames = new Set(['blobs', 'entrepot.db', 'staging']);

/**
 * Creates `path` for this user only, or takes the rights of other users from it. A folder with files of other programs alone, such as
 * one that a setting names by mistake, keeps its mode. Rejects if it cannot be created.
 */
export async function privateFolder(path: string, log: Logger): Promise<void> {
  await makeFolder(path);
  // A file system that was made for it has this folder.
  const names = (await readdir(path)).filter((each) => each !== 'lost+found');
  if (names.length > 0 && !names.some((each) => ownNames.has(each))) {
    log.warn({ path }, 'this folder is not empty and has no data of this program; its mode is left');
    return;
  }
  await tighten(path, log);
}

/** Creates the SQLite database at `path`, empty and for this user only, unless there is a file of this name. */
export async function createDatabaseFiles(path: string): Promise<void> {
  await makeFolder(dirname(path));
  try {
    for (const file of [path, `${path}.lock`]) await writeFile(file, '', { flag: 'wx', mode: 0o600 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
}

/** Takes the rights of other users from the files of the SQLite database at `path`. */
export async function tightenDatabaseFiles(path: string, log: Logger): Promise<void> {
  for (const file of [path, `${path}-wal`, `${path}-shm`, `${path}.lock`]) await tighten(file, log);
}

/**
 * Takes the rights of other users from `path`, if it exists. Leaves the root and folders with the sticky bit alone,
 * because they belong to the whole machine, such as `/tmp`. A failure is logged: the file may belong to another user, as
 * on some mounted volumes.
 */
async function tighten(path: string, log: Logger): Promise<void> {
  try {
    const { mode } = await stat(path);
    const sticky = 0o1000;
    if ((mode & 0o077) === 0 || (mode & sticky) !== 0 || dirname(resolve(path)) === resolve(path)) return;
    await chmod(path, mode & owner);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
    log.warn({ err: error, path }, 'other users of this machine may read this path, and its mode cannot be changed');
  }
}
