import type { Migration } from '../migrate.ts';

/**
 * Hosted packages. A `packages` row without versions is a claim on the ID: the ID is not requested from upstreams.
 *
 * The four `latest_…` columns hold the newest listed version that a client sees. They differ in prereleases (`pre`) and
 * SemVer 2 (`2`). `flags` has a bit for each of these versions that exists, and for common package types, so that a
 * search can filter without another query. `standing` decreases in steps with the number of downloads, so that an index
 * has the order of search results.
 *
 * The index of the order of versions contains all columns that lists of versions show, because the rows are long.
 *
 * `package_terms` holds the search words of the newest listed version. `terms` repeats them, to find them from the
 * package. The `standing` of a word is that of the package within the tier of the word.
 */
export const packages: Migration[] = [
  {
    name: '003-1-packages',
    sql: `CREATE TABLE packages (
      id {serial},
      account_id BIGINT NOT NULL,
      package_key VARCHAR(128) NOT NULL,
      package_id VARCHAR(128) NOT NULL,
      package_types VARCHAR(255) NOT NULL DEFAULT '',
      version_count BIGINT NOT NULL DEFAULT 0,
      size_bytes BIGINT NOT NULL DEFAULT 0,
      download_count BIGINT NOT NULL DEFAULT 0,
      standing SMALLINT NOT NULL,
      flags SMALLINT NOT NULL DEFAULT 0,
      latest_stable BIGINT,
      latest_pre BIGINT,
      latest_stable2 BIGINT,
      latest_pre2 BIGINT,
      created_at BIGINT NOT NULL,
      updated_at BIGINT NOT NULL,
      last_downloaded_at BIGINT,
      terms {text},
      UNIQUE (account_id, package_key)
    )`,
  },
  {
    name: '003-2-packages-standing',
    sql: 'CREATE INDEX packages_standing ON packages (account_id, standing, package_key, flags)',
  },
  {
    name: '003-3-packages-key',
    sql: 'CREATE INDEX packages_key ON packages (account_id, package_key, flags, standing)',
  },
  {
    name: '003-4-package-versions',
    sql: `CREATE TABLE package_versions (
      id {serial},
      package_row BIGINT NOT NULL,
      version_key VARCHAR(64) NOT NULL,
      version VARCHAR(64) NOT NULL,
      full_version VARCHAR(255) NOT NULL,
      sort_key VARCHAR(128) NOT NULL,
      listed SMALLINT NOT NULL,
      prerelease SMALLINT NOT NULL,
      semver2 SMALLINT NOT NULL,
      published_at BIGINT NOT NULL,
      size_bytes BIGINT NOT NULL,
      download_count BIGINT NOT NULL DEFAULT 0,
      sha512 CHAR(88) NOT NULL,
      nupkg_digest VARCHAR(135) NOT NULL,
      nuspec_digest VARCHAR(135) NOT NULL,
      readme_digest VARCHAR(135),
      icon_digest VARCHAR(135),
      icon_type VARCHAR(32),
      snupkg_digest VARCHAR(135),
      metadata {text} NOT NULL,
      UNIQUE (package_row, version_key)
    )`,
  },
  {
    name: '003-5-package-versions-order',
    sql: `CREATE INDEX package_versions_order ON package_versions
      (package_row, sort_key, version_key, version, full_version, download_count, listed, prerelease, semver2)`,
  },
  {
    name: '003-6-package-blobs',
    sql: `CREATE TABLE package_blobs (
      version_row BIGINT NOT NULL,
      digest VARCHAR(135) NOT NULL,
      PRIMARY KEY (version_row, digest)
    )`,
  },
  { name: '003-7-package-blobs-digest', sql: 'CREATE INDEX package_blobs_digest ON package_blobs (digest)' },
  {
    name: '003-8-package-terms',
    sql: `CREATE TABLE package_terms (
      account_id BIGINT NOT NULL,
      term VARCHAR(100) NOT NULL,
      package_row BIGINT NOT NULL,
      standing INTEGER NOT NULL,
      fields SMALLINT NOT NULL,
      flags SMALLINT NOT NULL,
      PRIMARY KEY (account_id, term, package_row)
    ){clustered}`,
  },
  {
    name: '003-9-package-terms-standing',
    sql: 'CREATE INDEX package_terms_standing ON package_terms (account_id, term, standing, package_row, fields, flags)',
  },
  {
    name: '003-10-package-symbols',
    sql: `CREATE TABLE package_symbols (
      account_id BIGINT NOT NULL,
      file_name VARCHAR(255) NOT NULL,
      signature CHAR(40) NOT NULL,
      version_row BIGINT NOT NULL,
      path VARCHAR(1024) NOT NULL,
      PRIMARY KEY (account_id, signature, file_name, version_row)
    )`,
  },
  {
    name: '003-11-package-symbols-version',
    sql: 'CREATE INDEX package_symbols_version ON package_symbols (version_row)',
  },
];
