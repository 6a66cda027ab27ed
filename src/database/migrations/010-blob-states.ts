import type { Migration } from '../migrate.ts';

/**
 * `blobs.state` is the state of the bytes: `pending` while they are being stored, `live`, and `deleting` from the
 * decision to delete them until they are deleted. Only live rows get new references. `blobs.generation` changes each
 * time that the bytes are stored again, so that a push notices when the bytes it stored were deleted since.
 */
export const blobStates: Migration[] = [
  { name: '010-1-blob-state', sql: "ALTER TABLE blobs ADD COLUMN state VARCHAR(16) NOT NULL DEFAULT 'live'" },
  { name: '010-2-blob-generation', sql: 'ALTER TABLE blobs ADD COLUMN generation BIGINT NOT NULL DEFAULT 0' },
];
