import { randomUUID } from 'node:crypto';
import { algorithmOf, hexOf, isDigest, type Digest, type DigestAlgorithm } from '../../../runtime/digest.ts';
import { DomainError } from '../../../runtime/errors.ts';
import { contentDamaged, contentOf, readAll, type Content } from '../../files/content.ts';
import type { StorageCounts } from '../counts.ts';
import type { Driver, EarlyPut, ListedBlob, QuarantineBounds, QuarantineRemoved, StoredBytes } from '../driver.ts';
import { maxSmallBytes } from '../small-blobs.ts';
import type { StagedFile } from '../../files/staged-file.ts';
import { storageUnavailable } from '../../files/unavailable.ts';
import { Bucket, earlyPuts, type BucketOptions } from './bucket.ts';
import { EarlyUpload } from './early-upload.ts';
import { settingError } from './failures.ts';
import { RangedContent } from './ranged-content.ts';
import { abortStaleUploads, upload, uploadSizes, type UploadBytes, type UploadSizes } from './upload.ts';

/** S3 copies larger objects only in parts. */
const maxCopy = 5 * 2 ** 30;
/** The size of a body that is sent while it arrives: a smaller one is not worth it, a larger one needs parts. */
const minEarly = 2 ** 20;
const maxEarly = 5 * 2 ** 30;
/** Milliseconds after which an upload in parts counts as abandoned. */
const staleUpload = 3 * 86_400_000;

/**
 * Stores bytes as objects of an S3 bucket: `blobs/sha256/ab/ab12…`. A put sends the bytes to their final key, where they
 * appear when they are complete. The bucket also has the keys `identity`, `quarantine/sha256-ab12…/<time>`, `probe/write`, and for
 * a moment `probe/<uuid>`.
 */
export class S3Driver implements Driver {
  readonly isRemote = true;
  readonly checkEvery = 5000;
  readonly #bucket: Bucket;
  readonly #sizes: UploadSizes;
  readonly #early = new Map<StagedFile, EarlyUpload>();
  /** The identity that the bucket had when it was last read or written. */
  #identity: string | undefined;
  /** When the bucket was last written, by `performance.now()`; in the past if the last write failed. */
  #writtenAt = Number.NEGATIVE_INFINITY;

  private constructor(bucket: Bucket, sizes: UploadSizes) {
    this.#bucket = bucket;
    this.#sizes = sizes;
  }

