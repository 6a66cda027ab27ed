import type { Migration } from '../migrate.ts';

/** `packages.has_deprecated` is 1 if a version is or was deprecated, so that those are found among very many packages. */
export const deprecatedPackages: Migration[] = [
  { name: '042-1-has-deprecated', sql: 'ALTER TABLE packages ADD COLUMN has_deprecated TINYINT NOT NULL DEFAULT 0' },
  {
    name: '042-2-has-deprecated-known',
    sql: 'UPDATE packages SET has_deprecated = 1 WHERE id IN (SELECT package_row FROM package_versions WHERE deprecation IS NOT NULL)',
  },
  {
    name: '042-3-packages-deprecated',
    sql: 'CREATE INDEX packages_deprecated ON packages (account_id, has_deprecated, package_key)',
  },
];
