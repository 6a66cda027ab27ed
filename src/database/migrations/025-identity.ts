import type { Migration } from '../migrate.ts';

/**
 * `publishers` are the rules for the exchange of identity tokens; `claims` and `patterns` are JSON. `used_identity_tokens`
 * has the tokens that were exchanged, until they expire. `tokens.publisher_id` is the rule that gave a token, null for
 * other tokens. `sessions.person` describes the person of a session as JSON, null for a session that a token began.
 */
export const identity: Migration[] = [
  {
    name: '025-1-publishers',
    sql: `CREATE TABLE publishers (
      id VARCHAR(64){ascii} PRIMARY KEY,
      account_id BIGINT NOT NULL,
      name VARCHAR(200) NOT NULL,
      issuer VARCHAR(100) NOT NULL,
      claims {text} NOT NULL,
      scopes VARCHAR(100) NOT NULL,
      patterns {text},
      created_at BIGINT NOT NULL,
      updated_at BIGINT NOT NULL
    )`,
  },
  { name: '025-2-publishers-name', sql: 'CREATE UNIQUE INDEX publishers_name ON publishers (account_id, name)' },
  {
    name: '025-3-used-identity-tokens',
    sql: 'CREATE TABLE used_identity_tokens (id VARCHAR(64){ascii} PRIMARY KEY, expires_at BIGINT NOT NULL)',
  },
  {
    name: '025-4-used-identity-tokens-expiry',
    sql: 'CREATE INDEX used_identity_tokens_expiry ON used_identity_tokens (expires_at)',
  },
  { name: '025-5-token-publisher', sql: 'ALTER TABLE tokens ADD COLUMN publisher_id VARCHAR(64){ascii}' },
  { name: '025-6-tokens-publisher', sql: 'CREATE INDEX tokens_publisher ON tokens (publisher_id, expires_at)' },
  { name: '025-7-session-person', sql: 'ALTER TABLE sessions ADD COLUMN person {text}' },
  { name: '025-8-session-person-id', sql: 'ALTER TABLE sessions ADD COLUMN person_id VARCHAR(64){ascii}' },
  { name: '025-9-sessions-person', sql: 'CREATE INDEX sessions_person ON sessions (person_id, created_at)' },
];
