import type { Digest } from '../../runtime/digest.ts';
import { DomainError } from '../../runtime/errors.ts';
import type { Throttle } from '../../runtime/incoming.ts';
import { BlobCache } from './blob-cache.ts';
import { checkContent, type CheckedBlob } from './check-stored.ts';
import type { Content } from '../files/content.ts';
import type { StorageCounts } from './counts.ts';
import type { Driver, EarlyPut, ListedBlob, QuarantineBounds, QuarantineRemoved, StoredBytes } from './driver.ts';
import { CacheFill } from './cache-fill.ts';
import type { StagedFile } from '../files/staged-file.ts';

/** Most blobs that are copied to the cache at the same time. The readers of further ones read from the storage. */
const maxFills = 64;

/** Keeps local copies of blobs that were read or put, in front of a remote storage. */
export class CachedDriver implements Driver {
  readonly isRemote = true;
  readonly #origin: Driver;
  readonly #cache: BlobCache;
  readonly #hasRoom: (bytes: number) => Promise<boolean>;
  readonly #fills = new Map<Digest, CacheFill>();

  /** `limit` is in bytes. `hasRoom` says whether the disk has room for a copy. */
  constructor(origin: Driver, folder: string, limit: number, hasRoom: (bytes: number) => Promise<boolean>) {
    this.#origin = origin;
    this.#cache = new BlobCache(folder, limit);
    this.#hasRoom = hasRoom;
  }

