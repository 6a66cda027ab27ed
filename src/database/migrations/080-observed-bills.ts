import type { Migration } from '../migrate.ts';

/**
 * `accounts.observed_bills` is 1 if the images of the account get observed bills of materials. `observed_pushes` has what
 * jobs of a CI pushed; `is_due` is 1 until the bill is made or given up.
 */
export const observedBillMigrations: Migration[] = [
  { name: '080-1-accounts-observed-bills', sql: 'ALTER TABLE accounts ADD COLUMN observed_bills SMALLINT' },
  {
    name: '080-2-observed-pushes',
    sql: `CREATE TABLE observed_pushes (
      content_id CHAR(32){ascii} NOT NULL,
      user_id VARCHAR(40){ascii} NOT NULL,
      pushed_at BIGINT NOT NULL,
      is_due SMALLINT NOT NULL,
      PRIMARY KEY (content_id, user_id)
    )`,
  },
  {
    name: '080-3-observed-pushes-due',
    sql: 'CREATE INDEX observed_pushes_due ON observed_pushes (is_due, pushed_at, content_id, user_id)',
  },
];
