import { link, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';
import { isDigest, type Digest } from '../../runtime/digest.ts';
import { inTurnShared } from '../../runtime/in-turn.ts';
import type { Content } from '../files/content.ts';
import type { CacheCounts } from './counts.ts';
import { openWholeFile } from '../files/file-content.ts';
import { makeFolder } from '../files/permissions.ts';

/** After an eviction, the files have at most this share of the limit, so that not every new file causes one. */
const keptShare = 0.9;
/** After additions of more than this share of the limit, the files of all processes are counted again. */
const addedShare = 0.1;
/** Milliseconds without a write after which a part of another process counts as abandoned. */
const abandonedAfter = 3_600_000;

/**
 * Copies of whole blobs as files in one folder, bounded in bytes. The time of a file is that of its last use. Processes can
 * share the folder; then each counts the files of the others after it has added a tenth of the limit, so that together they may
 * exceed the limit by a tenth for each process.
 */
export class BlobCache {
  readonly limit: number;
  readonly #folder: string;
  /** `bytes` are those of all files at the last look, and of those added since. */
  readonly counts: CacheCounts = { hit: 0, joined: 0, miss: 0, evicted: 0, bytes: 0 };
  #added = 0;
  readonly #evictInTurn = inTurnShared(() => this.#evict());

  constructor(folder: string, limit: number) {
    this.#folder = folder;
    this.limit = limit;
  }

  async prepare(): Promise<void> {
    await makeFolder(this.#folder);
    await this.#evict();
  }

  /** The copy of a blob; undefined if there is none of this size. A check is no use. */
  async open(digest: Digest, size: number, forCheck = false): Promise<Content | undefined> {
    const path = this.#pathOf(digest);
    try {
      const content = await openWholeFile(path, size);
      if (!content) await rm(path, { force: true });
      const now = new Date();
      if (!forCheck) void utimes(path, now, now).catch(() => undefined);
      return content;
    } catch {
      // A copy that cannot be read is not needed.
      return undefined;
    }
  }

  /** Whether there is a copy of a blob, of any size. */
  async has(digest: Digest): Promise<boolean> {
    return (await stat(this.#pathOf(digest)).catch(() => undefined)) !== undefined;
  }

  /** The path of a new file that will be kept with `keep`. */
  partPath(): string {
    return join(this.#folder, `${randomUUID()}.part`);
  }

  /** Makes the file at `part` the copy of a blob, and deletes the least recently used ones if there are too many bytes. */
  async keep(digest: Digest, part: string, size: number): Promise<void> {
    await rename(part, this.#pathOf(digest));
    await this.#count(size);
  }

  /** Keeps the synced file at `path` also as a copy, without copying it. Does nothing if the disk has no hard links. */
  async adopt(digest: Digest, path: string, size: number): Promise<void> {
    try {
      await link(path, this.#pathOf(digest));
    } catch {
      return;
    }
    await this.#count(size);
  }

  /** Forgets the copy of a blob. */
  async remove(digest: Digest): Promise<void> {
    const path = this.#pathOf(digest);
    const size = (await stat(path).catch(() => undefined))?.size ?? 0;
    await rm(path, { force: true });
    this.counts.bytes -= size;
  }

  async #count(size: number): Promise<void> {
    this.counts.bytes += size;
    this.#added += size;
    if (this.counts.bytes <= this.limit && this.#added <= this.limit * addedShare) return;
    // A failure is ignored: the copy is there, and the next one tries again.
    await this.#evictInTurn().catch(() => undefined);
  }

  async #evict(): Promise<void> {
    this.#added = 0;
    const files: { path: string; size: number; usedAt: number }[] = [];
    for (const name of await readdir(this.#folder)) {
      const path = join(this.#folder, name);
      const found = await stat(path).catch(() => undefined);
      if (!found?.isFile()) continue;
      if (isDigest(name.replace('-', ':'))) files.push({ path, size: found.size, usedAt: found.mtimeMs });
      else if (found.mtimeMs < Date.now() - abandonedAfter) await rm(path, { force: true });
    }
    let bytes = files.reduce((sum, { size }) => sum + size, 0);
    const most = bytes > this.limit ? this.limit * keptShare : this.limit;
    for (const { path, size } of files.toSorted((a, b) => a.usedAt - b.usedAt)) {
      if (bytes <= most) break;
      await rm(path, { force: true });
      this.counts.evicted += 1;
      bytes -= size;
    }
    this.counts.bytes = bytes;
  }

  #pathOf(digest: Digest): string {
    return join(this.#folder, digest.replace(':', '-'));
  }
}
