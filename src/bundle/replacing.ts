import { open, realpath, stat, writeFile } from 'node:fs/promises';
import { bundleInvalid } from './format.ts';
import { writeDurably } from './write.ts';

/** Most bytes of the first line of a file. */
const maxLine = 64 * 1024;

/** Writes all bytes of a file, or nothing. */
export type WriteBytes = (bytes: readonly Buffer[]) => Promise<void>;

/**
 * Writes to `file`: a new file, in place of an earlier one whose first line `isOwn` accepts or of an empty file, or to a device or a pipe. Throws
 * `Invalid` for any other file, before anything is written; `what` is for the message.
 */
export async function replacingWriter(
  file: string,
  what: string,
  isOwn: (line: string) => boolean,
): Promise<WriteBytes> {
  const found = await stat(file).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
  });
  if (!found) return (bytes) => writeDurably(file, bytes);
  if (!found.isFile() && !found.isDirectory()) return (bytes) => writeFile(file, bytes);
  if (found.isDirectory() || (found.size > 0 && !isOwn(await firstLine(file))))
    throw bundleInvalid(`${file} exists and is no ${what}. Name a new file`);
  // A link stays, and leads to the new file.
  const path = await realpath(file);
  return (bytes) => writeDurably(path, bytes);
}

async function firstLine(file: string): Promise<string> {
  await using handle = await open(file);
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(maxLine), 0, maxLine, 0);
  return buffer.toString('utf8', 0, bytesRead).split('\n', 1)[0]!;
}
