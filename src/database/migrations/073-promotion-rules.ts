import type { Migration } from '../migrate.ts';

/**
 * The rules of accounts for promotions to them; an account without a row takes none of other accounts. `promote_only` is 1 if it
 * takes no pushes, `approval` is who approves, and `sources` is JSON: the names of the accounts that may ask.
 */
export const promotionRuleMigrations: Migration[] = [
  {
    name: '073-1-promotion-rules',
    sql: `CREATE TABLE promotion_rules (
      account_id BIGINT NOT NULL PRIMARY KEY,
      promote_only INT NOT NULL,
      approval VARCHAR(16){ascii} NOT NULL,
      sources {text} NOT NULL
    )`,
  },
];
