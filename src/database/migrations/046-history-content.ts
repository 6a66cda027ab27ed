import type { Migration } from '../migrate.ts';

/** What a tag pointed to, which is told after its manifest was deleted, too; null for lines that an older version wrote. */
export const historyContent: Migration[] = [
  { name: '046-1-history-media-type', sql: 'ALTER TABLE history ADD COLUMN media_type VARCHAR(255)' },
  { name: '046-2-history-size', sql: 'ALTER TABLE history ADD COLUMN size_bytes BIGINT' },
];
