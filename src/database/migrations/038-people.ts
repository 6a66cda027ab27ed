import type { Migration } from '../migrate.ts';

/**
 * `people` has those who signed in with the provider, as of their last sign-in; `person` is JSON. `tokens.owner_id` is the
 * owner of a personal token, and of those that it made; null for other tokens. Versions before join `tokens` with
 * `sessions`, which has a column `person_id`.
 */
export const peopleMigrations: Migration[] = [
  {
    name: '038-1-people',
    sql: `CREATE TABLE people (
      id VARCHAR(64){ascii} PRIMARY KEY,
      person {text} NOT NULL,
      signed_in_at BIGINT NOT NULL
    )`,
  },
  { name: '038-2-token-owner', sql: 'ALTER TABLE tokens ADD COLUMN owner_id VARCHAR(64){ascii}' },
  { name: '038-3-tokens-owner', sql: 'CREATE INDEX tokens_owner ON tokens (owner_id, created_at)' },
];
