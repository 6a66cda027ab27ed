import { mkdir, readdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type { BlobStore } from '../../storage/blobs/blob-store.ts';
import type { Content } from '../../storage/files/content.ts';
import { openFileContent } from '../../storage/files/file-content.ts';
import { DomainError } from '../../runtime/errors.ts';
import { segmentName } from '../format.ts';

/** A segment that is here. */
export interface SegmentFile {
  number: number;
  size: number;
}

interface ReceivedSegment {
  /** Most bytes. */
  limit: number;
  /** A sender that sends nothing for this many milliseconds is `Aborted`. */
  idle?: number | undefined;
  /** The bytes that the sender announces; 0 if it does not. */
  announced: number;
  /** Whether the source has no other reader. */
  consume: boolean;
}

/** The receipt beside the folders of the runs. */
const receiptName = 'receipt';
/** Most segments of an import by `/v1`, which are open at the same time. */
const maxSegmentFiles = 500;

/** The segments of runs: a folder for each run, on the disk of this server. IDs are those of rows in the database. */
export class BundleRunFiles {
  readonly #folder: string;
  readonly #blobs: BlobStore;

  constructor(folder: string, blobs: BlobStore) {
    this.#folder = folder;
    this.#blobs = blobs;
  }

  /** The folder of a run, which need not exist. */
  folderOf(id: string): string {
    return join(this.#folder, id);
  }

  async create(id: string): Promise<void> {
    await mkdir(this.folderOf(id), { recursive: true, mode: 0o700 });
  }

  /** The segments of a run; none if its folder is not here. */
  async segments(id: string): Promise<SegmentFile[]> {
    const names = (await this.#names(this.folderOf(id))).filter((name) => /^\d{4}\.tar$/.test(name)).toSorted();
    const found = names.map(async (name) => {
      const file = await stat(join(this.folderOf(id), name)).catch(() => undefined);
      return file && { number: Number(name.slice(0, 4)), size: file.size };
    });
    return (await Promise.all(found)).filter((each) => each !== undefined);
  }

  /**
   * Receives a segment, in place of an earlier one of this number; resolves to its bytes. Throws `TooLarge`, `Aborted`, `StorageFull`, `Invalid` if there
   * are too many, and `NotFound` if the files of the run are not on this server.
   */
  async receive(id: string, number: number, source: Readable, options: ReceivedSegment): Promise<number> {
    const { limit, idle, announced, consume } = options;
    const tooLarge = () => new DomainError('TooLarge', `A segment here has at most ${limit} bytes (bundles.segment).`);
    if (announced > limit) throw tooLarge();
    await this.#requireFolder(id);
    const others = (await this.segments(id)).filter((each) => each.number !== number);
    if (others.length >= maxSegmentFiles)
      throw new DomainError('Invalid', `An import here has at most ${maxSegmentFiles} segments. Use the command.`);
    const staged = await this.#blobs.stageHosted(announced, []);
    try {
      await staged.append(source, { limit, idle, consume }).catch((error: unknown) => {
        throw error instanceof DomainError && error.name === 'TooLarge' ? tooLarge() : error;
      });
      if (staged.size === 0) throw new DomainError('Invalid', 'The segment is empty.');
      await staged.sync();
      await rename(staged.path, join(this.folderOf(id), segmentName(number))).catch((error: NodeJS.ErrnoException) => {
        throw error.code === 'ENOENT' ? notHere() : error;
      });
      await staged.close();
      return staged.size;
    } catch (error) {
      await staged.discard();
      throw error;
    }
  }

  /** The path of the receipt of this server, which need not exist. */
  async receiptFile(): Promise<string> {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    return join(this.#folder, receiptName);
  }

  /** The receipt that was written last on this server; undefined without one. */
  async receipt(): Promise<{ size: number; writtenAt: number } | undefined> {
    const file = await stat(join(this.#folder, receiptName)).catch(() => undefined);
    return file && { size: file.size, writtenAt: file.mtimeMs };
  }

  /** Opens it. Throws `NotFound`. */
  async openReceipt(): Promise<Content & { readonly size: number }> {
    const found = await this.receipt();
    if (!found) throw new DomainError('NotFound', 'No receipt was written on this server. Write one first.');
    return openFileContent(join(this.#folder, receiptName), found.size);
  }

  /** Opens a segment. Throws `NotFound`. */
  async open(id: string, number: number): Promise<Content & { readonly size: number }> {
    const found = (await this.segments(id)).find((each) => each.number === number);
    if (!found) throw notHere();
    return openFileContent(join(this.folderOf(id), segmentName(number)), found.size);
  }

  async remove(id: string): Promise<void> {
    await rm(this.folderOf(id), { recursive: true, force: true });
  }

  /** Removes the files of all runs but those that `findKept` finds. The receipt stays. */
  async removeOthers(findKept: () => Promise<ReadonlySet<string>>): Promise<void> {
    // Read first, because a new run has a row before it has a folder.
    const names = await this.#names(this.#folder);
    const kept = await findKept();
    for (const name of names) if (!kept.has(name) && name !== receiptName) await this.remove(name);
  }

  async #names(folder: string): Promise<string[]> {
    return readdir(folder).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return [];
      throw error;
    });
  }

  async #requireFolder(id: string): Promise<void> {
    if (!(await stat(this.folderOf(id)).catch(() => undefined))) throw notHere();
  }
}

function notHere(): DomainError {
  return new DomainError(
    'NotFound',
    'This file is not here. The files of a bundle are kept for a day, on the server that made or received them.',
  );
}
