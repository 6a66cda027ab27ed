import type { Digest } from '../../runtime/digest.ts';
import type { Throttle } from '../../runtime/incoming.ts';
import type { Content } from '../files/content.ts';
import type { StorageCounts } from './counts.ts';
import type { StagedFile } from '../files/staged-file.ts';

/** What a driver knows about the bytes of a blob. */
export interface StoredBytes {
  size: number;
  /** Changes when other bytes replace these under the same digest. */
  version: string;
}

/** A blob in a list. */
export interface ListedBlob {
  digest: Digest;
  size: number;
  /** When its bytes were stored; milliseconds since 1970 UTC, by the clock of the storage. */
  storedAt: number;
}

/** Bounds of the quarantine. */
export interface QuarantineBounds {
  /** Blobs that were moved there before this time are removed; milliseconds since 1970 UTC, by the clock of the storage. */
  before: number;
  /** Then the oldest are removed until the rest has at most this many bytes. */
  maxBytes: number;
  /** Only counts. */
  dryRun?: boolean | undefined;
}

/** Removed blobs, and their size. */
export interface QuarantineRemoved {
  blobs: number;
  bytes: number;
}

/** The place of a storage, for operators. */
export interface StorageDescription {
  /** What it is, such as `data folder`, and its name. */
  kind: string;
  name: string;
  /** The setting that names it. */
  setting: string;
  /** What a start has done there; undefined for nothing that the checks do not do. */
  tried?: string | undefined;
  /** The host to which clients are redirected for large content; undefined without redirects. */
  redirectHost?: string | undefined;
}

/** What the storages of all instances of a database must have in common. */
interface StorageFact {
  /** The same for a storage and its copies, if they have the same name: at most 255 characters. */
  place: string;
  /** Tells a storage from its copies, which have the same identity; undefined if `place` does. */
  inode?: bigint;
}

/** A put whose bytes are sent while they arrive. */
export interface EarlyPut {
  /** Tells that the staged file may have more bytes now. */
  grown(): void;
  /** Sends nothing more, if the put has not ended. */
  stop(): void;
}

/**
 * Stores committed bytes by digest. A driver knows no rows and no references, and does not verify digests: its callers
 * have verified them. Errors of the storage itself pass through. Every driver must pass `test/storage/drivers/driver-suite.ts`.
 */
export interface Driver {
  /** Whether each call is a request to another machine: then copies in memory are used without a look at the storage. */
  readonly isRemote?: boolean;
  /** A successful `check` counts for this many milliseconds, because each costs money; 0 where it costs none. */
  readonly checkEvery: number;
  /** For metrics. */
  readonly counts?: StorageCounts | undefined;
  describe(): StorageDescription;
  /** Undefined while the storage is not there. */
  fact(): Promise<StorageFact | undefined>;
  /** Called once at the start; rejects when the storage cannot be used. */
  prepare(): Promise<void>;
  /**
   * Stores the bytes of `staged` under `digest`. They are durable when it resolves, and never visible in part. It may be
   * repeated, also concurrently and after a `delete`. Stored bytes of another size are replaced. Afterwards the path of
   * `staged` may be gone; its bytes can be read until it is discarded.
   */
  put(digest: Digest, staged: StagedFile): Promise<void>;
  /**
   * Begins to send the bytes of the empty file `staged` to the storage while they arrive. Nobody has verified `digest` yet: the
   * storage shows nothing before a `put` of the file, which then has `size` bytes. The caller always calls `stop`. Returns undefined
   * if the driver sends these bytes only with the put.
   */
  putEarly?(digest: Digest, staged: StagedFile, size: number): EarlyPut | undefined;
  /** Keeps a local copy of bytes that another put has stored, if the driver has local copies. */
  keepCopy?(digest: Digest, staged: StagedFile): Promise<void>;
  /**
   * As `put`, for `size` bytes that are stored elsewhere and were compared with the digest. Reads them more than once. A driver
   * without it needs a staged file.
   */
  putContent?(digest: Digest, content: Content, size: number): Promise<void>;
  /**
   * Opens stored bytes of known `size`; rejects with `BlobUnknown` when they are missing, and with `ContentDamaged` when
   * they have another size. With `forCheck`, reads the storage itself instead of a local copy, and does not compare the bytes
   * with the digest.
   */
  open(digest: Digest, size: number, forCheck?: boolean): Promise<Content>;
  /** Reads the local copy of a blob, if there is one, and drops it if its bytes are wrong. */
  checkCopy?(blob: { digest: Digest; size: number }, throttle?: Throttle): Promise<void>;
  /** Makes a URL from which clients can get stored bytes themselves; undefined if they cannot. See `Content.location`. */
  locationOf?(digest: Digest): (() => Promise<string>) | undefined;
  /** Undefined when the bytes are missing. */
  stat(digest: Digest): Promise<StoredBytes | undefined>;
  /**
   * Removes the bytes; resolves also when they are missing. Content that is open stays readable, or its reads reject. Rejects if an
   * attempt failed and `mayRepeat`, which is asked right before each further one, says no: the bytes may have been put again.
   */
  delete(digest: Digest, mayRepeat?: () => boolean): Promise<void>;
  /**
   * Prepares to move damaged bytes of this `version` to a quarantine, which can take minutes. The result moves them with a few
   * short requests, so that a transaction may wait for it; resolves to whether they were still there.
   */
  setAside(digest: Digest, version: string): Promise<() => Promise<boolean>>;
  /** Removes old blobs from the quarantine. */
  shrinkQuarantine(bounds: QuarantineBounds): Promise<QuarantineRemoved>;
  /** Pages of the blobs whose digests begin with `prefix`, for example `sha256:ab`, in the order of the digests. */
  list(prefix?: string): AsyncIterable<ListedBlob[]>;
  /** The identity in the storage; undefined if it has none. Rejects when the storage cannot be read. */
  readIdentity(): Promise<string | undefined>;
  /** Stores `identity`, durable when it resolves. Without `replace`, keeps the identity that the storage already has. */
  writeIdentity(identity: string, replace?: boolean): Promise<void>;
  /** Rejects when stored bytes cannot be read now, also because the storage is not the one that was prepared. */
  check(): Promise<void>;
  /** Rejects when the storage is not writable now. May answer from a write of the last minute. */
  checkWrites(): Promise<void>;
  /** Called once, at the end. */
  close(): Promise<void>;
}
