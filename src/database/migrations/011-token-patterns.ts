import type { Migration } from '../migrate.ts';

/** `tokens.patterns` are the names that a token is narrowed to, in JSON; null where it is not. */
export const tokenPatterns: Migration[] = [
  { name: '011-1-token-patterns', sql: 'ALTER TABLE tokens ADD COLUMN patterns {text}' },
];
