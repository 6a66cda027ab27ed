import { join } from 'node:path';

/**
 * The layout of the data folder. From a client's request, only the hex of a parsed digest becomes part of a path.
 *
 *     data/
 *       entrepot.db                    the embedded database, unless another is configured
 *       entrepot.db.processes/<uuid>   a locked file for each process that has work which others would take over
 *       blobs/sha256/ab/ab12…          content, named by its digest; immutable (`FilesystemDriver`)
 *       blobs/identity                 the identity that this storage shares with its database (`storage/upkeep/identity.ts`)
 *       staging/<uuid>                 bytes that are being received: pushes, upload sessions, mirror fills
 *       cache/sha256-ab12…             local copies of content that is stored in S3 (`BlobCache`)
 *       bundles/<uuid>/0001.tar        segments of bundles that were sent here, or are to be downloaded (`BundleRunFiles`)
 *       quarantine/sha256-ab12…        corrupt content that a scrub has found
 *       folder-id                      the identity of this folder, for instances that share it (`instances/folder.ts`)
 *       secret-key                     the key that encrypts stored secrets, unless a setting names another file
 *       unwritten/<uuid>.jsonl         usage that a closing server could not write to the database (`Unwritten`)
 */
export class Paths {
  readonly data: string;
  readonly blobs: string;
  /** In `blobs`, so that it is missing when the disk with the blobs is not mounted. */
  readonly identity: string;
  readonly staging: string;
  readonly quarantine: string;
  readonly cache: string;
  readonly bundles: string;
  readonly unwritten: string;
  readonly secretKey: string;
  readonly folderId: string;

  constructor(data: string) {
    this.data = data;
    this.blobs = join(data, 'blobs');
    this.identity = join(this.blobs, 'identity');
    this.staging = join(data, 'staging');
    this.quarantine = join(data, 'quarantine');
    this.cache = join(data, 'cache');
    this.bundles = join(data, 'bundles');
    this.unwritten = join(data, 'unwritten');
    this.secretKey = join(data, 'secret-key');
    this.folderId = join(data, 'folder-id');
  }

  staged(id: string): string {
    return join(this.staging, id);
  }
}
