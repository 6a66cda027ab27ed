import type { Migration } from '../migrate.ts';

/**
 * Bytes of packages in the database. `package_versions.metadata_bytes` is the size of a version's metadata;
 * `packages.metadata_bytes` is the size of all its versions and their symbols. `packages.largest_metadata` is an upper
 * bound for each version: usually so small that the pages of a registration need not be measured.
 */
export const metadata: Migration[] = [
  {
    name: '009-1-version-metadata',
    sql: 'ALTER TABLE package_versions ADD COLUMN metadata_bytes BIGINT NOT NULL DEFAULT 0',
  },
  {
    name: '009-2-version-metadata-measured',
    sql: 'UPDATE package_versions SET metadata_bytes = OCTET_LENGTH(metadata)',
  },
  {
    name: '009-3-package-metadata',
    sql: 'ALTER TABLE packages ADD COLUMN metadata_bytes BIGINT NOT NULL DEFAULT 0',
  },
  {
    name: '009-4-package-largest',
    sql: 'ALTER TABLE packages ADD COLUMN largest_metadata BIGINT NOT NULL DEFAULT 0',
  },
  {
    name: '009-5-package-metadata-measured',
    sql: `UPDATE packages SET
      metadata_bytes = (
        SELECT COALESCE(SUM(v.metadata_bytes), 0) FROM package_versions v WHERE v.package_row = packages.id
      ) + (
        SELECT COALESCE(SUM(100 + OCTET_LENGTH(s.file_name) + OCTET_LENGTH(s.path)), 0)
        FROM package_versions v JOIN package_symbols s ON s.version_row = v.id WHERE v.package_row = packages.id
      ),
      largest_metadata = (
        SELECT COALESCE(MAX(v.metadata_bytes), 0) FROM package_versions v WHERE v.package_row = packages.id
      )`,
  },
];
