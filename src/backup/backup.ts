import { randomUUID } from 'node:crypto';
import type { Database } from '../database/database.ts';
import { appliedMigrations } from '../database/tables.ts';
import { algorithmOf, digestOf, startHash, type Digest } from '../runtime/digest.ts';
import { isDomainError } from '../runtime/errors.ts';
import { Throttle } from '../runtime/incoming.ts';
import { version } from '../runtime/package.ts';
import type { Content } from '../storage/files/content.ts';
import type { Driver } from '../storage/drivers/driver.ts';
import { CollectionPause } from '../storage/upkeep/collection-pause.ts';
import { installationIdentity } from '../storage/upkeep/identity.ts';
import { Pace } from '../storage/upkeep/pace.ts';
import type { BlobStore } from '../storage/blobs/blob-store.ts';
import type { References } from '../storage/blobs/references.ts';
import type { StagedFile } from '../storage/files/staged-file.ts';
import { backupInvalid, maxProblems, type BackupManifest } from './format.ts';
import { blobsOf, dumpedTables, dumpTable, rowFilters, type NamedBlob } from './rows.ts';
import { blobCost, Share, shareOf } from './share.ts';

/** Where a backup is written. Its methods are called in this order; nothing before `finish` changes an earlier backup. */
export interface BackupTarget extends AsyncDisposable {
  /**
   * Begins a backup with this state. Resolves to the manifest of an earlier backup in this place. Rejects if that is of
   * another installation.
   */
  begin(state: string, installation: string): Promise<BackupManifest | undefined>;
  putRows(table: string, file: Content & { size: number }): Promise<void>;
  /** Whether an earlier backup in this place has the blob. */
  has(blob: NamedBlob): Promise<boolean>;
  /** Whether the bytes that an earlier backup has match their digest. If not, `putBlob` replaces them. */
  isSound(blob: NamedBlob, throttle: Throttle): Promise<boolean>;
  /** `pieces` are exactly `size` bytes. Afterwards `isSound` says whether they match the digest. */
  putBlob(blob: NamedBlob, pieces: AsyncIterable<Uint8Array>, isSound: () => boolean): Promise<void>;
  putMissing(bytes: Buffer): Promise<void>;
  /** Makes the backup complete and durable, and removes what only earlier ones needed. */
  finish(manifest: BackupManifest, blobs: () => AsyncIterable<NamedBlob>): Promise<void>;
}

interface BackupParts {
  database: Database;
  driver: Driver;
  references: References;
  /** Stages rows, and keeps the reserve of the disk free. */
  blobs: Pick<BlobStore, 'stageHosted'>;
  now: () => number;
}

interface BackupOptions {
  /** Whether also mirrored content that can be fetched again is in the backup. */
  mirrored: boolean;
  /** Bytes per second that are read from the storage. */
  rate: number;
  /** Whether all blobs of an earlier backup are compared with their digests, instead of a share. */
  checkAll?: boolean | undefined;
  /** Ends the backup; it is then not complete. */
  signal?: AbortSignal | undefined;
  /** Milliseconds; see `holdLease`. */
  lease?: number | undefined;
  /** Called when the rows are written, before any blob is. */
  onRows?: (() => Promise<void>) | undefined;
}

interface BackedUp {
  rows: number;
  blobs: number;
  bytes: number;
  /** Blobs that were copied now, and their bytes. */
  copied: number;
  copiedBytes: number;
  /** Blobs of an earlier backup that were compared with their digests, and those that were damaged. */
  checked: number;
  damaged: Digest[];
  /** Blobs whose bytes are missing or damaged in the storage, and not in an earlier backup. */
  missing: Digest[];
}

type Tables = BackupManifest['tables'];

const piece = 256 * 1024;

/**
 * Writes a backup while the installation serves: all rows at one instant, then every blob that they name. Rejects if the
 * backup is not complete; damaged blobs are left out and reported.
 */
export async function backUp(parts: BackupParts, target: BackupTarget, options: BackupOptions): Promise<BackedUp> {
  await using stack = new AsyncDisposableStack();
  const { database, driver } = parts;
  const hold = stack.use(await CollectionPause.take(database, options.lease));
  const signal = options.signal ? AbortSignal.any([hold.signal, options.signal]) : hold.signal;
  const state = randomUUID();
  const installation = await installationIdentity(database);
  const earlier = await target.begin(state, installation);
  const share = options.checkAll
    ? new Share('', Infinity)
    : new Share(earlier?.checked_to ?? '', shareOf(earlier?.blobs ?? { count: 0, bytes: 0 }));
  const files = new Map<string, StagedFile>();
  stack.defer(async () => {
    for (const file of files.values()) await file.discard();
  });
  const { tables, migrations } = await dumpRows(parts, options, files, signal);
  for (const { name } of tables) {
    const file = files.get(name)!;
    await target.putRows(name, unlessStopped(await file.open(), signal));
    if (name !== 'blobs') await file.discard();
  }
  await options.onRows?.();
  const blobs = async function* () {
    const file = files.get('blobs')!;
    // Not by its name: a server removes old files of its staging folder.
    yield* blobsOf({
      size: file.size,
      read: (target, position) => file.read(target, position),
      close: () => undefined,
    });
  };
  const done: BackedUp = {
    rows: 0,
    blobs: 0,
    bytes: 0,
    copied: 0,
    copiedBytes: 0,
    checked: 0,
    damaged: [],
    missing: [],
  };
  const throttle = new Throttle(options.rate, signal);
  for await (const blob of blobs()) {
    signal.throwIfAborted();
    done.blobs += 1;
    done.bytes += blob.size;
    if (await target.has(blob)) {
      if (!share.takes(blob)) continue;
      await throttle.spend(blobCost);
      done.checked += 1;
      if (await target.isSound(blob, throttle)) continue;
      if (done.damaged.length < maxProblems) done.damaged.push(blob.digest);
    }
    await throttle.spend(blobCost);
    if (await copyBlob(driver, target, blob, throttle)) {
      done.copied += 1;
      done.copiedBytes += blob.size;
    } else {
      done.missing.push(blob.digest);
      if (done.missing.length > maxProblems)
        throw backupInvalid(`more than ${maxProblems} blobs are missing or damaged. Is the storage mounted?`);
    }
  }
  const missing = Buffer.from(done.missing.map((digest) => `${digest}\n`).join(''));
  await target.putMissing(missing);
  for (const { rows } of tables) done.rows += rows;
  const manifest: BackupManifest = {
    format: 'entrepot-backup',
    version: 1,
    created_at: new Date(parts.now()).toISOString(),
    program: version,
    installation,
    state,
    mirrored: options.mirrored,
    migrations,
    tables,
    blobs: { count: done.blobs, bytes: done.bytes },
    missing: { count: done.missing.length, bytes: missing.length, digest: digestOf(missing) },
    checked_to: share.next,
  };
  signal.throwIfAborted();
  await target.finish(manifest, blobs);
  return done;
}

