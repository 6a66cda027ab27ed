import type { Migration } from '../migrate.ts';

/**
 * `packages.index_version` is the version of the rules by which the search words of a package were made. Packages of an
 * older version are indexed again. 0 is from before there were id terms and `package_frameworks`.
 *
 * `packages.id_terms` repeats the id terms of a package, each after a full stop: a search for several words checks them
 * without reading all its words.
 *
 * `package_frameworks` holds the lowest version of each family of target frameworks for which the newest listed version
 * has dependencies: see `lowestFrameworks`. A package without rows does not limit its frameworks.
 */
export const search: Migration[] = [
  {
    name: '018-1-package-index-version',
    sql: 'ALTER TABLE packages ADD COLUMN index_version SMALLINT NOT NULL DEFAULT 0',
  },
  {
    name: '018-2-package-index-version-order',
    sql: 'CREATE INDEX packages_index_version ON packages (index_version, id)',
  },
  { name: '018-3-package-id-terms', sql: 'ALTER TABLE packages ADD COLUMN id_terms {text}' },
  {
    name: '018-4-package-frameworks',
    sql: `CREATE TABLE package_frameworks (
      package_row BIGINT NOT NULL,
      family VARCHAR(32){ascii} NOT NULL,
      version INTEGER NOT NULL,
      PRIMARY KEY (package_row, family)
    ){clustered}`,
  },
];
