import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from '../../config/schema.ts';
import type { Database, Transaction } from '../../database/database.ts';
import { algorithmOf, type Digest, type DigestAlgorithm } from '../../runtime/digest.ts';
import { DomainError, isDomainError } from '../../runtime/errors.ts';
import type { BlobStore } from '../../storage/blobs/blob-store.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import type { ImageBlobs } from '../hosted/image-blobs.ts';
import { dropStagedFiles, withoutFile } from './lost-uploads.ts';
import { OpenFiles } from './open-files.ts';
import { appendBody, verify, type Chunk } from './upload-body.ts';
import { countedBytes, readUpload, tooManySessions, UploadLease } from './upload-lease.ts';
import { uploadBusy, uploadUnknown, type UploadKey } from './upload-lease.ts';

/** The request that is writing a session in this process. */
interface Writer {
  source: Readable;
  /** Bytes that it has received. */
  arrived: number;
  /** The size of the session before it; undefined until it has the lease. */
  from: number | undefined;
  /** The time of the last data from its source, by `performance.now()`. */
  lastDataAt: number;
  done: Promise<unknown>;
}

interface UploadOptions {
  limits: Config['limits'];
  now: () => number;
  /** The identity of the data folder that has the staged files. */
  folder: string;
}

/** The most open sessions of one account. Each has a row and a file. */
const maxSessions = 1000;
/** Milliseconds after the last change of a session from which it needs a file to stay. */
const settled = 60_000;
/** Milliseconds after which a writer without new data is stopped if another request wants to write. */
const silentLimit = 2000;

/**
 * Upload sessions (distribution-spec, "Pushing blobs"): a row and a staged file. Bytes that have arrived are kept when the
 * connection is cut or the server restarts; the row has their number. One request at a time writes a session. Between
 * requests, its file and running hash stay open for a while.
 */
export class Uploads {
  readonly #database: Database;
  readonly #blobs: BlobStore;
  readonly #images: ImageBlobs;
  readonly #limits: Config['limits'];
  readonly #now: () => number;
  readonly #folder: string;
  readonly #writers = new Map<string, Writer>();
  readonly #open = new OpenFiles();

  constructor(database: Database, blobs: BlobStore, images: ImageBlobs, { limits, now, folder }: UploadOptions) {
    this.#database = database;
    this.#blobs = blobs;
    this.#images = images;
    this.#limits = limits;
    this.#now = now;
    this.#folder = folder;
  }

