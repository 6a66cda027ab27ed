import type { Migration } from '../migrate.ts';

/**
 * Users and keys of predecessors that have a token here. `secret` is the salt and the scrypt of a user's password; a key is in a file
 * of the operator.
 */
export const adoptedCredentials: Migration[] = [
  {
    name: '076-1-adopted-credentials',
    sql: `CREATE TABLE adopted_credentials (
      predecessor VARCHAR(100){ascii} NOT NULL,
      kind VARCHAR(8){ascii} NOT NULL,
      name VARCHAR(200) NOT NULL,
      scopes VARCHAR(100){ascii} NOT NULL,
      secret VARCHAR(100){ascii},
      token_id CHAR(36){ascii} NOT NULL,
      checked_at BIGINT NOT NULL,
      PRIMARY KEY (predecessor, kind, name)
    )`,
  },
];
