import { stat } from 'node:fs/promises';
import { DomainError } from '../runtime/errors.ts';

/**
 * The flag with which a command opens the file that it writes. Throws `AlreadyExists` for a file that exists; a device or a pipe is
 * written.
 */
export async function flagOfNew(file: string): Promise<'w' | 'wx'> {
  const found = await stat(file).catch(() => undefined);
  if (!found) return 'wx';
  if (!found.isFile() && !found.isDirectory()) return 'w';
  throw new DomainError('AlreadyExists', `${file} exists already. Name a new file`);
}
