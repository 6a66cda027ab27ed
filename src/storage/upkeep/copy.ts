import type { Database } from '../../database/database.ts';
import type { Digest, DigestAlgorithm } from '../../runtime/digest.ts';
import { isDomainError } from '../../runtime/errors.ts';
import { Throttle } from '../../runtime/incoming.ts';
import type { Content } from '../files/content.ts';
import { checkContent } from '../drivers/check-stored.ts';
import type { Driver } from '../drivers/driver.ts';
import { CollectionPause } from './collection-pause.ts';
import { checkTarget, pairTarget } from './identity.ts';
import type { StagedFile } from '../files/staged-file.ts';
import { liveBlobs, type BlobRow } from '../blobs/states.ts';
import { isUnchanged, type ReportLine } from './verify.ts';

interface CopyParts {
  database: Database;
  source: Driver;
  target: Driver;
  /** Creates a staged file for `size` bytes; see `BlobStore.stageHosted`. */
  stage(size: number, algorithms: readonly DigestAlgorithm[]): Promise<StagedFile>;
}

interface CopyOptions {
  /** Bytes per second that are read from the source. */
  rate: number;
  /** Gets a line for each blob that cannot be copied. */
  report: ReportLine;
  onProgress?: ((progress: CopyProgress) => void) | undefined;
  /** Ends the copy; a later one continues. */
  signal?: AbortSignal | undefined;
  /** Milliseconds; see `holdLease`. */
  lease?: number | undefined;
}

interface CopyProgress {
  /** Blobs of this pass, and those of them that are looked at. */
  known: number;
  ended: number;
  /** Bytes that were copied in all passes. */
  received: number;
}

export interface Copied {
  /** Blobs and bytes that the last pass found in the source. */
  blobs: number;
  bytes: number;
  /** Those of all passes that were copied now. */
  copied: number;
  copiedBytes: number;
  passes: number;
  /** Whether the last pass found nothing to copy. */
  isSettled: boolean;
  /** Blobs that are missing or damaged in the source, and not in the target. */
  problems: ReadonlySet<Digest>;
}

/** Rows of one statement, and blobs that are copied at the same time. */
const page = 200;
const atOnce = 4;
/** Bytes that the rate limit counts for each blob besides its content, so that many small ones are limited too. */
const blobCost = 64 * 1024;
/** With pushes all the time, each pass finds a few new blobs. */
const maxPasses = 5;
/** More missing or damaged blobs mean that the source is not there. */
const maxProblems = 1000;

/**
 * Copies all live blobs to another storage while servers use the source, and pushes continue. A pass compares all rows with a list
 * of the target, and copies what is missing there, each blob only if its bytes match its digest. So an interrupted copy
 * continues. Passes are repeated until one finds nothing to copy, at most five times: what is pushed during a pass is copied
 * by the next one. Then the target gets the identity of the database. No blob that was live at the start is collected meanwhile.
 *
 * Rejects with `WrongPair` if the target belongs to another installation.
 */
export async function copyStorage(parts: CopyParts, options: CopyOptions): Promise<Copied> {
  const { database, source, target } = parts;
  await target.prepare();
  await checkTarget(database, target);
  await source.check();
  await using hold = await CollectionPause.take(database, options.lease, 'copy');
  const signal = options.signal ? AbortSignal.any([hold.signal, options.signal]) : hold.signal;
  const run = new CopyRun(parts, options, signal);
  let copied: Copied;
  do copied = await run.pass();
  while (!copied.isSettled && copied.passes < maxPasses);
  await pairTarget(database, target);
  return copied;
}

class CopyRun {
  readonly #parts: CopyParts;
  readonly #options: CopyOptions;
  readonly #signal: AbortSignal;
  readonly #throttle: Throttle;
  readonly #problems = new Set<Digest>();
  #passes = 0;
  #copied = 0;
  #copiedBytes = 0;

  constructor(parts: CopyParts, options: CopyOptions, signal: AbortSignal) {
    this.#parts = parts;
    this.#options = options;
    this.#signal = signal;
    this.#throttle = new Throttle(options.rate, signal);
  }

