import type { Migration } from '../migrate.ts';

/**
 * Bundles, which carry mirrored content to installations without a network. `bundles` has those that were made and imported here;
 * their `id` is the digest of their list of content. `mirror_staged` has content that is stored and not shown yet: it holds the
 * bytes. `bundle_keys` has the public keys that are trusted.
 */
export const bundleMigrations: Migration[] = [
  {
    name: '055-1-bundles',
    sql: `CREATE TABLE bundles (
      id CHAR(64) NOT NULL,
      direction VARCHAR(16) NOT NULL,
      source VARCHAR(64) NOT NULL,
      sequence BIGINT NOT NULL,
      state VARCHAR(16) NOT NULL,
      summary {text} NOT NULL,
      created_at BIGINT NOT NULL,
      changed_at BIGINT NOT NULL,
      PRIMARY KEY (id, direction)
    )`,
  },
  { name: '055-2-bundles-changed', sql: 'CREATE INDEX bundles_changed ON bundles (direction, changed_at, id)' },
  { name: '055-3-bundles-source', sql: 'CREATE INDEX bundles_source ON bundles (direction, source, sequence)' },
  {
    name: '055-4-bundle-staged',
    sql: `CREATE TABLE mirror_staged (
      import_id CHAR(64) NOT NULL,
      digest VARCHAR(135) NOT NULL,
      size_bytes BIGINT NOT NULL,
      PRIMARY KEY (import_id, digest)
    )`,
  },
  { name: '055-5-bundle-staged-digest', sql: 'CREATE INDEX mirror_staged_digest ON mirror_staged (digest)' },
  {
    name: '055-6-bundle-keys',
    sql: `CREATE TABLE bundle_keys (
      id CHAR(64) NOT NULL PRIMARY KEY,
      name VARCHAR(100) NOT NULL,
      role VARCHAR(16) NOT NULL,
      public_key VARCHAR(500) NOT NULL,
      added_at BIGINT NOT NULL,
      expires_at BIGINT
    )`,
  },
  // What an installation with a receipt of this one counts on: it stays although it was not used for long.
  {
    name: '055-7-mirror-counted-on',
    sql: 'CREATE TABLE mirror_counted_on (digest VARCHAR(135) NOT NULL PRIMARY KEY)',
  },
];
