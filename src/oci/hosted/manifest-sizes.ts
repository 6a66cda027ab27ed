import { batches } from '../../database/batches.ts';
import { placeholders, type Queryable } from '../../database/database.ts';
import type { Digest } from '../../runtime/digest.ts';
import { sizeOf } from '../../storage/blobs/sizes.ts';
import { isIndex, type Manifest } from '../format/manifest.ts';

interface References extends Pick<Manifest, 'kind'> {
  references: readonly { digest: Digest }[];
}

/** The size of each blob or manifest that a manifest refers to and the repository has. */
export async function sizesOf(
  from: Queryable,
  repositoryId: number,
  { kind, references }: References,
): Promise<ReadonlyMap<Digest, number>> {
  const blobs = `SELECT digest, ${sizeOf('rb.digest')} AS size FROM repository_blobs rb WHERE repository_id = ?`;
  const manifests = 'SELECT digest, image_bytes AS size FROM manifests WHERE repository_id = ?';
  const sizes = new Map<Digest, number>();
  for (const part of batches(references)) {
    const digests = part.map(({ digest }) => digest);
    // The children of an index are manifests, or blobs in the index of a build cache.
    for (const sql of kind === 'index' ? [blobs, manifests] : [blobs]) {
      const rows = await from.select<{ digest: Digest; size: number | null }>(
        `${sql} AND digest IN (${placeholders(digests)})`,
        [repositoryId, ...digests],
      );
      for (const { digest, size } of rows) if (size !== null) sizes.set(digest, size);
    }
  }
  return sizes;
}

/** The bytes of all that a stored manifest refers to and the repository has. */
export async function bytesOfReferences(
  from: Queryable,
  repositoryId: number,
  mediaType: string,
  manifestId: number,
): Promise<number> {
  const sql = 'SELECT digest FROM manifest_references WHERE manifest_id = ?';
  const references = await from.select<{ digest: Digest }>(sql, [manifestId]);
  const sizes = await sizesOf(from, repositoryId, { kind: isIndex(mediaType) ? 'index' : 'image', references });
  return [...sizes.values()].reduce((sum, size) => sum + size, 0);
}
