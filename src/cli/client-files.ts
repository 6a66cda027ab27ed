import { randomBytes } from 'node:crypto';
import { link, lstat, mkdir, open, readFile, realpath, rename, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { ClientFile } from '../clients/client.ts';
import { DomainError } from '../runtime/errors.ts';
import { OtherOwner, ownUser } from '../server/command-place.ts';

const worldMode = 0o644;
const secretMode = 0o600;

/** A file as it will be. */
interface Planned extends ClientFile {
  /** The file there has this content already. */
  isSame: boolean;
  exists: boolean;
}

/**
 * Writes the files below `folder`, those with a token for their owner alone. Throws `AlreadyExists` before it writes any, if a
 * different file is there and `overwrite` is not set; `OtherOwner` or `Invalid` if root would write where another user can change
 * what root writes. No link is followed. Resolves to what became of each path.
 */
export async function writeClientFiles(
  folder: string,
  files: readonly ClientFile[],
  overwrite: boolean,
): Promise<{ path: string; isSame: boolean }[]> {
  const planned: Planned[] = [];
  for (const file of files) {
    const path = join(folder, file.path);
    if (ownUser() === 0) await refuseSharedFolder(dirname(path));
    planned.push({ ...file, path, ...(await compare(path, file.content)) });
  }
  const different = planned.filter(({ exists, isSame }) => exists && !isSame).map(({ path }) => path);
  if (different.length > 0 && !overwrite) {
    const message = `${different.join(', ')}: there is another file already. Compare it with what this command prints without --write, and merge them by hand, or replace it with --overwrite. Nothing was written.`;
    throw new DomainError('AlreadyExists', message);
  }
  for (const each of planned) {
    await write(each).catch((error: NodeJS.ErrnoException) => {
      if (error.code === undefined) throw error;
      const advice =
        error.code === 'EACCES' ? ' Run the command as the owner of this folder, or name another one.' : '';
      throw new DomainError('Invalid', `--write: ${error.message}.${advice}`);
    });
  }
  return planned;
}

async function compare(path: string, content: string): Promise<Pick<Planned, 'exists' | 'isSame'>> {
  const found = await lstat(path).catch(ifMissing);
  if (!found) return { exists: false, isSame: false };
  if (!found.isFile()) throw new DomainError('Invalid', `${path} is not a file: remove it, or name another folder.`);
  const isSame = found.size === Buffer.byteLength(content) && (await readFile(path, 'utf8')) === content;
  return { exists: true, isSame };
}

async function write({ path, content, secret, exists, isSame }: Planned): Promise<void> {
  const mode = secret ? secretMode : worldMode;
  // The same content may be there with a mode that lets others read a token: then it is replaced, too.
  if (isSame && (!secret || ((await stat(path)).mode & 0o077) === 0)) return;
  await mkdir(dirname(path), { recursive: true, mode: 0o755 });
  const staged = join(dirname(path), `.entrepot-${randomBytes(8).toString('hex')}`);
  try {
    await using handle = await open(staged, 'wx', mode);
    await handle.chmod(mode);
    await handle.writeFile(content);
    await handle.sync();
    // A file that has come meanwhile is not replaced.
    await (exists ? rename(staged, path) : link(staged, path));
  } finally {
    await rm(staged, { force: true });
  }
}

/** Rejects if another user than root can change the folder, a folder above it, or a link that leads there. */
async function refuseSharedFolder(folder: string): Promise<void> {
  for (const path of [...foldersFrom(folder), ...foldersFrom(await deepest(folder))]) {
    const found = await lstat(path).catch(ifMissing);
    if (!found) continue;
    const { uid, mode } = found;
    if (uid !== 0) {
      const reason = 'root: its owner could not use the files, or could change what root wrote.';
      throw new OtherOwner('--write', path, uid, reason);
    }
    // In a folder with the sticky bit, such as /tmp, others cannot replace a file of root.
    if (!found.isSymbolicLink() && (mode & 0o022) !== 0 && (mode & 0o1000) === 0) {
      const message = `--write: other users may change ${path}, so root writes nothing there. Name another folder.`;
      throw new DomainError('Invalid', message);
    }
  }
}

function foldersFrom(path: string): string[] {
  const above = dirname(path);
  return above === path ? [path] : [path, ...foldersFrom(above)];
}

/** The folder, or the one above it that exists, without links. */
async function deepest(folder: string): Promise<string> {
  const found = await realpath(folder).catch(ifMissing);
  return found ?? deepest(dirname(folder));
}

/** For `catch`. */
function ifMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT') throw error;
}
