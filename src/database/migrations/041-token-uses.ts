import type { Migration } from '../migrate.ts';

/**
 * What was downloaded and pushed with each token, or with the tokens of each rule (`user_id`), and from where: `kind` is that
 * of the name, or `client` for an address with its `User-Agent`. They only help people: a crash may lose the last ones.
 */
export const tokenUses: Migration[] = [
  {
    name: '041-1-token-uses',
    sql: `CREATE TABLE token_uses (
      account_id BIGINT NOT NULL,
      kind VARCHAR(20) NOT NULL,
      name VARCHAR(255) NOT NULL,
      user_id VARCHAR(36){ascii} NOT NULL,
      downloads BIGINT NOT NULL,
      uploads BIGINT NOT NULL,
      last_at BIGINT NOT NULL,
      PRIMARY KEY (account_id, kind, name, user_id)
    )`,
  },
  { name: '041-2-token-uses-user', sql: 'CREATE INDEX token_uses_user ON token_uses (user_id, kind, last_at)' },
  { name: '041-3-token-uses-last', sql: 'CREATE INDEX token_uses_last ON token_uses (last_at)' },
];
