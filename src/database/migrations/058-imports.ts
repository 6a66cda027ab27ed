import type { Migration } from '../migrate.ts';

/**
 * `package_versions.imported` is what the source of an import told of a version when it was read last, as JSON; null of a version
 * that was pushed. `package_comparisons` has the versions of sources whose content is that of an upstream, so that it is not fetched and
 * compared again.
 */
export const importMigrations: Migration[] = [
  { name: '058-1-versions-imported', sql: 'ALTER TABLE package_versions ADD COLUMN imported {text}' },
  {
    name: '058-2-package-comparisons',
    sql: `CREATE TABLE package_comparisons (
      account_id BIGINT NOT NULL,
      package_key VARCHAR(128) NOT NULL,
      version_key VARCHAR(255){ascii} NOT NULL,
      upstream VARCHAR(100) NOT NULL,
      sha512 VARCHAR(88){ascii} NOT NULL,
      digest VARCHAR(135){ascii} NOT NULL,
      size_bytes BIGINT NOT NULL,
      compared_at BIGINT NOT NULL,
      PRIMARY KEY (account_id, package_key, version_key)
    )`,
  },
  {
    name: '058-3-package-comparisons-time',
    sql: 'CREATE INDEX package_comparisons_time ON package_comparisons (compared_at)',
  },
];
