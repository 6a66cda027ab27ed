import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Config } from '../config/schema.ts';
import type { Database } from '../database/database.ts';
import { algorithmOf, type Digest, type DigestAlgorithm } from '../digest.ts';
import { DomainError, isDomainError } from '../errors.ts';
import type { BlobStore } from '../storage/blob-store.ts';
import type { StagedFile } from '../storage/staged-file.ts';
import type { ImageBlobs } from './image-blobs.ts';
import { readUpload, UploadLease, uploadBusy, uploadUnknown, type UploadKey } from './upload-lease.ts';

/** A body that is to be appended. */
export interface Chunk {
  source: Readable;
  /** Where the sender says it starts, and its length, as far as it says. */
  start?: number | undefined;
  length?: number | undefined;
  /** Told of every piece that arrives. */
  onData: (bytes: number) => void;
}

/** The request that is writing a session in this process. */
interface Writer {
  source: Readable;
  /** When its source was last heard of, by `performance.now()`. */
  lastDataAt: number;
  done: Promise<unknown>;
}

/** Files kept open between the requests of their sessions, and for how many milliseconds. */
const maxOpen = 64;
const openTime = 60_000;
/** A writer that is silent for so long gives way to a client that comes back. */
const silentLimit = 2000;

/**
 * Upload sessions (distribution-spec, "Pushing blobs"): a row and a staged file. Bytes that have arrived stay when the
 * connection breaks off or the server restarts, and the row tells how many there are. A session is written by one request
 * at a time; between requests its file and running hash are kept open for a while.
 */
export class Uploads {
  readonly #database: Database;
  readonly #blobs: BlobStore;
  readonly #images: ImageBlobs;
  readonly #limits: Config['limits'];
  readonly #now: () => number;
  readonly #writers = new Map<string, Writer>();
  readonly #open = new Map<string, { staged: StagedFile; since: number }>();

  constructor(database: Database, blobs: BlobStore, images: ImageBlobs, limits: Config['limits'], now: () => number) {
    this.#database = database;
    this.#blobs = blobs;
    this.#images = images;
    this.#limits = limits;
    this.#now = now;
  }

  /** A whole blob in one body; `DigestMismatch`, `TooLarge` or `Aborted` leave nothing behind. */
  async whole(accountId: number, repository: string, digest: Digest, chunk: Chunk): Promise<void> {
    const staged = await this.#blobs.stage([algorithmOf(digest)]);
    try {
      await this.#append(staged, chunk);
      await verify(staged, digest, null);
    } catch (error) {
      await staged.discard();
      throw error;
    }
    await this.#images.add(accountId, repository, staged, digest);
  }

  /** Starts a session whose bytes are hashed with `algorithm` as they arrive; resolves to its id. */
  async start(accountId: number, repository: string, algorithm: DigestAlgorithm): Promise<string> {
    const staged = await this.#blobs.stage([algorithm]);
    const now = this.#now();
    try {
      const row = {
        id: staged.id,
        account_id: accountId,
        repository,
        received: 0,
        digest: staged.runningDigest(algorithm) ?? null,
        created_at: now,
        updated_at: now,
      };
      await this.#database.transaction((tx) => tx.insert('uploads', row), { fleeting: true });
    } catch (error) {
      await staged.discard();
      throw error;
    }
    await this.#keep(staged);
    return staged.id;
  }

  /** How many bytes the session has. */
  async received(key: UploadKey): Promise<number> {
    const writer = this.#writers.get(key.id);
    // Its connection is gone, so what it leaves is about to be recorded.
    if (writer?.source.destroyed) await Promise.race([writer.done, sleep(1000)]);
    return (await readUpload(this.#database, key)).received;
  }

  /**
   * Appends a chunk; resolves to how many bytes the session has then. `UploadOutOfOrder` when it starts elsewhere than
   * where the session ends. What arrived before the connection broke off stays; after any other error nothing does.
   */
  append(key: UploadKey, chunk: Chunk): Promise<number> {
    return this.#write(key, chunk, async (staged, lease, observed) => {
      await this.#appendInOrder(staged, lease, observed);
      await this.#record(staged, lease);
      return staged.size;
    });
  }

