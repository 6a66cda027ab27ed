import { randomUUID } from 'node:crypto';
import {
  access,
  constants,
  link,
  mkdir,
  open,
  opendir,
  readdir,
  readFile,
  rename,
  rm,
  stat,
  unlink,
  type FileHandle,
} from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { algorithmOf, hexOf, isDigest, type Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { inTurnShared } from '../../runtime/in-turn.ts';
import { contentDamaged, type Content } from '../files/content.ts';
import type { Driver, ListedBlob, QuarantineBounds, QuarantineRemoved, StoredBytes } from './driver.ts';
import { syncPath } from '../files/durable.ts';
import { openWholeFile } from '../files/file-content.ts';
import type { Paths } from '../files/paths.ts';
import type { StagedFile } from '../files/staged-file.ts';
import { storageUnavailable } from '../files/unavailable.ts';

const page = 500;
/** Bytes of one read when a staged file is copied. */
const copySize = 1024 * 1024;

/**
 * Stores bytes as files in the data folder: `blobs/sha256/ab/ab12…`. From a client's request, only the hex of a parsed
 * digest becomes part of a path. Staged files are on the same disk, so a put links them.
 */
export class FilesystemDriver implements Driver {
  readonly checkEvery = 0;
  readonly #paths: Paths;
  /** Folders whose entries are known to be synced; at most 256 for each algorithm, and their parents. */
  readonly #durable = new Set<string>();
  /** `#checkFolder`, once for all puts that begin at the same time. */
  readonly #checkPlace = inTurnShared(() => this.#checkFolder());
  /** The folder of the blobs. While it is open, no other folder can have its number, also after it was removed. */
  #folder: FileHandle | undefined;

  constructor(paths: Paths) {
    this.#paths = paths;
  }

  describe() {
    return { kind: 'data folder', name: this.#paths.data, setting: 'data' };
  }

  /** A folder has no name here, because it may be moved. */
  async fact() {
    const found = await stat(this.#paths.blobs, { bigint: true }).catch(() => undefined);
    return found && { place: 'folder', inode: found.ino };
  }

  /** The file that holds a blob's bytes, if they are stored. */
  pathOf(digest: Digest): string {
    const hex = hexOf(digest);
    return join(this.#paths.blobs, algorithmOf(digest), hex.slice(0, 2), hex);
  }

  /** The file to which damaged bytes of this digest are moved. */
  quarantinePathOf(digest: Digest): string {
    return join(this.#paths.quarantine, digest.replace(':', '-'));
  }

  async prepare(): Promise<void> {
    await mkdir(this.#paths.blobs, { recursive: true });
    await this.close();
    this.#folder = await open(this.#paths.blobs, 'r');
  }

  async put(digest: Digest, staged: StagedFile): Promise<void> {
    await staged.sync();
    await this.#checkPlace();
    const path = this.pathOf(digest);
    const folder = dirname(path);
    if (!this.#durable.has(folder)) await mkdir(folder, { recursive: true, mode: 0o700 });
    try {
      await linkOrRename(staged, path);
    } catch (error) {
      if (!isMissing(error)) throw error;
      await mkdir(folder, { recursive: true, mode: 0o700 });
      // An earlier put of this commit may have renamed the staged file.
      if ((await statFile(path))?.size !== staged.size) await this.#copy(staged, path);
    }
    // Also if the file existed: another process may have renamed it a moment ago, without a sync of the folder yet.
    await syncPath(folder);
    for (let each = folder; each !== this.#paths.data && !this.#durable.has(each); each = dirname(each)) {
      await syncPath(dirname(each));
      this.#durable.add(each);
    }
  }

  async open(digest: Digest, size: number): Promise<Content> {
    let content: Content | undefined;
    try {
      content = await openWholeFile(this.pathOf(digest), size);
    } catch (error) {
      // Other errors, for example too many open files, do not mean that the file is gone.
      if (!isMissing(error)) throw error;
      throw new DomainError('BlobUnknown', 'The content is missing from the storage.', {
        detail: { digest },
        cause: error,
      });
    }
    if (!content) throw contentDamaged(digest);
    return content;
  }

  async stat(digest: Digest): Promise<StoredBytes | undefined> {
    const found = await statFile(this.pathOf(digest));
    return found && { size: found.size, version: `${found.ino} ${found.mtimeMs}` };
  }

  async delete(digest: Digest): Promise<void> {
    await unlink(this.pathOf(digest)).catch((error: unknown) => {
      if (!isMissing(error)) throw error;
    });
  }

  async setAside(digest: Digest, version: string): Promise<() => Promise<boolean>> {
    await mkdir(this.#paths.quarantine, { recursive: true });
    return async () => {
      if ((await this.stat(digest))?.version !== version) return false;
      await rename(this.pathOf(digest), this.quarantinePathOf(digest));
      return true;
    };
  }

  /** The time of a move is the `ctime` of the file: a rename sets it, and keeps the time of the content. */
  async shrinkQuarantine({ before, maxBytes, dryRun = false }: QuarantineBounds): Promise<QuarantineRemoved> {
    const files: { path: string; size: number; movedAt: number }[] = [];
    for (const name of await namesIn(this.#paths.quarantine)) {
      const path = join(this.#paths.quarantine, name);
      const found = isDigest(name.replace('-', ':')) ? await statFile(path) : undefined;
      if (found?.isFile()) files.push({ path, size: found.size, movedAt: found.ctimeMs });
    }
    const removed: QuarantineRemoved = { blobs: 0, bytes: 0 };
    let kept = 0;
    for (const { path, size, movedAt } of files.toSorted((a, b) => b.movedAt - a.movedAt)) {
      kept += size;
      if (movedAt >= before && kept <= maxBytes) continue;
      if (!dryRun) await rm(path, { force: true });
      removed.blobs += 1;
      removed.bytes += size;
    }
    return removed;
  }

  /** Ignores files whose names are not digests. */
  async *list(prefix = ''): AsyncGenerator<ListedBlob[]> {
    for (const algorithm of ['sha256', 'sha512'] as const) {
      for (const folder of await namesIn(join(this.#paths.blobs, algorithm))) {
        const start = `${algorithm}:${folder}`;
        if (!start.startsWith(prefix) && !prefix.startsWith(start)) continue;
        const names = await namesIn(join(this.#paths.blobs, algorithm, folder));
        const digests = names
          .filter((name) => name.startsWith(folder))
          .map((name) => `${algorithm}:${name}`)
          .filter(isDigest)
          .filter((digest) => digest.startsWith(prefix));
        for (let from = 0; from < digests.length; from += page) {
          const found = await Promise.all(digests.slice(from, from + page).map((digest) => this.#listed(digest)));
          yield found.filter((each) => each !== undefined);
        }
      }
    }
  }

  async readIdentity(): Promise<string | undefined> {
    try {
      return (await readFile(this.#paths.identity, 'utf8')).trim();
    } catch (error) {
      if (isMissing(error)) return undefined;
      throw error;
    }
  }

  async writeIdentity(identity: string, replace = false): Promise<void> {
    const part = `${this.#paths.identity}-${randomUUID()}`;
    const file = await open(part, 'wx', 0o600);
    try {
      await file.writeFile(`${identity}\n`);
      await file.sync();
      if (replace) await rename(part, this.#paths.identity);
      else await this.#place(part, this.#paths.identity);
      await syncPath(this.#paths.blobs);
    } finally {
      await file.close();
      await rm(part, { force: true });
    }
  }

  async check(): Promise<void> {
    await this.#checkFolder();
    const folder = await opendir(this.#paths.blobs);
    await folder.read().finally(() => folder.close());
  }

  async checkWrites(): Promise<void> {
    await access(this.#paths.blobs, constants.W_OK);
  }

  async close(): Promise<void> {
    await this.#folder?.close();
    this.#folder = undefined;
  }

  /** Rejects if the folder of the blobs was removed, replaced, mounted over or unmounted since `prepare`. */
  async #checkFolder(): Promise<void> {
    if (!this.#folder) return;
    const known = await this.#folder.stat({ bigint: true });
    const found = await stat(this.#paths.blobs, { bigint: true }).catch((error: unknown) => {
      if (isMissing(error)) return undefined;
      throw error;
    });
    if (known.ino === found?.ino && known.dev === found.dev) return;
    throw storageUnavailable(
      'The folder of the stored content was removed or replaced while the server runs. Restore it, and start the server again.',
    );
  }

  async #listed(digest: Digest): Promise<ListedBlob | undefined> {
    const found = await statFile(this.pathOf(digest));
    return found?.isFile() ? { digest, size: found.size, storedAt: found.mtimeMs } : undefined;
  }

  /** Gives a complete file its name, unless there is a file of this name. */
  async #place(part: string, path: string): Promise<void> {
    try {
      await link(part, path);
    } catch {
      // Some network disks have no links. There, the identity in the database decides between two instances.
      if ((await statFile(path)) === undefined) await rename(part, path);
    }
  }

  /** For a put that is repeated after a deletion, because a renamed staged file was deleted with it, or whose folder was removed. */
  async #copy(staged: StagedFile, path: string): Promise<void> {
    const part = this.#paths.staged(randomUUID());
    const file = await open(part, 'wx', 0o600);
    try {
      const buffer = Buffer.allocUnsafe(Math.min(copySize, staged.size));
      for (let position = 0; position < staged.size;) {
        const read = await staged.read(buffer, position);
        if (read === 0) throw new Error(`${staged.path} is shorter than its ${staged.size} bytes`);
        position += (await file.write(buffer, 0, read, position)).bytesWritten;
      }
      await file.datasync();
      await rename(part, path);
    } finally {
      await file.close();
      await rm(part, { force: true });
    }
  }
}

/**
 * Gives a staged file the name of its blob, unless a file of its size has it. With a link the staged file stays until it is
 * discarded, so that an upload session can continue if this process is killed before its commit ends. Damaged bytes are replaced by
 * a rename, and some network disks have no links.
 */
async function linkOrRename(staged: StagedFile, path: string): Promise<void> {
  try {
    await link(staged.path, path);
  } catch {
    if ((await statFile(path))?.size !== staged.size) await rename(staged.path, path);
  }
}

async function statFile(path: string) {
  return stat(path).catch((error: unknown) => {
    if (isMissing(error)) return undefined;
    throw error;
  });
}

/** The sorted names in a folder; none if it does not exist or is not a folder. */
async function namesIn(folder: string): Promise<string[]> {
  try {
    return (await readdir(folder)).sort();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return [];
    throw error;
  }
}

function isMissing(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'ENOENT';
}
