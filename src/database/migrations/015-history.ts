import type { Migration } from '../migrate.ts';

/**
 * When mirrored versions and all manifests were first seen here, and which digests each tag has had.
 * `account_id` is 0 for mirrored content, `upstream` is empty for hosted content, `digest` is empty for a deleted tag.
 */
export const historyMigrations: Migration[] = [
  {
    name: '015-1-history',
    sql: `CREATE TABLE history (
      id {serial},
      account_id BIGINT NOT NULL,
      upstream VARCHAR(255){ascii} NOT NULL,
      name VARCHAR(255) NOT NULL,
      kind VARCHAR(16){ascii} NOT NULL,
      reference VARCHAR(255){ascii} NOT NULL,
      digest VARCHAR(135){ascii} NOT NULL,
      seen_at BIGINT NOT NULL
    )`,
  },
  {
    name: '015-2-history-reference',
    sql: 'CREATE INDEX history_reference ON history (account_id, upstream, name, kind, reference, id)',
  },
  { name: '015-3-history-name', sql: 'CREATE INDEX history_name ON history (account_id, upstream, name, id)' },
];
