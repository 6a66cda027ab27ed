import type { Migration } from '../migrate.ts';

/**
 * `manifest_references.absent` is 1 if the repository had no such content when the manifest was pushed. Such a reference keeps no
 * bytes, and counts none: they may be those of another account. When the content comes later, it has a row of its own.
 */
export const absentReferences: Migration[] = [
  {
    name: '083-1-absent-references',
    sql: 'ALTER TABLE manifest_references ADD COLUMN absent SMALLINT NOT NULL DEFAULT 0',
  },
];
