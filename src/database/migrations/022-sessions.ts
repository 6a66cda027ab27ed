import type { Migration } from '../migrate.ts';

export const sessions: Migration[] = [
  {
    name: '022-1-sessions',
    sql: `CREATE TABLE sessions (
      id VARCHAR(36) PRIMARY KEY,
      hash VARCHAR(64){ascii} NOT NULL UNIQUE,
      account_id BIGINT NOT NULL,
      token_id VARCHAR(36),
      agent VARCHAR(255) NOT NULL,
      address VARCHAR(64),
      created_at BIGINT NOT NULL,
      used_at BIGINT NOT NULL
    )`,
  },
  { name: '022-2-sessions-account', sql: 'CREATE INDEX sessions_account ON sessions (account_id, created_at)' },
  { name: '022-3-sessions-used', sql: 'CREATE INDEX sessions_used ON sessions (used_at)' },
];
