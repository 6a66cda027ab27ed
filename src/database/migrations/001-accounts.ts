import type { Migration } from '../migrate.ts';

export const accounts: Migration[] = [
  {
    name: '001-1-accounts',
    sql: `CREATE TABLE accounts (
      id {serial},
      name VARCHAR(100) NOT NULL UNIQUE,
      created_at BIGINT NOT NULL
    )`,
  },
  {
    name: '001-2-tokens',
    sql: `CREATE TABLE tokens (
      id CHAR(36) PRIMARY KEY,
      account_id BIGINT NOT NULL,
      name VARCHAR(200) NOT NULL,
      token_prefix VARCHAR(16) NOT NULL,
      hash CHAR(64) NOT NULL UNIQUE,
      scopes VARCHAR(100) NOT NULL,
      created_at BIGINT NOT NULL,
      expires_at BIGINT,
      last_used_at BIGINT,
      revoked_at BIGINT
    )`,
  },
  { name: '001-3-tokens-account', sql: 'CREATE INDEX tokens_account ON tokens (account_id, id)' },
];