  async pass(): Promise<Copied> {
    const { database, target } = this.#parts;
    this.#passes += 1;
    const before = this.#copied;
    const known = (await database.get<{ blobs: number }>("SELECT COUNT(*) AS blobs FROM blobs WHERE state = 'live'"))!;
    const stored = new Listing(target);
    let blobs = 0;
    let bytes = 0;
    for await (const rows of liveBlobs(database, page)) {
      this.#signal.throwIfAborted();
      const missing: BlobRow[] = [];
      for (const row of rows) {
        bytes += row.size;
        if ((await stored.sizeOf(row.digest)) !== row.size && !this.#problems.has(row.digest)) missing.push(row);
      }
      let ended = blobs + rows.length - missing.length;
      const show = () =>
        this.#options.onProgress?.({ known: Math.max(known.blobs, ended), ended, received: this.#copiedBytes });
      show();
      await this.#copyAll(missing, () => {
        ended += 1;
        show();
      });
      blobs += rows.length;
    }
    return {
      blobs,
      bytes,
      copied: this.#copied,
      copiedBytes: this.#copiedBytes,
      passes: this.#passes,
      isSettled: this.#copied === before,
      problems: this.#problems,
    };
  }

  async #copyAll(rows: readonly BlobRow[], onEnd: () => void): Promise<void> {
    const left = rows[Symbol.iterator]();
    const failed = new AbortController();
    const work = async () => {
      for (const row of left) {
        if (failed.signal.aborted) return;
        try {
          await this.#copy(row);
        } catch (error) {
          failed.abort();
          throw error;
        }
        onEnd();
      }
    };
    for (const done of await Promise.allSettled(Array.from({ length: atOnce }, work)))
      if (done.status === 'rejected') throw done.reason;
  }

  async #copy(row: BlobRow): Promise<void> {
    const { database } = this.#parts;
    await this.#throttle.spend(blobCost);
    const problem = await this.#transfer(row);
    if (problem === undefined) {
      this.#copied += 1;
      this.#copiedBytes += row.size;
      return;
    }
    // Removed, or pushed again, since its row was read. The next pass copies the new bytes.
    if (!(await isUnchanged(database, row))) return;
    this.#problems.add(row.digest);
    this.#options.report(`${problem} ${row.digest}: ${row.size} bytes; not copied`);
    if (this.#problems.size > maxProblems)
      throw new Error(`more than ${maxProblems} blobs are missing or damaged in the source. Is it mounted?`);
  }

  /** What is wrong with the bytes of the source; undefined if they are in the target now. */
  async #transfer(blob: BlobRow): Promise<'missing' | 'damaged' | undefined> {
    const { digest, size } = blob;
    const { source, target } = this.#parts;
    const throttle = this.#throttle;
    let content: Content;
    try {
      content = await source.open(digest, size, true);
    } catch (error) {
      if (isDomainError(error, 'BlobUnknown')) return 'missing';
      if (isDomainError(error, 'ContentDamaged')) return 'damaged';
      throw error;
    }
    try {
      if (target.putContent) {
        if ((await checkContent(content, blob, { throttle })) !== 'sound') return 'damaged';
        await target.putContent(digest, content, size);
        return undefined;
      }
      const staged = await this.#parts.stage(size, []);
      try {
        const use = (bytes: Buffer) => staged.write(bytes);
        if ((await checkContent(content, blob, { throttle, use })) !== 'sound') return 'damaged';
        await target.put(digest, staged);
        return undefined;
      } finally {
        await staged.discard();
      }
    } finally {
      content.close();
    }
  }
}

/** The sizes of stored blobs, for questions in the order of the digests: one page of the list is in memory. */
class Listing {
  readonly #pages: AsyncIterator<{ digest: Digest; size: number }[]>;
  #page: { digest: Digest; size: number }[] = [];
  #next = 0;
  #isEnded = false;

  constructor(driver: Driver) {
    this.#pages = driver.list()[Symbol.asyncIterator]();
  }

  async sizeOf(digest: Digest): Promise<number | undefined> {
    for (;;) {
      const found = this.#page[this.#next];
      if (found && found.digest >= digest) return found.digest === digest ? found.size : undefined;
      if (found) this.#next += 1;
      else {
        if (this.#isEnded) return undefined;
        const { done, value } = await this.#pages.next();
        this.#isEnded = done === true;
        this.#page = value ?? [];
        this.#next = 0;
      }
    }
  }
}