/** Content whose reads reject when `signal` is aborted. */
function unlessStopped<Size>(content: Content & { size: Size }, signal: AbortSignal): Content & { size: Size } {
  return {
    size: content.size,
    read: async (target, position) => {
      signal.throwIfAborted();
      return content.read(target, position);
    },
    close: () => content.close(),
  };
}

/** Stages the rows of all tables as they are at one instant; adds each file to `staged`. */
async function dumpRows(
  { database, references, blobs }: BackupParts,
  { mirrored }: BackupOptions,
  staged: Map<string, StagedFile>,
  signal: AbortSignal,
): Promise<{ tables: Tables; migrations: string[] }> {
  const filters = mirrored ? rowFilters : withoutMirrored(references);
  const pace = new Pace(signal);
  return database.snapshot(async (from) => {
    const tables: Tables = [];
    for (const table of await dumpedTables(from)) {
      const file = await blobs.stageHosted(0);
      staged.set(table.name, file);
      const rows = await dumpTable(from, table, filters[table.name], pace, (bytes) => file.write(bytes));
      tables.push({ name: table.name, rows, bytes: file.size, digest: await file.digest() });
    }
    return { tables, migrations: await appliedMigrations(from) };
  });
}

/** Filters that leave out mirrored content that can be fetched again, and blobs that only it needs. */
function withoutMirrored({ isHosted, isLasting, lasting }: References): Record<string, string> {
  return { ...rowFilters, ...lasting, blobs: `(${rowFilters['blobs']}) AND (${isHosted} OR ${isLasting})` };
}

/** Resolves to whether the bytes are in the target now. */
async function copyBlob(driver: Driver, target: BackupTarget, blob: NamedBlob, throttle: Throttle): Promise<boolean> {
  let content: Content;
  try {
    // A read of it does not fail at damaged bytes, and neither reads nor makes a local copy.
    content = await driver.open(blob.digest, blob.size, true);
  } catch (error) {
    if (isDomainError(error, 'BlobUnknown') || isDomainError(error, 'ContentDamaged')) return false;
    throw error;
  }
  try {
    const reading = new Reading(content, blob, throttle);
    await target.putBlob(blob, reading.pieces(), () => reading.isSound);
    return reading.isSound;
  } finally {
    content.close();
  }
}

/** Reads a blob, and finds out whether its bytes match its digest. */
class Reading {
  /** After all pieces were read. */
  isSound = false;
  readonly #content: Content;
  readonly #blob: NamedBlob;
  readonly #throttle: Throttle;

  constructor(content: Content, blob: NamedBlob, throttle: Throttle) {
    this.#content = content;
    this.#blob = blob;
    this.#throttle = throttle;
  }

  /** Exactly the bytes that were announced: zeros in place of those that cannot be read. */
  async *pieces(): AsyncGenerator<Buffer> {
    const { digest, size } = this.#blob;
    const algorithm = algorithmOf(digest);
    const hash = startHash(algorithm);
    let canRead = true;
    for (let position = 0; position < size;) {
      // The target may keep a piece until it is written.
      const bytes = Buffer.allocUnsafe(Math.min(piece, size - position));
      const read: number = canRead ? await this.#read(bytes, position) : 0;
      canRead = read > 0;
      if (!canRead) bytes.fill(0);
      const some = canRead ? bytes.subarray(0, read) : bytes;
      hash.update(some);
      position += some.length;
      await this.#throttle.spend(some.length);
      yield some;
    }
    this.isSound = canRead && `${algorithm}:${hash.digest('hex')}` === digest;
  }

  async #read(target: Buffer, position: number): Promise<number> {
    try {
      return await this.#content.read(target, position);
    } catch (error) {
      // The disk cannot read this part of the file.
      if ((error as NodeJS.ErrnoException).code === 'EIO') return 0;
      // The object was removed, or replaced by a shorter one.
      if (isDomainError(error, 'BlobUnknown') || isDomainError(error, 'ContentDamaged')) return 0;
      throw error;
    }
  }
}
