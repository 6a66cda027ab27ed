import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { algorithmOf, hexOf, isDigest, type Digest } from '../digest.ts';

/**
 * The whole layout on disk. Nothing a client sends becomes part of a path but the hex of a parsed digest.
 *
 *     data/
 *       entrepot.db                    the embedded database, unless another is configured
 *       blobs/sha256/ab/ab12…          content, named by its digest; immutable
 *       staging/<uuid>                 bytes on their way in: pushes, upload sessions, mirror fills
 *       quarantine/sha256-ab12…        what no longer had its digest when it was read again
 */
export class Paths {
  readonly data: string;
  readonly blobs: string;
  readonly staging: string;
  readonly quarantine: string;

  constructor(data: string) {
    this.data = data;
    this.blobs = join(data, 'blobs');
    this.staging = join(data, 'staging');
    this.quarantine = join(data, 'quarantine');
  }

  blob(digest: Digest): string {
    const hex = hexOf(digest);
    return join(this.blobs, algorithmOf(digest), hex.slice(0, 2), hex);
  }

  /** The digests whose files are in the storage, a folder of them at a time. What else lies there is passed over. */
  async *stored(): AsyncGenerator<Digest[]> {
    for (const algorithm of ['sha256', 'sha512'] as const) {
      for (const folder of await namesIn(join(this.blobs, algorithm))) {
        const names = await namesIn(join(this.blobs, algorithm, folder));
        const digests = names.map((name) => `${algorithm}:${name}`).filter(isDigest);
        yield digests.filter((digest) => hexOf(digest).startsWith(folder));
      }
    }
  }

  quarantined(digest: Digest): string {
    return join(this.quarantine, digest.replace(':', '-'));
  }

  staged(id: string): string {
    return join(this.staging, id);
  }
}

/** What is in a folder, in order; nothing when it is none. */
async function namesIn(folder: string): Promise<string[]> {
  try {
    return (await readdir(folder)).sort();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR') return [];
    throw error;
  }
}