  get counts(): StorageCounts | undefined {
    const counts = this.#origin.counts;
    return counts && { ...counts, cache: this.#cache.counts };
  }

  get checkEvery(): number {
    return this.#origin.checkEvery;
  }

  describe() {
    return this.#origin.describe();
  }

  fact() {
    return this.#origin.fact();
  }

  async prepare(): Promise<void> {
    await this.#cache.prepare();
    await this.#origin.prepare();
  }

  /** The file is synced while its bytes are sent, and becomes the copy afterwards. */
  async put(digest: Digest, staged: StagedFile): Promise<void> {
    const synced = this.#sync(staged);
    await this.#origin.put(digest, staged);
    if (await synced) await this.#cache.adopt(digest, staged.path, staged.size);
  }

  putEarly(digest: Digest, staged: StagedFile, size: number): EarlyPut | undefined {
    return this.#origin.putEarly?.(digest, staged, size);
  }

  async keepCopy(digest: Digest, staged: StagedFile): Promise<void> {
    if (await this.#cache.has(digest)) return;
    if (await this.#sync(staged)) await this.#cache.adopt(digest, staged.path, staged.size);
  }

  /**
   * Syncs the file, because a copy could otherwise have its size but not its bytes after a power cut. Resolves to whether the file
   * can become a copy.
   */
  #sync(staged: StagedFile): Promise<boolean> {
    if (staged.size > this.#cache.limit) return Promise.resolve(false);
    return staged.sync().then(
      () => true,
      () => false,
    );
  }

  /** Does not ask the storage if there is a copy. The first read from the first byte on makes one. */
  async open(digest: Digest, size: number, forCheck = false): Promise<Content> {
    if (forCheck || size === 0 || size > this.#cache.limit) return this.#origin.open(digest, size, forCheck);
    const copy = await this.#cache.open(digest, size);
    const { counts } = this.#cache;
    if (copy) {
      counts.hit += 1;
      return copy;
    }
    const fill = this.#fills.get(digest);
    if (fill?.isUsable) {
      counts.joined += 1;
      return this.#follow(fill, digest, size);
    }
    counts.miss += 1;
    return this.#fillOnRead(digest, size, await this.#origin.open(digest, size));
  }

  async checkCopy(blob: CheckedBlob, throttle?: Throttle): Promise<void> {
    const copy = await this.#cache.open(blob.digest, blob.size, true);
    if (!copy) return;
    try {
      if ((await checkContent(copy, blob, { throttle })) !== 'sound') await this.#cache.remove(blob.digest);
    } finally {
      copy.close();
    }
  }

  locationOf(digest: Digest): (() => Promise<string>) | undefined {
    return this.#origin.locationOf?.(digest);
  }

  stat(digest: Digest): Promise<StoredBytes | undefined> {
    return this.#origin.stat(digest);
  }

  async delete(digest: Digest, mayRepeat?: () => boolean): Promise<void> {
    await this.#origin.delete(digest, mayRepeat);
    await this.#forget(digest);
  }

  async setAside(digest: Digest, version: string): Promise<() => Promise<boolean>> {
    const move = await this.#origin.setAside(digest, version);
    return async () => {
      const isMoved = await move();
      if (isMoved) await this.#forget(digest);
      return isMoved;
    };
  }

  shrinkQuarantine(bounds: QuarantineBounds): Promise<QuarantineRemoved> {
    return this.#origin.shrinkQuarantine(bounds);
  }

  list(prefix?: string): AsyncIterable<ListedBlob[]> {
    return this.#origin.list(prefix);
  }

  readIdentity(): Promise<string | undefined> {
    return this.#origin.readIdentity();
  }

  writeIdentity(identity: string, replace?: boolean): Promise<void> {
    return this.#origin.writeIdentity(identity, replace);
  }

  check(): Promise<void> {
    return this.#origin.check();
  }

  checkWrites(): Promise<void> {
    return this.#origin.checkWrites();
  }

  async close(): Promise<void> {
    const fills = [...this.#fills.values()];
    for (const fill of fills) fill.abort();
    await Promise.all(fills.map(({ ended }) => ended));
    await this.#origin.close();
  }

  async #forget(digest: Digest): Promise<void> {
    this.#fills.get(digest)?.drop();
    await this.#cache.remove(digest);
  }

  /** `stored` is open content of the storage. */
  #fillOnRead(digest: Digest, size: number, stored: Content): Content {
    let chosen: Promise<Content> | undefined;
    let isClosed = false;
    const choose = async (position: number): Promise<Content> => {
      if (position > 0 || this.#fills.size >= maxFills || !(await this.#hasRoom(size))) return stored;
      if (isClosed) throw new DomainError('Aborted', 'The content was closed.');
      let fill = this.#fills.get(digest);
      if (fill?.isUsable) stored.close();
      else fill = this.#start(digest, size, stored);
      return this.#follow(fill, digest, size);
    };
    return {
      size,
      read: async (target, position) => {
        const content = await (chosen ??= choose(position));
        return content.read(target, position);
      },
      close: () => {
        if (isClosed) return;
        isClosed = true;
        if (!chosen) stored.close();
        else void chosen.then((content) => content.close()).catch(() => stored.close());
      },
    };
  }

  #start(digest: Digest, size: number, stored: Content): CacheFill {
    const fill = new CacheFill(this.#cache, digest, size, stored);
    this.#fills.set(digest, fill);
    void this.#finish(digest, fill);
    return fill;
  }

  async #finish(digest: Digest, fill: CacheFill): Promise<void> {
    await fill.ended;
    if (this.#fills.get(digest) === fill) this.#fills.delete(digest);
    if (!fill.hasReaders) await fill.close();
  }

  /** Content of a blob that is being copied. */
  #follow(fill: CacheFill, digest: Digest, size: number): Content {
    fill.enter();
    let direct: Promise<Content> | undefined;
    let reading = 0;
    let isOpen = true;
    const leaveWhenIdle = () => {
      if (isOpen || reading > 0) return;
      fill.leave();
      void this.#finish(digest, fill);
      void direct?.then((content) => content.close()).catch(() => undefined);
    };
    return {
      size,
      read: async (target, position) => {
        if (position >= size) return 0;
        if (!isOpen) throw new DomainError('Aborted', 'The content was closed.');
        reading += 1;
        try {
          const read = direct ? undefined : await fill.read(target, position);
          if (read !== undefined) return read;
          direct ??= this.#origin.open(digest, size);
          return await (await direct).read(target, position);
        } finally {
          reading -= 1;
          leaveWhenIdle();
        }
      },
      close: () => {
        if (!isOpen) return;
        isOpen = false;
        leaveWhenIdle();
      },
    };
  }
}
