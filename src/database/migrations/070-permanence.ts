import type { Migration } from '../migrate.ts';

/**
 * `permanence.rules` has the patterns of what cannot change and of what cannot be deleted, as JSON, of each account that has some.
 * A row of the account 0 marks an installation that is older than this table: it does not keep deleted content unless it is set.
 */
export const permanenceMigrations: Migration[] = [
  {
    name: '070-1-permanence',
    sql: `CREATE TABLE permanence (
      account_id BIGINT NOT NULL PRIMARY KEY,
      rules {text} NOT NULL,
      changed_at BIGINT NOT NULL
    )`,
  },
  {
    name: '070-2-permanence-earlier',
    sql: `INSERT INTO permanence (account_id, rules, changed_at)
      SELECT 0, '{}', 0 FROM accounts ORDER BY id LIMIT 1`,
  },
];