  /**
   * Appends the last chunk and makes the whole a blob, if it has `digest`; else the session ends with `DigestMismatch`,
   * because which of its bytes are wrong nobody can tell.
   */
  finish(key: UploadKey, digest: Digest, chunk: Chunk): Promise<void> {
    return this.#write(key, chunk, async (staged, lease, observed) => {
      const appended = await this.#appendInOrder(staged, lease, observed);
      try {
        await verify(staged, digest, appended === 0 ? lease.row.digest : null);
        await this.#images.add(key.accountId, key.repository, staged, digest, (tx) => lease.end(tx));
      } catch (error) {
        await this.#drop(key.id);
        await staged.discard();
        throw error;
      }
    });
  }

  /** Ends a session and drops its bytes; a request that is writing it is cut off. */
  async cancel(key: UploadKey): Promise<void> {
    await readUpload(this.#database, key);
    const writer = this.#writers.get(key.id);
    writer?.source.destroy();
    await Promise.race([writer?.done, sleep(1000)]);
    if (!(await this.#drop(key.id))) throw uploadUnknown(key.id);
  }

  /** Drops sessions untouched for longer than `limits.uploadAge`, and staged files that no session claims. */
  async expire(now: number): Promise<void> {
    const before = now - this.#limits.uploadAge;
    for (;;) {
      const rows = await this.#database.select<{ id: string }>(
        'SELECT id FROM uploads WHERE updated_at < ? ORDER BY updated_at LIMIT 100',
        [before],
      );
      if (rows.length === 0) break;
      for (const { id } of rows) await this.#drop(id, before);
    }
    await this.#blobs.expireStaged(
      before,
      async (id) => (await this.#database.get('SELECT id FROM uploads WHERE id = ?', [id])) !== undefined,
    );
  }

  /** Closes files whose sessions have been quiet for a minute; they can still go on. */
  async closeQuiet(): Promise<void> {
    const before = performance.now() - openTime;
    for (const [id, { staged, since }] of this.#open) {
      if (since >= before) break;
      this.#open.delete(id);
      await staged.close();
    }
  }

  /** Waits for what is being written, and closes all files. */
  async close(): Promise<void> {
    await Promise.all([...this.#writers.values()].map(({ done }) => done));
    const files = [...this.#open.values()];
    this.#open.clear();
    for (const { staged } of files) await staged.close();
  }

  /** Runs `work` as the only writer of the session, here and on other instances. */
  async #write<T>(
    key: UploadKey,
    chunk: Chunk,
    work: (staged: StagedFile, lease: UploadLease, observed: Chunk) => Promise<T>,
  ): Promise<T> {
    while (this.#writers.has(key.id)) await this.#waitForWriter(this.#writers.get(key.id)!);
    const { promise: done, resolve } = Promise.withResolvers<void>();
    const writer: Writer = { source: chunk.source, lastDataAt: performance.now(), done };
    this.#writers.set(key.id, writer);
    const onData = (bytes: number) => {
      writer.lastDataAt = performance.now();
      chunk.onData(bytes);
    };
    let lease: UploadLease | undefined;
    try {
      lease = await UploadLease.take(this.#database, this.#now, key, () => chunk.source.destroy());
      return await work(await this.#reopen(lease), lease, { ...chunk, onData });
    } finally {
      lease?.stop();
      this.#writers.delete(key.id);
      resolve();
    }
  }

  /** A writer whose client has gone or fallen silent ends; `UploadBusy` for one that is at work. */
  async #waitForWriter(writer: Writer): Promise<void> {
    if (writer.source.destroyed || performance.now() - writer.lastDataAt >= silentLimit) {
      writer.source.destroy();
      await writer.done;
      return;
    }
    const ended = await Promise.race([writer.done.then(() => true), sleep(250)]);
    if (!ended && !writer.source.destroyed) throw uploadBusy();
  }

  async #reopen(lease: UploadLease): Promise<StagedFile> {
    const { id, received, digest, torn } = lease.row;
    const held = this.#open.get(id)?.staged;
    this.#open.delete(id);
    if (held && torn === 0 && held.size === received) return held;
    await held?.close();
    try {
      return await this.#blobs.reopen(id, received, torn === 1);
    } catch (error) {
      await lease.release(received, digest);
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
      return await this.#append(staged, chunk);
    } catch (error) {
      if (isDomainError(error, 'Aborted')) {
        await this.#record(staged, lease);
      } else {
        await staged.close();
        await lease.release(received, digest);
      }
      throw error;
    }
  }

  async #append(staged: StagedFile, { source, length, onData }: Chunk): Promise<number> {
    const appending = staged.append(source, {
      limit: this.#limits.blob,
      idle: this.#limits.uploadIdle,
      consume: true,
    });
    source.on('data', (piece: Buffer) => onData(piece.length));
    const appended = await appending;
    if (length === undefined || appended === length) return appended;
    throw new DomainError('LengthInvalid', `The body has ${appended} bytes, its Content-Range ${length}.`, {
      detail: { expected: length, received: appended },
    });
  }

  /** Records what is in the file, durably, and keeps it open for the next request. */
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
      if (isDomainError(error, 'UploadUnknown')) await staged.discard();
      else await staged.close();
      throw error;
    }
    await this.#keep(staged);
  }

  async #keep(staged: StagedFile): Promise<void> {
    this.#open.set(staged.id, { staged, since: performance.now() });
    if (this.#open.size <= maxOpen) return;
    const [id, oldest] = this.#open.entries().next().value!;
    this.#open.delete(id);
    await oldest.staged.close();
  }

  /** Deletes the session, unless it was touched since `before`; resolves to whether it did. */
  async #drop(id: string, before = Number.MAX_SAFE_INTEGER): Promise<boolean> {
    const deleted = await this.#database.transaction((tx) =>
      tx.run('DELETE FROM uploads WHERE id = ? AND updated_at < ?', [id, before]),
    );
    if (deleted === 0) return false;
    const held = this.#open.get(id)?.staged;
    this.#open.delete(id);
    await held?.close();
    await this.#blobs.discardStaged(id);
    return true;
  }
}

/** `known` is the digest of what is there where it was recorded, so that the file need not be read again. */
async function verify(staged: StagedFile, digest: Digest, known: Digest | null): Promise<void> {
  const algorithm = algorithmOf(digest);
  const found = known && algorithmOf(known) === algorithm ? known : await staged.digest(algorithm);
  if (found === digest) return;
  throw new DomainError(
    'DigestMismatch',
    'What was uploaded does not have this digest, and was dropped. Start a new upload.',
    { detail: { expected: digest, found } },
  );
}
