import type { Migration } from '../migrate.ts';

/** `tokens.patterns` are the name patterns that limit a token, as JSON; null for a token without limits. */
export const tokenPatterns: Migration[] = [
  { name: '011-1-token-patterns', sql: 'ALTER TABLE tokens ADD COLUMN patterns {text}' },
];
