import type { Migration } from '../migrate.ts';

/** For lists of tags by their last push. */
export const newestTags: Migration[] = [
  { name: '039-1-tags-newest', sql: 'CREATE INDEX tags_newest ON tags (repository_id, updated_at, name)' },
];
