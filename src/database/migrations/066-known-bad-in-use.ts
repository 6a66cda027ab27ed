import type { Migration } from '../migrate.ts';

/** What a list names of the content that clients use, as JSON. */
export const knownBadInUse: Migration[] = [
  { name: '066-1-bad-lists-in-use', sql: 'ALTER TABLE bad_lists ADD COLUMN in_use {text}' },
];
