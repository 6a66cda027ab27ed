import type { Migration } from '../migrate.ts';

/**
 * Warnings about hosted packages. `package_versions.deprecation` is JSON; its bytes count in `metadata_bytes` of the
 * version and of the package. `package_advisories` has the vulnerabilities that an account reports of its own packages;
 * their bytes count in `packages.metadata_bytes`. `advisory_changes` has the time of the last change to an account's
 * advisories, and increases with each change.
 */
export const noticeMigrations: Migration[] = [
  { name: '026-1-version-deprecation', sql: 'ALTER TABLE package_versions ADD COLUMN deprecation {text}' },
  {
    name: '026-2-package-advisories',
    sql: `CREATE TABLE package_advisories (
      id VARCHAR(36) PRIMARY KEY,
      account_id BIGINT NOT NULL,
      package_row BIGINT NOT NULL,
      severity SMALLINT NOT NULL,
      versions VARCHAR(255){ascii} NOT NULL,
      url VARCHAR(500){ascii} NOT NULL,
      created_at BIGINT NOT NULL
    )`,
  },
  {
    name: '026-3-package-advisories-account',
    sql: 'CREATE INDEX package_advisories_account ON package_advisories (account_id, created_at, id)',
  },
  {
    name: '026-4-package-advisories-package',
    sql: 'CREATE INDEX package_advisories_package ON package_advisories (package_row, created_at, id)',
  },
  {
    name: '026-5-advisory-changes',
    sql: 'CREATE TABLE advisory_changes (account_id BIGINT PRIMARY KEY, changed_at BIGINT NOT NULL)',
  },
];
