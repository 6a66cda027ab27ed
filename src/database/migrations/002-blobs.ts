import type { Migration } from '../migrate.ts';

/** Stored bytes, hosted and mirrored. */
export const blobs: Migration[] = [
  {
    name: '002-1-blobs',
    sql: `CREATE TABLE blobs (
      digest VARCHAR(135) PRIMARY KEY,
      size BIGINT NOT NULL,
      stored_at BIGINT NOT NULL
    )`,
  },
];
