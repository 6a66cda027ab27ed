import { randomUUID } from 'node:crypto';
import { appendFile, readFile, stat } from 'node:fs/promises';
import { makeFile } from '../storage/files/durable.ts';

/** The disk takes no file now. The start does not fail because of that: only uploads are refused. */
const cannotWrite = new Set(['ENOSPC', 'EDQUOT', 'EROFS']);

/**
 * The identity of a data folder: the random ID in `file`, which the first process makes, and the inode of the file. So
 * processes that share the folder, also by a network file system, have the same identity, and a copy of the folder has
 * another one. If the disk takes no file, the identity is a new one for this process.
 */
export async function folderIdentity(file: string): Promise<string> {
  const found = await read(file);
  if (found !== undefined) return found;
  const line = `${randomUUID()}\n`;
  try {
    await makeFile(file, line);
    // A power cut has left it empty. The first line counts, so that all processes which do this at the same time have the same.
    if ((await read(file)) === undefined) await appendFile(file, line, { flush: true });
  } catch (error) {
    if (!cannotWrite.has((error as NodeJS.ErrnoException).code ?? '')) throw error;
    return randomUUID();
  }
  const made = await read(file);
  if (made === undefined) throw damaged(file);
  return made;
}

/** Undefined if there is no file, or nothing in it. */
async function read(file: string): Promise<string | undefined> {
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '';
    throw error;
  });
  // Some file systems leave zeros in place of bytes that were not written.
  const [id] = text.replaceAll('\0', '').trim().split('\n', 1);
  if (!id) return undefined;
  if (!/^[0-9a-f-]{36}$/.test(id)) throw damaged(file);
  const { ino } = await stat(file, { bigint: true });
  return `${id}.${ino}`;
}

function damaged(file: string): Error {
  return new Error(`${file} is damaged. Delete it while no server runs`);
}
