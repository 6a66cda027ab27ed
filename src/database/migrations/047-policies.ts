import type { Migration } from '../migrate.ts';

/**
 * The policies for mirrored content, as they were written: one of all accounts, with the account 0, and one of each account that
 * has one. `regimes` has the earlier times of a policy as JSON.
 */
export const policies: Migration[] = [
  {
    name: '047-1-policies',
    sql: `CREATE TABLE policies (
      account_id BIGINT NOT NULL PRIMARY KEY,
      document {text} NOT NULL,
      revision BIGINT NOT NULL,
      regimes {text} NOT NULL,
      changed_at BIGINT NOT NULL
    )`,
  },
];
