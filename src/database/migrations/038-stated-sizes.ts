import type { Migration } from '../migrate.ts';

/**
 * The sizes of blobs that mirrored manifests state, so that the fetch of a blob has its bound without a search in manifests.
 * `id` is that of the mirror entry that the blob gets. Manifests that an older version stored have no rows.
 */
export const statedSizes: Migration[] = [
  {
    name: '038-1-mirror-sizes',
    sql: `CREATE TABLE mirror_sizes (
      id CHAR(64){ascii} PRIMARY KEY,
      size_bytes BIGINT NOT NULL,
      stated_at BIGINT NOT NULL
    )`,
  },
  { name: '038-2-mirror-sizes-stated', sql: 'CREATE INDEX mirror_sizes_stated ON mirror_sizes (stated_at)' },
];
