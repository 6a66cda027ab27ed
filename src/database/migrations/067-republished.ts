import type { Migration } from '../migrate.ts';

/**
 * `history.files_digest` is the digest of what is in a package, apart from its signature. `mirror_republished` has the versions whose
 * upstream sent other files than the first that were stored here: `id` is that of the entry, `digest` that of the other content.
 */
export const republished: Migration[] = [
  { name: '067-1-history-files', sql: 'ALTER TABLE history ADD COLUMN files_digest VARCHAR(135){ascii}' },
  {
    name: '067-2-mirror-republished',
    sql: `CREATE TABLE mirror_republished (
      id CHAR(64) PRIMARY KEY,
      upstream VARCHAR(255) NOT NULL,
      kind VARCHAR(32) NOT NULL,
      name VARCHAR(255) NOT NULL,
      reference VARCHAR(255) NOT NULL,
      digest VARCHAR(135) NOT NULL,
      seen_at BIGINT NOT NULL
    )`,
  },
  {
    name: '067-3-mirror-republished-name',
    sql: 'CREATE INDEX mirror_republished_name ON mirror_republished (kind, name, upstream)',
  },
];
