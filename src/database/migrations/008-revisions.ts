import type { Migration } from '../migrate.ts';

/** `packages.revision` counts the changes to a package's versions, so that documents about them can be cached. */
export const revisions: Migration[] = [
  { name: '008-1-package-revision', sql: 'ALTER TABLE packages ADD COLUMN revision BIGINT NOT NULL DEFAULT 0' },
];
