import type { Digest } from '../digest.ts';
import type { Content } from './content.ts';
import type { StagedFile } from './staged-file.ts';

/** What a driver knows of stored bytes. */
export interface StoredBytes {
  size: number;
  /** Other bytes under the same digest have another one. */
  version: string;
}

/** One of the listed blobs. */
export interface ListedBlob {
  digest: Digest;
  size: number;
  /** When its bytes were stored; milliseconds since 1970 UTC, by the clock of the storage. */
  storedAt: number;
}

/**
 * Where committed bytes are kept, by digest. A driver knows no rows and no references, and takes every digest as it is:
 * its callers have verified it. Errors of the storage itself pass through. `test/storage/driver-suite.ts` holds what
 * every driver must do.
 */
export interface Driver {
  /** Makes ready what it needs, at the start; rejects when it cannot be used. */
  prepare(): Promise<void>;
  /**
   * Stores the bytes of `staged` under `digest`. They are durable when it resolves, and are never seen in part. It may
   * be repeated, also at once with others and after a `delete`; bytes of another size that are there are replaced. The
   * path of `staged` is of no use afterwards, its bytes can still be read until it is discarded.
   */
  put(digest: Digest, staged: StagedFile): Promise<void>;
  /** Opens stored bytes of known `size`; rejects with `BlobUnknown` when they are not there. */
  open(digest: Digest, size: number): Promise<Content>;
  /** Undefined when they are not there. */
  stat(digest: Digest): Promise<StoredBytes | undefined>;
  /** Removes the bytes; what is not there is removed already. What is open stays readable or rejects. */
  delete(digest: Digest): Promise<void>;
  /** Takes damaged bytes of that `version` out of reach, for a person to look at; resolves to whether they were there. */
  setAside(digest: Digest, version: string): Promise<boolean>;
  /** The blobs whose digests begin with `prefix`, such as `sha256:ab`, in order of their digests, in pages. */
  list(prefix?: string): AsyncIterable<ListedBlob[]>;
  /** Rejects when nothing can be stored now. */
  check(): Promise<void>;
}
