import { opendir, realpath, stat } from 'node:fs/promises';
import { dirname, join, sep } from 'node:path';
import { isDomainError } from '../runtime/errors.ts';
import { openInput, type Inputs } from './inputs.ts';
import { malformed, type PrefetchItem, type UnclearItem } from './item.ts';

/** Bounds of a folder that is searched: folders below each other, entries, files that are read, and their bytes together. */
const deepest = 32;
const maxEntries = 200_000;
const maxFiles = 2000;
const maxBytes = 64 * 2 ** 20;

/** Folders with files that tools make or download. */
const leftOut = new Set(['bin', 'obj', 'node_modules', '.git']);

interface Options {
  inputs: Inputs;
  values: ReadonlyMap<string, string>;
  stdin?: AsyncIterable<Uint8Array | string> | undefined;
  /** The kind of a file whose name does not show it. */
  kind?: string | undefined;
  /** Called with each file that was found in a folder or by a solution, before it is read. */
  onFound?: (file: string) => void;
}

/**
 * The items in a file; in the files that a solution names; or in those that a folder contains, without links. A found
 * file, or a folder below the folder, that cannot be read is an item that is unclear. Throws `Invalid` with file, line
 * and reason.
 */
export async function prefetchItemsIn(path: string, options: Options): Promise<PrefetchItem[]> {
  const { inputs, values, stdin, kind } = options;
  const isFolder = path !== '-' && (await stat(path).catch(() => undefined))?.isDirectory();
  if (isFolder) {
    if (kind !== undefined) throw malformed(path, 0, '--kind is for files, not for a folder');
    const { found, unclear } = await filesBelow(path, inputs);
    if (found.length + unclear.length === 0)
      throw malformed(
        path,
        0,
        `the folder has no file that a search finds: ${inputs.foundNames}; name other files yourself`,
      );
    return [...unclear, ...(await readFound(path, found, options))];
  }
  const input = await openInput(path, values, stdin);
  const solution = kind === undefined ? inputs.solutionOf(path) : undefined;
  if (!solution) return inputs.read(input, kind);
  const folder = dirname(path);
  const { named, near } = solution.read(input);
  const root = await realpath(folder);
  const unclear: UnclearItem[] = [];
  const found: string[] = [];
  for (const each of named) {
    const problem = await problemOf(root, each);
    if (problem === undefined) found.push(each);
    else unclear.push({ kind: 'unclear', what: each, reason: problem, location: { file: path, line: 0 } });
  }
  for (const each of near) if ((await problemOf(root, each)) === undefined) found.push(each);
  return [...unclear, ...(await readFound(folder, found, options))];
}

/**
 * The paths of the files below a folder that a search finds, relative and with `/`, in order; and the folders below it that
 * cannot be read.
 */
async function filesBelow(root: string, inputs: Inputs): Promise<{ found: string[]; unclear: UnclearItem[] }> {
  const found: string[] = [];
  const unclear: UnclearItem[] = [];
  let entries = 0;
  const waiting = [{ path: '', depth: 0 }];
  for (let next = waiting.pop(); next; next = waiting.pop()) {
    const { path, depth } = next;
    const folder = join(root, path);
    try {
      for await (const entry of await opendir(folder)) {
        entries += 1;
        if (entries > maxEntries)
          throw malformed(root, 0, `the folder has more than ${maxEntries} entries; name a folder below it, or files`);
        const below = path === '' ? entry.name : `${path}/${entry.name}`;
        // A link is neither.
        if (entry.isDirectory() && !leftOut.has(entry.name)) {
          if (depth === deepest) throw malformed(join(root, below), 0, `is more than ${deepest} folders below ${root}`);
          waiting.push({ path: below, depth: depth + 1 });
        } else if (entry.isFile() && inputs.finds(entry.name)) found.push(below);
      }
    } catch (error) {
      if (isDomainError(error, 'Invalid')) throw error;
      const reason = `cannot be read: ${(error as Error).message}`;
      if (path === '') throw malformed(root, 0, reason);
      const location = { file: folder, line: 0 };
      unclear.push({ kind: 'unclear', what: 'what the files of this folder list', reason, location });
    }
    if (found.length > maxFiles) throw tooMany(root);
  }
  return { found: found.sort(), unclear };
}

/** Why a file that a solution in the folder `root` (without links) names is not read; undefined if it is. */
async function problemOf(root: string, path: string): Promise<string | undefined> {
  const outside = 'it is outside the folder of the solution; give it as a file of its own';
  if (path.startsWith('../') || path.startsWith('/')) return outside;
  const target = await realpath(join(root, path)).catch(() => undefined);
  if (target === undefined) return 'there is no such file';
  if (!target.startsWith(root.endsWith(sep) ? root : root + sep)) return outside;
  const isFile = (await stat(target).catch(() => undefined))?.isFile();
  return isFile === true ? undefined : 'it is not a file';
}

async function readFound(
  folder: string,
  found: readonly string[],
  { inputs, values, onFound }: Options,
): Promise<PrefetchItem[]> {
  const items: PrefetchItem[] = [];
  const chosen = inputs.reduce(found);
  if (chosen.length > maxFiles) throw tooMany(folder);
  let bytes = 0;
  for (const path of chosen) {
    const file = join(folder, path);
    onFound?.(file);
    try {
      bytes += (await stat(file)).size;
      if (bytes > maxBytes) throw malformed(folder, 0, `its files have more than ${maxBytes / 2 ** 20} MiB together`);
      for (const each of inputs.read(await openInput(file, values, undefined))) items.push(each);
    } catch (error) {
      if (bytes > maxBytes) throw error;
      items.push(unread(file, error as Error));
    }
  }
  return items;
}

/** A file whose items are not known, because of an error: an `Invalid` one such as `FILE:LINE: REASON`, or any other. */
function unread(file: string, error: Error): UnclearItem {
  const message = isDomainError(error, 'Invalid')
    ? error.message.slice(file.length)
    : `: cannot be read: ${error.message.slice(0, 200)}`;
  const [, line = '0', reason = error.message] = /^:?(\d*): ([^]*)$/.exec(message) ?? [];
  return { kind: 'unclear', what: 'what this file lists', reason, location: { file, line: Number(line) } };
}

function tooMany(folder: string) {
  return malformed(folder, 0, `has more than ${maxFiles} files to read; name a folder below it, or files`);
}
