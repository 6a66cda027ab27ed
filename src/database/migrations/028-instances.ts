import type { Migration } from '../migrate.ts';

/**
 * The running server processes. `seen_at` is by the clock of the database; a row that was not renewed for `lease`
 * milliseconds belongs to a process that died. `folder` is the identity of the data folder. The other columns are what the
 * instances of one installation must have in common: fingerprints, never secrets.
 *
 * `uploads.folder` is the data folder that has the staged file of the session. NULL for a session of an older version.
 */
export const instances: Migration[] = [
  {
    name: '028-1-instances',
    sql: `CREATE TABLE instances (
      id VARCHAR(36){ascii} PRIMARY KEY,
      name VARCHAR(255) NOT NULL,
      address VARCHAR(255),
      version VARCHAR(64) NOT NULL,
      folder VARCHAR(80){ascii} NOT NULL,
      storage VARCHAR(255),
      secret VARCHAR(255),
      redis VARCHAR(255),
      database_node VARCHAR(255),
      started_at BIGINT NOT NULL,
      seen_at BIGINT NOT NULL,
      lease BIGINT NOT NULL
    )`,
  },
  { name: '028-2-uploads-folder', sql: 'ALTER TABLE uploads ADD COLUMN folder VARCHAR(80){ascii}' },
];
