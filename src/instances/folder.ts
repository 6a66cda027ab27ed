import { randomUUID } from 'node:crypto';
import { link, readFile, stat, unlink, writeFile } from 'node:fs/promises';

/** The disk takes no file now. The start does not fail because of that: only uploads are refused. */
const cannotWrite = new Set(['ENOSPC', 'EDQUOT', 'EROFS']);

/**
 * The identity of a data folder: the random ID in `file`, which the first process makes, and the inode of the file. So
 * processes that share the folder, also by a network file system, have the same identity, and a copy of the folder has
 * another one. If the disk takes no file, the identity is a new one for this process.
 */
export async function folderIdentity(file: string): Promise<string> {
  try {
    return await read(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
  const made = `${file}.${randomUUID()}`;
  try {
    await writeFile(made, randomUUID(), { flag: 'wx', mode: 0o600 });
    // The file is complete as soon as it is visible. Another process may have made it meanwhile.
    await link(made, file).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
  } catch (error) {
    if (!cannotWrite.has((error as NodeJS.ErrnoException).code ?? '')) throw error;
    return randomUUID();
  } finally {
    await unlink(made).catch(() => undefined);
  }
  return read(file);
}

async function read(file: string): Promise<string> {
  const id = (await readFile(file, 'utf8')).trim();
  if (!/^[0-9a-f-]{36}$/.test(id)) throw new Error(`${file} is damaged. Delete it while no server runs`);
  const { ino } = await stat(file, { bigint: true });
  return `${id}.${ino}`;
}