  /** Stores a whole blob from one body. After an error nothing of it is kept. */
  async whole(accountId: number, repository: string, digest: Digest, chunk: Chunk): Promise<void> {
    if (chunk.allowance) return this.#wholeInSession(accountId, repository, digest, chunk);
    const staged = await this.#blobs.stageHosted(this.#expectedOf(chunk), [algorithmOf(digest)]);
    await this.#sendingEarly(digest, staged, chunk, async (observed) => {
      try {
        await this.#append(staged, observed);
        await verify(staged, digest, null);
      } catch (error) {
        await staged.discard();
        throw error;
      }
      await this.#images.add(accountId, repository, staged, digest);
    });
  }

  /** With a limit of storage, the bytes have to count while they arrive, and only a session's row can have their number. */
  async #wholeInSession(accountId: number, repository: string, digest: Digest, chunk: Chunk): Promise<void> {
    const id = await this.start(accountId, repository, algorithmOf(digest));
    try {
      await this.finish({ accountId, repository, id }, digest, { ...chunk, start: undefined });
    } catch (error) {
      await this.#drop(id);
      throw error;
    }
  }

  /**
   * Starts a session whose bytes are hashed with `algorithm` as they arrive; resolves to its id. `TooManyRequests` if the
   * account has 1,000 open ones.
   */
  async start(accountId: number, repository: string, algorithm: DigestAlgorithm): Promise<string> {
    const staged = await this.#blobs.stageHosted(0, [algorithm]);
    const now = this.#now();
    try {
      const row = {
        id: staged.id,
        account_id: accountId,
        repository,
        received: 0,
        reserved: 0,
        digest: staged.runningDigest(algorithm) ?? null,
        folder: this.#folder,
        created_at: now,
        updated_at: now,
      };
      await this.#database.transaction(
        async (tx) => {
          const open = await tx.get<{ count: number }>('SELECT COUNT(*) AS count FROM uploads WHERE account_id = ?', [
            accountId,
          ]);
          if (open!.count >= maxSessions) throw tooManySessions(maxSessions);
          await tx.insert('uploads', row);
        },
        { fleeting: true },
      );
    } catch (error) {
      await staged.discard();
      throw error;
    }
    await this.#open.keep(staged);
    return staged.id;
  }

  /** Whether this process has the session's file open. */
  isOpen(id: string): boolean {
    return this.#open.has(id) || this.#writers.has(id);
  }

  /** The bytes that the unfinished uploads of the account have, or have reserved while they arrive. */
  async bytesOf(accountId: number): Promise<number> {
    const row = await this.#database.get<{ bytes: number | null }>(
      `SELECT SUM(${countedBytes}) AS bytes FROM uploads WHERE account_id = ?`,
      [this.#now(), accountId],
    );
    return row?.bytes ?? 0;
  }

  /**
   * The number of bytes that the session has, with those that its writer in this process has received so far. Another process may
   * be writing, or may have been killed: then only its recorded bytes are sure to stay. `UploadUnknown` if the file is gone.
   */
  async received(key: UploadKey): Promise<number> {
    const writer = this.#writers.get(key.id);
    // The writer's connection is closed: wait until it has recorded its bytes.
    if (writer?.source.destroyed) await Promise.race([writer.done, sleep(1000)]);
    const row = await readUpload(this.#database, key);
    const active = this.#writers.get(key.id);
    if (active?.from !== undefined) return active.from + active.arrived;
    const size = this.#open.has(key.id) ? row.received : ((await this.#blobs.stagedSize(key.id)) ?? -1);
    if (size < row.received) throw uploadUnknown(key.id);
    return row.received;
  }

  /**
   * Appends a chunk; resolves to the new number of bytes of the session. `UploadOutOfOrder` if the chunk does not start
   * where the session ends. If the connection is cut, the bytes that arrived are kept. If the disk becomes full
   * (`StorageFull`), the bytes of all complete writes are kept. After any other error, no byte of the chunk is kept.
   */
  append(key: UploadKey, chunk: Chunk): Promise<number> {
    return this.#write(key, chunk, async (staged, lease, observed) => {
      await this.#appendInOrder(staged, lease, observed);
      await this.#record(staged, lease);
      return staged.size;
    });
  }

  /**
   * Appends the last chunk, verifies `digest`, and makes the session's bytes a blob. `DigestMismatch` ends the session,
   * because it is not known which of its bytes are wrong. Does nothing for a session that has ended with this blob: its
   * client repeats the request because the answer was lost.
   */
  async finish(key: UploadKey, digest: Digest, chunk: Chunk): Promise<void> {
    try {
      await this.#finish(key, digest, chunk);
    } catch (error) {
      if (!isDomainError(error, 'UploadUnknown')) throw error;
      const { accountId, repository, id } = key;
      if (!(await this.#images.isFromUpload(accountId, repository, digest, id))) throw error;
    }
  }

  #finish(key: UploadKey, digest: Digest, chunk: Chunk): Promise<void> {
    return this.#write(key, chunk, (staged, lease, observed) =>
      this.#sendingEarly(digest, staged, observed, async (last) => {
        const appended = await this.#appendInOrder(staged, lease, last);
        try {
          await verify(staged, digest, appended === 0 ? lease.row.digest : null);
          await lease.check();
          const end = (tx: Transaction) => lease.end(tx);
          await this.#images.add(key.accountId, key.repository, staged, digest, { id: key.id, end });
        } catch (error) {
          if (isDomainError(error, 'UploadUnknown')) {
            await staged.close();
          } else {
            // The session expires later if the database cannot delete it now. One that another writer has taken stays.
            await this.#database.transaction((tx) => lease.end(tx)).catch(() => undefined);
            await staged.discard();
          }
          throw error;
        }
      }),
    );
  }

  /** Runs `receive`. The storage can get the bytes while they arrive, because their digest is named. A commit stores them. */
  async #sendingEarly(
    digest: Digest,
    staged: StagedFile,
    chunk: Chunk,
    receive: (chunk: Chunk) => Promise<void>,
  ): Promise<void> {
    const early = staged.size === 0 ? this.#blobs.putEarly(digest, staged, chunk.size) : undefined;
    try {
      await receive({ ...chunk, onWritten: () => early?.grown() });
    } finally {
      early?.stop();
    }
  }

  /** Ends a session and removes its bytes. A request that is writing it is aborted. */
  async cancel(key: UploadKey): Promise<void> {
    await readUpload(this.#database, key);
    const writer = this.#writers.get(key.id);
    writer?.source.destroy();
    await Promise.race([writer?.done, sleep(1000)]);
    if (!(await this.#drop(key.id))) throw uploadUnknown(key.id);
  }

  /**
   * Removes sessions that were not changed for `limits.uploadAge`, and staged files without a session. Resolves to their
   * numbers, and the bytes of their files.
   */
  async expire(now: number): Promise<{ sessions: number; files: number; bytes: number }> {
    const before = now - this.#limits.uploadAge;
    const removed = { sessions: 0, bytes: 0 };
    for (;;) {
      const rows = await this.#database.select<{ id: string }>(
        'SELECT id FROM uploads WHERE updated_at < ? ORDER BY updated_at LIMIT 100',
        [before],
      );
      if (rows.length === 0) break;
      for (const { id } of rows) {
        const size = (await this.#blobs.stagedSize(id)) ?? 0;
        if (!(await this.#drop(id, before))) continue;
        removed.sessions += 1;
        removed.bytes += size;
      }
    }
    const orphans = await dropStagedFiles(this.#database, this.#blobs, before);
    return { ...removed, files: orphans.files, bytes: removed.bytes + orphans.bytes };
  }

  /** Deletes sessions of this data folder that another instance has ended, or that have no file any more. */
  async dropLost(): Promise<void> {
    const sql = 'SELECT id FROM uploads WHERE lost = 1 AND folder = ? LIMIT 100';
    for (const { id } of await this.#database.select<{ id: string }>(sql, [this.#folder])) await this.#drop(id);
    // A writer may have moved the file of a session that it is about to end.
    const before = this.#now() - settled;
    for (const id of await withoutFile(this.#database, this.#blobs, this.#folder, before)) await this.#drop(id, before);
  }

  /** Closes files whose sessions had no request for a minute. The sessions stay. */
  closeQuiet(): Promise<void> {
    return this.#open.closeQuiet();
  }

  /** Waits for the requests that are writing, and closes all files. */
  async close(): Promise<void> {
    await Promise.all([...this.#writers.values()].map(({ done }) => done));
    await this.#open.close();
  }

  /** Runs `work` as the only writer of the session, here and on other instances. */
  async #write<T>(
    key: UploadKey,
    chunk: Chunk,
    work: (staged: StagedFile, lease: UploadLease, observed: Chunk) => Promise<T>,
  ): Promise<T> {
    await this.#blobs.admit(this.#expectedOf(chunk));
    while (this.#writers.has(key.id)) await this.#waitForWriter(this.#writers.get(key.id)!);
    const { promise: done, resolve } = Promise.withResolvers<void>();
    const writer: Writer = { source: chunk.source, arrived: 0, from: undefined, lastDataAt: performance.now(), done };
    this.#writers.set(key.id, writer);
    const onData = (bytes: number) => {
      writer.lastDataAt = performance.now();
      writer.arrived += bytes;
      chunk.onData(bytes);
    };
    let lease: UploadLease | undefined;
    try {
      lease = await UploadLease.take(this.#database, this.#now, key, () => chunk.source.destroy());
      writer.from = lease.row.received;
      return await work(await this.#reopen(lease), lease, { ...chunk, onData });
    } finally {
      lease?.stop();
      this.#writers.delete(key.id);
      resolve();
    }
  }

  /** Stops a writer whose client has left or sends nothing; `UploadBusy` for one that still receives data. */
  async #waitForWriter(writer: Writer): Promise<void> {
    if (writer.source.destroyed || performance.now() - writer.lastDataAt >= silentLimit) {
      writer.source.destroy();
      await writer.done;
      return;
    }
    const ended = await Promise.race([writer.done.then(() => true), sleep(250)]);
    if (!ended && !writer.source.destroyed) throw uploadBusy();
  }

  /** Goes on with the file that this process has open, unless another one has changed the session, or detached its path. */
  async #reopen(lease: UploadLease): Promise<StagedFile> {
    const { id, received, digest, torn } = lease.row;
    const held = this.#open.take(id);
    if (held && torn === 0 && held.size === received && (await held.isAtPath().catch(() => false))) return held;
    await held?.close();
    try {
      return await this.#blobs.reopen(id, received, torn === 1);
    } catch (error) {
      await lease.release(received, digest, torn);
      throw error;
    }
  }

  async #appendInOrder(staged: StagedFile, lease: UploadLease, chunk: Chunk): Promise<number> {
    const { received, digest } = lease.row;
    if (chunk.start !== undefined && chunk.start !== received) {
      await this.#record(staged, lease);
      throw new DomainError('UploadOutOfOrder', `The next chunk of this upload has to start at byte ${received}.`, {
        detail: { received },
      });
    }
    try {
      return await this.#append(staged, chunk, lease);
    } catch (error) {
      if (isDomainError(error, 'Aborted') || isDomainError(error, 'StorageFull')) {
        await this.#record(staged, lease);
      } else {
        await staged.cut(received);
        await lease.release(received, digest);
      }
      throw error;
    }
  }

  /** The bytes of a body that the disk needs room for; a body over the limit is `TooLarge` when it arrives. */
  #expectedOf({ size }: Chunk): number {
    return Math.min(size, this.#limits.blob ?? size);
  }

  async #append(staged: StagedFile, chunk: Chunk, lease?: UploadLease): Promise<number> {
    const { blob: limit, uploadIdle } = this.#limits;
    const { length, idle = uploadIdle } = chunk;
    const appended = await appendBody(staged, chunk, { limit, idle, consume: true }, lease);
    if (length === undefined || appended === length) return appended;
    throw new DomainError('LengthInvalid', `The body has ${appended} bytes, its Content-Range ${length}.`, {
      detail: { expected: length, received: appended },
    });
  }

  /** Syncs the file, records its size, and keeps it open for the next request. */
  async #record(staged: StagedFile, lease: UploadLease): Promise<void> {
    const { received, digest } = lease.row;
    try {
      if (staged.size === received) {
        await lease.release(received, digest);
      } else {
        await staged.sync();
        await lease.release(staged.size, staged.runningDigest(digest ? algorithmOf(digest) : 'sha256') ?? null);
      }
    } catch (error) {
      // The file may belong to another writer now, that took the lease. If the session was cancelled, the file is gone.
      await staged.close();
      throw error;
    }
    await this.#open.keep(staged);
  }

  /** Deletes the session, unless it was changed at or after `before`; resolves to whether it was deleted. */
  async #drop(id: string, before = Number.MAX_SAFE_INTEGER): Promise<boolean> {
    const deleted = await this.#database.transaction((tx) =>
      tx.run('DELETE FROM uploads WHERE id = ? AND updated_at < ?', [id, before]),
    );
    if (deleted === 0) return false;
    await this.#open.take(id)?.close();
    await this.#blobs.discardStaged(id);
    return true;
  }
}
