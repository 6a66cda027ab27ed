import { hexOf, type Digest } from '../../../runtime/digest.ts';
import type { EarlyPut } from '../driver.ts';
import type { StagedFile } from '../../files/staged-file.ts';
import type { Bucket } from './bucket.ts';
import { partsAtOnce, sendObject, sendOnce } from './upload.ts';

/** Bytes of one read of the staged file. Smaller reads take more processor time. */
const readSize = 1024 * 1024;

/** The body of an early upload. */
interface EarlyBody {
  staged: StagedFile;
  size: number;
  /** Whether the file can be sent in parts instead. */
  mayUseParts: boolean;
}

/**
 * Sends a staged file to its final key while it grows, with one PUT that is signed with the expected digest. The last byte waits
 * for `finish`, so S3 has nothing to store before the bytes are verified. There is one attempt: after a failure the complete file
 * is sent as any other. A file that grows too slowly is no longer sent early, so that slow clients do not hold the few connections.
 */
export class EarlyUpload implements EarlyPut {
  /** Whether S3 has stored the file; settles when nothing is sent any more, and never rejects. */
  readonly stored: Promise<boolean>;
  readonly #bucket: Bucket;
  readonly #key: string;
  readonly #digest: Digest;
  readonly #body: EarlyBody;
  readonly #stopped = new AbortController();
  #sent = 0;
  #mayEnd = false;
  #hasGrown = Promise.withResolvers<void>();

  constructor(bucket: Bucket, key: string, digest: Digest, body: EarlyBody) {
    this.#bucket = bucket;
    this.#key = key;
    this.#digest = digest;
    this.#body = body;
    this.#stopped.signal.addEventListener('abort', () => this.grown());
    this.stored = this.#send().catch(() => false);
  }

  grown(): void {
    this.#hasGrown.resolve();
  }

  stop(): void {
    this.#stopped.abort();
  }

  /** Sends the rest of the complete and verified file; resolves to whether S3 has stored it. */
  finish(): Promise<boolean> {
    const { size, mayUseParts } = this.#body;
    // The PUT has not begun, or parts at the same time are faster than the rest of it.
    const isLate = this.#sent === 0 || (mayUseParts && this.#sent < size / partsAtOnce);
    if (isLate) {
      this.stop();
      return Promise.resolve(false);
    }
    this.#mayEnd = true;
    this.#hasGrown.resolve();
    return this.stored;
  }

  async #send(): Promise<boolean> {
    const { staged, size } = this.#body;
    // The put then finds that there is nothing to send.
    if ((await this.#bucket.head(this.#key))?.size === size) return false;
    this.#stopped.signal.throwIfAborted();
    const pieces = (onProgress: () => void) => this.#pieces(onProgress);
    const object = { key: this.#key, size, sha256: hexOf(this.#digest) };
    await sendOnce(this.#bucket, pieces, readSize, this.#stopped, (body, signal) =>
      sendObject(this.#bucket, this.#bucket.early, { ...object, body }, signal),
    );
    return (await this.#bucket.head(this.#key))?.size === staged.size;
  }

  async *#pieces(onProgress: () => void): AsyncGenerator<Buffer> {
    const { staged, size } = this.#body;
    while (this.#sent < size) {
      this.#stopped.signal.throwIfAborted();
      this.#hasGrown = Promise.withResolvers();
      const end = this.#mayEnd ? size : Math.min(staged.size, size - 1);
      if (this.#sent >= end) {
        await this.#hasGrown.promise;
        continue;
      }
      const buffer = Buffer.allocUnsafe(Math.min(readSize, end - this.#sent));
      const read = await staged.read(buffer, this.#sent);
      if (read === 0) throw new Error(`${staged.path} is shorter than its ${size} bytes`);
      this.#sent += read;
      onProgress();
      yield buffer.subarray(0, read);
    }
  }
}
