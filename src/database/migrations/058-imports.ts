import type { Migration } from '../migrate.ts';

/**
 * `package_versions.imported` is what the source of an import told of a version when it was read last, as JSON; null of a version
 * that was pushed. `package_comparisons` has the versions of sources whose content is that of an upstream, so that it is not fetched and
 * compared again.
 *
 * `import_runs` has the imports that users start by `/v1`; one that has not ended has its account as its `slot`. `settings` never has the
 * secret of a source. `import_problems` has the conflicts and failures of a run.
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
  {
    name: '058-4-import-runs',
    sql: `CREATE TABLE import_runs (
      id VARCHAR(36){ascii} PRIMARY KEY,
      slot VARCHAR(20){ascii},
      account_id BIGINT NOT NULL,
      state VARCHAR(16){ascii} NOT NULL,
      cancelled INTEGER NOT NULL,
      created_at BIGINT NOT NULL,
      beat_at BIGINT NOT NULL,
      ended_at BIGINT,
      settings {text} NOT NULL,
      progress {text} NOT NULL
    )`,
  },
  { name: '058-5-import-runs-slot', sql: 'CREATE UNIQUE INDEX import_runs_slot ON import_runs (slot)' },
  { name: '058-6-import-runs-time', sql: 'CREATE INDEX import_runs_time ON import_runs (account_id, created_at, id)' },
  {
    name: '058-7-import-problems',
    sql: `CREATE TABLE import_problems (
      run_id VARCHAR(36){ascii} NOT NULL,
      position INTEGER NOT NULL,
      outcome VARCHAR(16){ascii} NOT NULL,
      name VARCHAR(300) NOT NULL,
      reference VARCHAR(300) NOT NULL,
      note VARCHAR(500) NOT NULL,
      PRIMARY KEY (run_id, position)
    )`,
  },
];
