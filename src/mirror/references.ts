import type { BlobReferences } from '../storage/references.ts';

/** The blobs that were fetched from upstreams. All accounts share them. */
export const mirrorReferences: BlobReferences = {
  origin: 'mirrored',
  tables: ['mirror_entries'],
  owned: ['SELECT NULL AS account_id, digest FROM mirror_entries WHERE digest > ? AND digest <= ?'],
  async forget(tx, digest) {
    await tx.run('DELETE FROM mirror_entries WHERE digest = ?', [digest]);
  },
};
