import type { Migration } from '../migrate.ts';

/**
 * The running server processes. `seen_at` is by the clock of the database; a row that was not renewed for `lease`
 * milliseconds belongs to a process that died. `folder` is the identity of the data folder. The other columns are what the
 * instances of one installation must have in common: fingerprints, never secrets.
 *
 * `uploads.folder` is the data folder that has the staged file of the session. NULL for a session of an older version.
 * `uploads.lost` is 1 for a session that has ended because its folder could not be reached. It counts for the account until
 * an instance with the folder has deleted the file, or no instance with the folder is live.
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
  { name: '028-3-uploads-lost', sql: 'ALTER TABLE uploads ADD COLUMN lost INTEGER NOT NULL DEFAULT 0' },
  { name: '028-4-uploads-lost-index', sql: 'CREATE INDEX uploads_lost ON uploads (lost, folder)' },
];
