import type { Hash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import type { DigestAlgorithm } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import { pauseBody } from '../../runtime/event-loop.ts';
import { release, whenSilent } from '../../runtime/incoming.ts';
import { storageFull, writeAll, type Writing } from './disk.ts';

/** Chunks are collected until a write has this many bytes, unless they are written at once. */
const minWrite = 1024 * 1024;
/** The source is paused when this many bytes wait for a write. */
const highWater = 2 * minWrite;

export interface AppendOptions {
  /** Most bytes that the file may have after the append; more is `TooLarge`. */
  limit?: number | undefined;
  /** A source that sends nothing for this many milliseconds is destroyed; `Aborted`. */
  idle?: number | undefined;
  /** Called after each write. */
  progress?: (() => void) | undefined;
  /** Every chunk is written as it arrives, because readers follow the file. */
  atOnce?: boolean;
  /** The append is the last user of the source's chunks: the memory of each is freed after its write. */
  consume?: boolean;
  /** When it is aborted, the append pauses the source, writes the chunks it has and resolves. */
  until?: AbortSignal | undefined;
  /**
   * Gets the chunks that the full disk did not take. They are counted into the digests. The append then pauses the source
   * and resolves; without this it rejects with `StorageFull`.
   */
  onFull?: ((unwritten: Buffer[]) => void) | undefined;
}

/** The file that an append writes to. The append increases `size` after each complete write. */
export interface AppendTarget {
  readonly disk: Writing;
  readonly handle: FileHandle;
  readonly hashes: Map<DigestAlgorithm, Hash>;
  size: number;
}

/** Appends all of `source`. See `StagedFile.append`. */
export function append(target: AppendTarget, source: Readable, options: AppendOptions): Promise<number> {
  if (source.readableEnded) return Promise.resolve(0);
  if (source.destroyed) return Promise.reject(cutOff());
  const start = target.size;
  return new Promise((resolve, reject) => {
    const settle = (error?: Error) => {
      if (error) reject(error);
      else resolve(target.size - start);
    };
    new Append(target, source, options, settle).start();
  });
}

/** Counts a chunk into all digests of a file. */
export function updateHashes(hashes: AppendTarget['hashes'], chunk: Uint8Array): void {
  for (const hash of hashes.values()) hash.update(chunk);
}

/** The digests so far, which later chunks do not change. */
function copyHashes(hashes: AppendTarget['hashes']): AppendTarget['hashes'] {
  return new Map([...hashes].map(([algorithm, hash]) => [algorithm, hash.copy()]));
}

/**
 * One append. The source is hashed as it arrives, and only one write runs at a time: chunks that arrive meanwhile wait
 * for the next one. After the source has ended, or has failed, the waiting chunks are still written. If a write fails,
 * the file, its size and its digests are as after the last complete write.
 */
class Append {
  readonly #target: AppendTarget;
  readonly #source: Readable;
  readonly #options: AppendOptions;
  readonly #onSettled: (error?: Error) => void;
  readonly #minWrite: number;
  /** Chunks that wait for a write. */
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  /** Size of the file when all received chunks are written. */
  #received: number;
  #isWriting = false;
  /** No more chunks are taken. */
  #hasEnded = false;
  #failure: Error | undefined;
  /** The digests after the last complete write. */
  #complete: AppendTarget['hashes'];
  #stopSilenceCheck: (() => void) | undefined;

  constructor(target: AppendTarget, source: Readable, options: AppendOptions, onSettled: (error?: Error) => void) {
    this.#target = target;
    this.#source = source;
    this.#options = options;
    this.#onSettled = onSettled;
    this.#minWrite = options.atOnce ? 1 : minWrite;
    this.#received = target.size;
    this.#complete = copyHashes(target.hashes);
  }

  start(): void {
    const { idle, until } = this.#options;
    const source = this.#source;
    if (idle !== undefined) {
      this.#stopSilenceCheck = whenSilent(source, idle, (error) => {
        source.destroy();
        this.#stop(error);
      });
    }
    until?.addEventListener('abort', this.#pause);
    source.on('data', this.#take).once('end', this.#finish).once('error', this.#fail).once('close', this.#fail);
  }

  readonly #take = (chunk: Buffer): void => {
    const { limit } = this.#options;
    if (limit !== undefined && this.#received + chunk.length > limit) {
      this.#stop(new DomainError('TooLarge', `The body is larger than the ${limit} bytes allowed here.`));
      return;
    }
    this.#received += chunk.length;
    updateHashes(this.#target.hashes, chunk);
    this.#pending.push(chunk);
    this.#pendingBytes += chunk.length;
    if (this.#pendingBytes >= highWater) this.#source.pause();
    else this.#giveWay();
    this.#flush();
  };

  /** Pauses the source until a later turn of the event loop, if bodies have lasted long in this one. */
  #giveWay(): void {
    const pausing = pauseBody();
    if (!pausing) return;
    this.#source.pause();
    void pausing.then(() => this.#resume());
  }

  #resume(): void {
    if (!this.#hasEnded && this.#pendingBytes < highWater && this.#source.isPaused()) this.#source.resume();
  }

  readonly #finish = (): void => this.#stop();

  readonly #fail = (cause?: Error): void => this.#stop(cutOff(cause));

  readonly #pause = (): void => {
    if (this.#hasEnded) return;
    this.#source.pause();
    this.#stop();
  };

  /** Takes no more chunks, and writes the waiting ones. Discards the rest of the source after an error. */
  #stop(error?: Error): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#failure = error;
    this.#stopSilenceCheck?.();
    this.#source.off('data', this.#take);
    if (error) this.#source.resume();
    this.#flush();
  }

  /** Starts a write if there is enough to write; settles the append if nothing is left to do. */
  #flush(): void {
    if (this.#isWriting) return;
    const enough = this.#hasEnded ? 1 : this.#minWrite;
    if (this.#pendingBytes >= enough) this.#write();
    else if (this.#hasEnded) this.#settle(this.#failure);
  }

  #write(): void {
    const pieces = this.#pending;
    const bytes = this.#pendingBytes;
    this.#pending = [];
    this.#pendingBytes = 0;
    this.#isWriting = true;
    const { disk, handle, hashes, size } = this.#target;
    // The digests include these chunks now, and no later ones.
    const after = copyHashes(hashes);
    writeAll(disk, handle, pieces, size).then(
      () => this.#written(bytes, pieces, after),
      (error: Error) => this.#unwritten(error, pieces),
    );
  }

  #written(bytes: number, pieces: readonly Buffer[], hashes: AppendTarget['hashes']): void {
    if (this.#options.consume) for (const piece of pieces) release(piece);
    this.#isWriting = false;
    this.#target.size += bytes;
    this.#complete = hashes;
    this.#options.progress?.();
    this.#resume();
    this.#flush();
  }

  #unwritten(error: Error, pieces: readonly Buffer[]): void {
    const full = storageFull(error);
    const { onFull } = this.#options;
    if (full && onFull) {
      this.#source.pause();
      onFull([...pieces, ...this.#pending]);
      this.#settle(this.#failure);
      return;
    }
    for (const [algorithm, hash] of this.#complete) this.#target.hashes.set(algorithm, hash);
    this.#settle(full ?? error);
  }

  readonly #settle = (error?: Error): void => {
    this.#hasEnded = true;
    this.#stopSilenceCheck?.();
    this.#options.until?.removeEventListener('abort', this.#pause);
    const source = this.#source;
    // Until here these listeners also keep a late error of the source from being uncaught.
    source.off('data', this.#take).off('end', this.#finish).off('error', this.#fail).off('close', this.#fail);
    this.#onSettled(error);
  };
}

function cutOff(cause?: Error): DomainError {
  return new DomainError('Aborted', 'The connection closed before the body was complete.', { cause });
}
