import type { Readable } from 'node:stream';
import type { Hash } from 'node:crypto';
import { algorithmOf, digestSoFar, startHash, type Digest } from '../../../runtime/digest.ts';
import { DomainError, isDomainError } from '../../../runtime/errors.ts';
import { release } from '../../../runtime/incoming.ts';
import { contentDamaged, type Content } from '../../files/content.ts';
import { bucketUnavailable, type Bucket } from './bucket.ts';
import { isMissing, isThrottled, isTransientS3 } from './failures.ts';

/** A read of at most this many bytes that does not continue an earlier one requests only these bytes. */
const small = 64 * 1024;
/** A stream is ended if its reader does not read for this long, so that slow clients do not hold all connections; ms. */
const maxRest = 5000;

/**
 * The bytes of an object. One ranged request serves a sequential reader; if it breaks off, another one continues. With
 * `verify`, content that was read from the first to the last byte rejects its last read if it does not match its digest.
 */
export class RangedContent implements Content {
  readonly size: number;
  readonly #bucket: Bucket;
  readonly #key: string;
  readonly #digest: Digest;
  readonly #hash: Hash | undefined;
  #hashed = 0;
  #stream: Readable | undefined;
  /** Received bytes that are not read yet. */
  #rest: Buffer = Buffer.alloc(0);
  #position = 0;
  #queue: Promise<unknown> = Promise.resolve();
  #resting: NodeJS.Timeout | undefined;
  readonly #closed = new AbortController();

  constructor(bucket: Bucket, key: string, digest: Digest, size: number, verify: boolean) {
    this.#bucket = bucket;
    this.#key = key;
    this.#digest = digest;
    this.size = size;
    this.#hash = verify ? startHash(algorithmOf(digest)) : undefined;
  }

  /** Concurrent reads run one after another. */
  read(target: Buffer, position: number): Promise<number> {
    const result = this.#queue.then(() => this.#read(target, position));
    this.#queue = result.catch(() => undefined);
    return result;
  }

  close(): void {
    this.#closed.abort();
    this.#endStream();
  }

  async #read(target: Buffer, position: number): Promise<number> {
    const length = Math.min(target.length, this.size - position);
    if (length <= 0) return 0;
    clearTimeout(this.#resting);
    const alone = length <= small && (position !== this.#position || position === 0);
    const end = alone ? position + length : this.size;
    if (position !== this.#position) this.#endStream();
    this.#position = position;
    for (let failures = 0; ;) {
      try {
        this.#stream ??= await this.#open(position, end);
        const read = await this.#take(target.subarray(0, length), alone);
        this.#count(target.subarray(0, read), position);
        this.#position += read;
        if (this.#position === end) this.#endStream();
        else this.#startRest();
        return read;
      } catch (error) {
        this.#endStream();
        if (isDomainError(error)) throw error;
        if (this.#closed.signal.aborted) throw new DomainError('Aborted', 'The content was closed.', { cause: error });
        failures += 1;
        if (failures >= this.#bucket.times.attempts || !isTransientS3(error)) throw bucketUnavailable(error);
        await this.#bucket.pause(failures, isThrottled(error));
      }
    }
  }

  async #open(start: number, end: number): Promise<Readable> {
    const limit = AbortSignal.timeout(this.#bucket.times.request);
    const began = new AbortController();
    const stop = () => began.abort();
    limit.addEventListener('abort', stop);
    this.#closed.signal.addEventListener('abort', stop);
    try {
      this.#closed.signal.throwIfAborted();
      const part = await this.#bucket.get(this.#key, start, end, began.signal);
      if (part.size !== this.size) {
        part.body.destroy();
        throw contentDamaged(this.#digest);
      }
      if (this.#closed.signal.aborted) part.body.destroy();
      return part.body;
    } catch (error) {
      if (isMissing(error)) {
        await this.#bucket.check();
        throw new DomainError('BlobUnknown', 'The content is missing from the storage.', {
          detail: { digest: this.#digest },
          cause: error,
        });
      }
      // The object is shorter than the range.
      if ((error as { name?: string }).name === 'InvalidRange') throw contentDamaged(this.#digest, error);
      throw error;
    } finally {
      limit.removeEventListener('abort', stop);
      this.#closed.signal.removeEventListener('abort', stop);
    }
  }

  /** Copies received bytes into `target`; waits until there are some, or with `whole` until it is full. Rejects if the body ends early. */
  async #take(target: Buffer, whole: boolean): Promise<number> {
    let length = 0;
    while (length < target.length) {
      if (this.#rest.length === 0) {
        const piece = (this.#stream!.read() as Buffer | null) ?? undefined;
        if (piece) {
          this.#rest = piece;
          this.#bucket.counts.received += piece.length;
        } else if (length > 0 && !whole) break;
        else {
          await readable(this.#stream!, this.#bucket.times.idle);
          continue;
        }
      }
      const rest = this.#rest;
      const copied = rest.copy(target, length);
      this.#rest = rest.subarray(copied);
      if (copied === rest.length) release(rest);
      length += copied;
    }
    return length;
  }

  #count(bytes: Buffer, position: number): void {
    if (!this.#hash || position !== this.#hashed) return;
    this.#hash.update(bytes);
    this.#hashed += bytes.length;
    if (this.#hashed === this.size && digestSoFar(this.#hash, algorithmOf(this.#digest)) !== this.#digest)
      throw contentDamaged(this.#digest);
  }

  #startRest(): void {
    this.#resting = setTimeout(() => this.#endStream(), maxRest).unref();
  }

  #endStream(): void {
    clearTimeout(this.#resting);
    this.#stream?.destroy();
    this.#stream = undefined;
    this.#rest = Buffer.alloc(0);
  }
}

/** Waits until bytes can be read. Rejects after `idle` milliseconds, and when the stream ends. */
function readable(stream: Readable, idle: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = (error?: Error) => {
      clearTimeout(timer);
      stream.off('readable', isReadable).off('end', cut).off('close', cut).off('error', end);
      if (error) reject(error);
      else resolve();
    };
    const isReadable = () => {
      if (stream.readableLength > 0) end();
    };
    const cut = () => end(new Error('the answer of S3 is cut off'));
    const timer = setTimeout(() => end(new Error(`S3 sent nothing for ${idle} ms`)), idle);
    stream.on('readable', isReadable).on('end', cut).on('close', cut).on('error', end);
    if (stream.destroyed || stream.readableEnded) cut();
  });
}
