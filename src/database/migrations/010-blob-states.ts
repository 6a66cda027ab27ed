import type { Migration } from '../migrate.ts';

/**
 * `blobs.state` tells whether the bytes of a row are there: `pending` while they are being put, `live`, and `deleting`
 * from the decision to remove them until they are removed. References are written to live rows only.
 * `blobs.generation` is another number for each time that bytes are put anew, so that a push notices when they have been
 * removed since it put them.
 */
export const blobStates: Migration[] = [
  { name: '010-1-blob-state', sql: "ALTER TABLE blobs ADD COLUMN state VARCHAR(16) NOT NULL DEFAULT 'live'" },
  { name: '010-2-blob-generation', sql: 'ALTER TABLE blobs ADD COLUMN generation BIGINT NOT NULL DEFAULT 0' },
];
