import type { Migration } from '../migrate.ts';

/**
 * `people.disabled` is JSON: where administrators disabled the person, by the name of an account, or `*` for everywhere.
 * `accounts.personal_tokens` is JSON: what the account allows personal tokens.
 */
export const endsOfPeople: Migration[] = [
  { name: '078-1-people-disabled', sql: 'ALTER TABLE people ADD COLUMN disabled {text}' },
  { name: '078-2-accounts-personal-tokens', sql: 'ALTER TABLE accounts ADD COLUMN personal_tokens {text}' },
];
