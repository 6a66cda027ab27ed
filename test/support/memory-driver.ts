import type { Digest } from '../../src/runtime/digest.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { contentDamaged, contentOf, type Content } from '../../src/storage/files/content.ts';
import type {
  Driver,
  ListedBlob,
  QuarantineBounds,
  QuarantineRemoved,
  StorageDescription,
  StoredBytes,
} from '../../src/storage/drivers/driver.ts';
import type { StagedFile } from '../../src/storage/files/staged-file.ts';

export type DriverOperation = 'put' | 'open' | 'stat' | 'delete' | 'prepareAside' | 'setAside' | 'check';

/** Faults for a test. An operation rejects with the error that its hook throws. */
export interface DriverFaults {
  /** Before an operation has any effect. */
  before?: ((operation: DriverOperation, digest?: Digest) => void | Promise<void>) | undefined;
  /** After its effect: so a successful put can be reported as failed. */
  after?: ((operation: DriverOperation, digest?: Digest) => void | Promise<void>) | undefined;
  /** Number of most recent changes that `list` does not show yet. */
  listLag?: number | undefined;
}

interface Stored {
  bytes: Buffer;
  version: string;
  storedAt: number;
}

const page = 100;

/** A driver with the bytes in memory. Several servers in one process can share it. */
export class MemoryDriver implements Driver {
  isRemote = false;
  readonly checkEvery = 0;
  faults: DriverFaults = {};
  readonly aside = new Map<Digest, { bytes: Buffer; movedAt: number }>();
  readonly #stored = new Map<Digest, Stored>();
  readonly #listed = new Map<Digest, Stored>();
  readonly #unlisted: { digest: Digest; stored: Stored | undefined }[] = [];
  #versions = 0;
  #identity: string | undefined;

  /** All stored bytes, by digest. */
  get contents(): Map<Digest, Buffer> {
    return new Map([...this.#stored].map(([digest, { bytes }]) => [digest, bytes]));
  }

  describe(): StorageDescription {
    return { kind: 'memory', name: 'of this process', setting: 'data' };
  }

  fact(): Promise<undefined> {
    return Promise.resolve(undefined);
  }

  prepare(): Promise<void> {
    return Promise.resolve();
  }

  put(digest: Digest, staged: StagedFile): Promise<void> {
    return this.#perform('put', digest, async () => {
      const bytes = await staged.bytes();
      if (this.#stored.get(digest)?.bytes.length === bytes.length) return;
      this.#change(digest, { bytes, version: String((this.#versions += 1)), storedAt: Date.now() });
    });
  }

  open(digest: Digest, size: number): Promise<Content> {
    return this.#perform('open', digest, () => {
      const stored = this.#stored.get(digest);
      if (!stored) throw new DomainError('BlobUnknown', 'The content is missing from the storage.');
      if (stored.bytes.length !== size) throw contentDamaged(digest);
      return { ...contentOf(stored.bytes), source: `memory ${stored.version}` };
    });
  }

  stat(digest: Digest): Promise<StoredBytes | undefined> {
    return this.#perform('stat', digest, () => {
      const stored = this.#stored.get(digest);
      return stored && { size: stored.bytes.length, version: stored.version };
    });
  }

  delete(digest: Digest): Promise<void> {
    return this.#perform('delete', digest, () => this.#change(digest, undefined));
  }

  async setAside(digest: Digest, version: string): Promise<() => Promise<boolean>> {
    await this.#perform('prepareAside', digest, () => undefined);
    return () =>
      this.#perform('setAside', digest, () => {
        const stored = this.#stored.get(digest);
        if (stored?.version !== version) return false;
        this.aside.delete(digest);
        this.aside.set(digest, { bytes: stored.bytes, movedAt: Date.now() });
        this.#change(digest, undefined);
        return true;
      });
  }

  shrinkQuarantine({ before, maxBytes, dryRun }: QuarantineBounds): Promise<QuarantineRemoved> {
    const removed: QuarantineRemoved = { blobs: 0, bytes: 0 };
    let kept = 0;
    for (const [digest, { bytes, movedAt }] of [...this.aside].toReversed()) {
      kept += bytes.length;
      if (movedAt >= before && kept <= maxBytes) continue;
      if (!dryRun) this.aside.delete(digest);
      removed.blobs += 1;
      removed.bytes += bytes.length;
    }
    return Promise.resolve(removed);
  }

  async *list(prefix = ''): AsyncGenerator<ListedBlob[]> {
    this.#catchUp();
    const found = [...this.#listed]
      .filter(([digest]) => digest.startsWith(prefix))
      .sort(([a], [b]) => (a < b ? -1 : 1));
    const listed = found.map(([digest, { bytes, storedAt }]) => ({ digest, size: bytes.length, storedAt }));
    for (let from = 0; from < listed.length; from += page) yield listed.slice(from, from + page);
  }

  readIdentity(): Promise<string | undefined> {
    return Promise.resolve(this.#identity);
  }

  writeIdentity(identity: string, replace = false): Promise<void> {
    if (replace || this.#identity === undefined) this.#identity = identity;
    return Promise.resolve();
  }

  check(): Promise<void> {
    return this.#perform('check', undefined, () => undefined);
  }

  checkWrites(): Promise<void> {
    return Promise.resolve();
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  /** Replaces the stored bytes with `bytes`, as a faulty disk would. */
  damage(digest: Digest, bytes: Buffer): void {
    this.#change(digest, { bytes, version: String((this.#versions += 1)), storedAt: Date.now() });
  }

  async #perform<T>(operation: DriverOperation, digest: Digest | undefined, work: () => T | Promise<T>): Promise<T> {
    await this.faults.before?.(operation, digest);
    const result = await work();
    await this.faults.after?.(operation, digest);
    return result;
  }

  #change(digest: Digest, stored: Stored | undefined): void {
    if (stored) this.#stored.set(digest, stored);
    else this.#stored.delete(digest);
    this.#unlisted.push({ digest, stored });
    this.#catchUp();
  }

  #catchUp(): void {
    while (this.#unlisted.length > (this.faults.listLag ?? 0)) {
      const { digest, stored } = this.#unlisted.shift()!;
      if (stored) this.#listed.set(digest, stored);
      else this.#listed.delete(digest);
    }
  }
}
