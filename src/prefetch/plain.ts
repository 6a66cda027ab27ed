import { readdir, stat } from 'node:fs/promises';
import { basename, join, sep } from 'node:path';
import type { EntryKey } from '../mirror/store/entries.ts';
import type { Digest } from '../runtime/digest.ts';
import { DomainError } from '../runtime/errors.ts';
import type { Content } from '../storage/files/content.ts';
import { openFileContent } from '../storage/files/file-content.ts';
import { openTar } from '../storage/files/tar.ts';

/** Most files of a folder, and most folders below each other. */
const maxFiles = 200_000;
const deepest = 32;

/** A file of a folder or of a tar archive that other tools have made. */
export interface PlainFile {
  size: number;
  /** When the file was written last, milliseconds since 1970 UTC; undefined in an archive. */
  changedAt?: number;
  open(): Promise<Content & { readonly size: number }>;
}

/** A folder or an archive, with its files by their names below it. */
export interface PlainSource {
  path: string;
  files: ReadonlyMap<string, PlainFile>;
}

/** An entry of the mirror that a plain source has. The source does not tell when it was published, and does not prove what it is. */
export interface PlainEntry {
  key: EntryKey;
  type: string;
  /** Undefined if the source does not say it. */
  digest: Digest | undefined;
  file: PlainFile;
}

export interface PlainOptions {
  accountId: number;
  /** The name of an image that has none in the source. */
  name?: string | undefined;
  /** The name of the upstream that packages belong to. */
  upstream?: string | undefined;
}

/** The files of a folder, of a tar archive, or one file alone; `stack` closes the archive. Throws `Invalid`. */
export async function openPlainSource(path: string, stack: AsyncDisposableStack): Promise<PlainSource> {
  const found = await stat(path).catch((error: NodeJS.ErrnoException) => {
    throw invalid(`${path} cannot be read: ${error.message}`, error);
  });
  if (found.isDirectory()) return { path, files: await filesBelow(path) };
  if (!path.endsWith('.tar')) return { path, files: new Map([[basename(path), fileAt(path, found)]]) };
  const tar = stack.use(await openTar(path));
  const files = [...tar.members].map(([name, member]): [string, PlainFile] => [
    name,
    { size: member.size, open: () => Promise.resolve(tar.content(member)) },
  ]);
  return { path, files: new Map(files) };
}

/** The files in a folder and those below it, without links. */
async function filesBelow(folder: string): Promise<Map<string, PlainFile>> {
  const files = new Map<string, PlainFile>();
  const visit = async (below: string, depth: number): Promise<void> => {
    if (depth > deepest) throw invalid(`${folder} has folders that are more than ${deepest} deep`);
    for (const entry of await readdir(join(folder, below), { withFileTypes: true })) {
      const name = below === '' ? entry.name : `${below}${sep}${entry.name}`;
      if (entry.isDirectory()) await visit(name, depth + 1);
      if (!entry.isFile()) continue;
      if (files.size === maxFiles) throw invalid(`${folder} has more than ${maxFiles} files`);
      const path = join(folder, name);
      files.set(name.replaceAll(sep, '/'), fileAt(path, await stat(path)));
    }
  };
  await visit('', 0);
  return files;
}

function fileAt(path: string, { size, mtimeMs }: { size: number; mtimeMs: number }): PlainFile {
  return { size, changedAt: Math.floor(mtimeMs), open: () => openFileContent(path, size) };
}

function invalid(message: string, cause?: unknown): DomainError {
  return new DomainError('Invalid', message, { cause });
}
