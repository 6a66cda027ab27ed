import type { Migration } from '../migrate.ts';

/**
 * Versions of up to 255 characters. They are ASCII: with four bytes a character an index on them would be longer than
 * MySQL allows. SQLite does not enforce lengths.
 */
export const longVersions: Migration[] = [
  {
    name: '014-1-package-versions',
    dialect: 'mysql',
    sql: `ALTER TABLE package_versions
      MODIFY version_key VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
      MODIFY version VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
      MODIFY full_version VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
      MODIFY sort_key VARCHAR(512) CHARACTER SET ascii COLLATE ascii_bin NOT NULL`,
  },
  {
    name: '014-2-mirrored-downloads',
    dialect: 'mysql',
    sql: `ALTER TABLE mirrored_downloads
      MODIFY version VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin NOT NULL`,
  },
];