  get counts(): StorageCounts {
    return { s3: this.#bucket.counts };
  }

  /** Loads the SDK; sends nothing before `prepare`. */
  static async open(options: BucketOptions, sizes = uploadSizes): Promise<S3Driver> {
    return new S3Driver(await Bucket.open(options), sizes);
  }

  describe() {
    const { name, redirects, publicHost } = this.#bucket;
    return {
      kind: 'bucket',
      name,
      setting: 'storage.s3.bucket',
      tried: 'can be written, read, listed and deleted from',
      redirectHost: redirects ? publicHost : undefined,
    };
  }

  fact() {
    const { endpoint = 'aws', bucket, prefix = '' } = this.#bucket.options;
    const place = ['s3', endpoint, bucket, prefix].map((each) => each.replace(/\/+$/, '')).join(' ');
    return Promise.resolve({ place: place.slice(0, 255) });
  }

  /** Writes, reads, lists and deletes a small object; rejects with `StorageSettingError`. */
  async prepare(): Promise<void> {
    const bucket = this.#bucket;
    const key = `${bucket.prefix}probe/${randomUUID()}`;
    const text = 'entrepot';
    let step = '';
    const perform = <T>(name: string, work: () => Promise<T>): Promise<T> => {
      step = name;
      return work();
    };
    try {
      // A list, because S3 sends no reason in an answer to HEAD.
      await perform('find the bucket', () => bucket.list(key).next());
      await perform('write', () => bucket.write(key, text));
      this.#writtenAt = performance.now();
      const part = await perform('read', () => bucket.read(key, text.length - 1));
      if (part !== text.slice(0, -1)) throw new Error('a range of an object has other bytes than were written');
      const found = await perform('list', async () => {
        for await (const page of bucket.list(key)) if (page.some((each) => each.key === key)) return true;
        return false;
      });
      if (!found) throw new Error('an object that was written is not listed');
      await perform('delete', () => bucket.delete(key));
    } catch (error) {
      throw settingError((error as Error).cause ?? error, step);
    }
  }

  /** Only with SHA-256, which S3 compares, and only for some bodies at the same time. */
  putEarly(digest: Digest, staged: StagedFile, size: number): EarlyPut | undefined {
    if (algorithmOf(digest) !== 'sha256' || size < minEarly || size > maxEarly) return undefined;
    if (this.#early.size >= earlyPuts) return undefined;
    const mayUseParts = size > this.#sizes.single;
    const early = new EarlyUpload(this.#bucket, this.#keyOf(digest), digest, { staged, size, mayUseParts });
    this.#early.set(staged, early);
    const forget = () => {
      // The next request of the same session can have begun another one.
      if (this.#early.get(staged) === early) this.#early.delete(staged);
    };
    void early.stored.then(forget);
    return early;
  }

  async put(digest: Digest, staged: StagedFile): Promise<void> {
    const early = this.#early.get(staged);
    if (early && (await early.finish())) this.#writtenAt = performance.now();
    else await this.#put(digest, staged);
  }

  putContent(digest: Digest, content: Content, size: number): Promise<void> {
    const runningDigest = (algorithm: DigestAlgorithm) => (algorithmOf(digest) === algorithm ? digest : undefined);
    const read = (target: Buffer, position: number) => content.read(target, position);
    return this.#put(digest, { path: digest, size, read, runningDigest });
  }

  /** Small content is read at once, because each request to S3 costs time and money. */
  async open(digest: Digest, size: number, forCheck = false): Promise<Content> {
    if (!forCheck && size > 0 && size <= maxSmallBytes)
      return contentOf(await readAll(new RangedContent(this.#bucket, this.#keyOf(digest), digest, size, true), size));
    const stored = await this.stat(digest);
    if (!stored)
      throw new DomainError('BlobUnknown', 'The content is missing from the storage.', { detail: { digest } });
    if (stored.size !== size) throw contentDamaged(digest);
    return new RangedContent(this.#bucket, this.#keyOf(digest), digest, size, !forCheck);
  }

  async stat(digest: Digest): Promise<StoredBytes | undefined> {
    const found = await this.#bucket.head(this.#keyOf(digest));
    if (found) return { size: found.size, version: `${found.etag} ${found.modified}` };
    // Without a bucket, all objects look missing.
    await this.#bucket.check();
    return undefined;
  }

  async delete(digest: Digest, mayRepeat?: () => boolean): Promise<void> {
    await this.#bucket.delete(this.#keyOf(digest), mayRepeat);
  }

  locationOf(digest: Digest): (() => Promise<string>) | undefined {
    return this.#bucket.redirects ? () => this.#bucket.signedUrl(this.#keyOf(digest)) : undefined;
  }

  /** S3 copies the bytes within the bucket. Bytes of more than 5 GiB are deleted. */
  async setAside(digest: Digest, version: string): Promise<() => Promise<boolean>> {
    const bucket = this.#bucket;
    const key = this.#keyOf(digest);
    const found = await this.stat(digest);
    if (found?.version !== version) return () => Promise.resolve(false);
    if (found.size <= maxCopy) {
      const folder = `${bucket.prefix}quarantine/${digest.replace(':', '-')}/`;
      const copy = `${folder}${Date.now()}`;
      const input = { Bucket: bucket.name, Key: copy, CopySource: `${bucket.name}/${key}` };
      await bucket.run(
        (abortSignal) => bucket.client.send(new bucket.sdk.CopyObjectCommand(input), { abortSignal }),
        bucket.times.assemble,
      );
      for await (const page of bucket.list(folder))
        for (const each of page) if (each.key !== copy) await bucket.delete(each.key);
    }
    return async () => {
      if ((await this.stat(digest))?.version !== version) return false;
      await bucket.delete(key);
      return true;
    };
  }

  /** Also aborts uploads in parts that were never finished, after three days. */
  async shrinkQuarantine({ before, maxBytes, dryRun = false }: QuarantineBounds): Promise<QuarantineRemoved> {
    const bucket = this.#bucket;
    if (!dryRun) await abortStaleUploads(bucket, `${bucket.prefix}blobs/`, Date.now() - staleUpload);
    const objects: { key: string; size: number; movedAt: number }[] = [];
    for await (const page of bucket.list(`${bucket.prefix}quarantine/`)) {
      for (const { key, size } of page) {
        const found = /quarantine\/([^/]+)\/(\d+)$/.exec(key);
        if (found && isDigest(found[1]!.replace('-', ':'))) objects.push({ key, size, movedAt: Number(found[2]) });
      }
    }
    const removed: QuarantineRemoved = { blobs: 0, bytes: 0 };
    let kept = 0;
    for (const { key, size, movedAt } of objects.toSorted((a, b) => b.movedAt - a.movedAt)) {
      kept += size;
      if (movedAt >= before && kept <= maxBytes) continue;
      if (!dryRun) await bucket.delete(key);
      removed.blobs += 1;
      removed.bytes += size;
    }
    return removed;
  }

  /** Ignores objects whose keys do not name a digest. */
  async *list(prefix = ''): AsyncGenerator<ListedBlob[]> {
    const root = `${this.#bucket.prefix}blobs/`;
    const [, algorithm, hex] = /^(sha256|sha512):([0-9a-f]*)$/.exec(prefix) ?? [];
    if (algorithm === undefined && prefix !== '') return;
    const within = hex ? (hex.length < 2 ? hex : `${hex.slice(0, 2)}/${hex}`) : '';
    for await (const page of this.#bucket.list(algorithm === undefined ? root : `${root}${algorithm}/${within}`)) {
      const blobs: ListedBlob[] = [];
      for (const { key, size, modified } of page) {
        const [, name, folder, rest = ''] = /^(\w+)\/([0-9a-f]{2})\/([0-9a-f]+)$/.exec(key.slice(root.length)) ?? [];
        const digest = `${name}:${rest}`;
        if (isDigest(digest) && rest.startsWith(folder!)) blobs.push({ digest, size, storedAt: modified });
      }
      yield blobs;
    }
  }

  async readIdentity(): Promise<string | undefined> {
    const text = (await this.#bucket.read(this.#identityKey))?.trim();
    this.#identity = text ?? this.#identity;
    return text;
  }

  /** Two writes at the same time can both be stored, one after the other. The row in the database then decides. */
  async writeIdentity(identity: string, replace = false): Promise<void> {
    if (!replace && (await this.readIdentity()) !== undefined) return;
    await this.#bucket.write(this.#identityKey, `${identity}\n`);
    this.#identity = identity;
  }

  async check(): Promise<void> {
    const text = (await this.#bucket.read(this.#identityKey))?.trim();
    if (this.#identity === undefined || text === this.#identity) return;
    throw storageUnavailable(
      'The bucket of the stored content was emptied or replaced while the server runs. Restore it, and start the server again.',
    );
  }

  /**
   * Writes a small object, at most once a minute as long as the bucket can be written, because each write costs money. Rejects
   * with `StorageSettingError`.
   */
  async checkWrites(): Promise<void> {
    if (performance.now() - this.#writtenAt < this.#bucket.times.checkEvery) return;
    const key = `${this.#bucket.prefix}probe/write`;
    await this.#bucket.write(key, 'entrepot').catch((error: Error) => {
      throw settingError(error.cause ?? error, 'write');
    });
    this.#writtenAt = performance.now();
  }

  close(): Promise<void> {
    this.#bucket.close();
    return Promise.resolve();
  }

  async #put(digest: Digest, bytes: UploadBytes): Promise<void> {
    const key = this.#keyOf(digest);
    if ((await this.#bucket.head(key))?.size === bytes.size) return;
    try {
      await upload(this.#bucket, key, bytes, this.#sizes);
      this.#writtenAt = performance.now();
    } catch (error) {
      this.#writtenAt = Number.NEGATIVE_INFINITY;
      throw error;
    }
  }

  get #identityKey(): string {
    return `${this.#bucket.prefix}identity`;
  }

  #keyOf(digest: Digest): string {
    const hex = hexOf(digest);
    return `${this.#bucket.prefix}blobs/${algorithmOf(digest)}/${hex.slice(0, 2)}/${hex}`;
  }
}
