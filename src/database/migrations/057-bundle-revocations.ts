import type { Migration } from '../migrate.ts';

/**
 * `vouched_by` is the key that signed the statement because of which a key is trusted. `bundle_revocations` has the keys that are
 * never trusted again, whether they were trusted here or not.
 */
export const bundleRevocations: Migration[] = [
  { name: '057-1-bundle-keys-vouched', sql: 'ALTER TABLE bundle_keys ADD COLUMN vouched_by CHAR(64)' },
  {
    name: '057-2-bundle-revocations',
    sql: `CREATE TABLE bundle_revocations (
      id CHAR(64) NOT NULL PRIMARY KEY,
      name VARCHAR(100),
      revoked_by CHAR(64) NOT NULL,
      revoked_at BIGINT NOT NULL
    )`,
  },
];
