import type { Digest } from '../../runtime/digest.ts';
import type { StagedFile } from '../../storage/files/staged-file.ts';
import type { PastManifest } from '../hosted/manifests.ts';

/** A manifest of a source, as it sent it. Its digest is checked, its content is not. */
export interface OriginManifest {
  digest: Digest;
  bytes: Buffer;
  /** Undefined if the source does not say it. */
  mediaType: string | undefined;
}

/** A tag of a source. */
export interface OriginTag {
  tag: string;
  /** When it was pushed last, milliseconds since 1970 UTC; undefined if the source does not say it. */
  pushedAt?: number | undefined;
}

/** A place with images: a registry, or its files. Names, tags and digests that it returns are valid ones. */
export interface ImageOrigin {
  repositories(): AsyncIterable<string>;
  tags(name: string): AsyncIterable<OriginTag>;
  /** The digest of a tag; undefined if there is no such tag, or if only the manifest tells it. */
  digestOf(name: string, tag: string): Promise<Digest | undefined>;
  /** Undefined if the source does not have it. Throws `DigestMismatch` for other content than the digest says. */
  manifest(name: string, reference: string): Promise<OriginManifest | undefined>;
  /** The digests of manifests whose subject is `digest`. */
  referrers(name: string, digest: Digest): Promise<readonly Digest[]>;
  /** To what a tag pointed before, the earliest first, as far as the source knows it. */
  past?(name: string, tag: string): Promise<readonly PastManifest[]>;
  /** Writes a blob. Throws `NotFound` if the source does not have it. */
  fill(name: string, digest: Digest, staged: StagedFile, limit: number): Promise<void>;
}
