import { join } from 'node:path';
import { algorithmOf, hexOf, type Digest } from '../digest.ts';

/**
 * The whole layout on disk. Nothing a client sends becomes part of a path but the hex of a parsed digest.
 *
 *     data/
 *       entrepot.db                    the embedded database, unless another is configured
 *       blobs/sha256/ab/ab12…          content, named by its digest; immutable
 *       staging/<uuid>                 bytes on their way in: pushes, upload sessions, mirror fills
 */
export class Paths {
  readonly data: string;
  readonly blobs: string;
  readonly staging: string;

  constructor(data: string) {
    this.data = data;
    this.blobs = join(data, 'blobs');
    this.staging = join(data, 'staging');
  }

  blob(digest: Digest): string {
    const hex = hexOf(digest);
    return join(this.blobs, algorithmOf(digest), hex.slice(0, 2), hex);
  }

  staged(id: string): string {
    return join(this.staging, id);
  }
}
