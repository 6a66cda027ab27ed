import type { Migration } from '../migrate.ts';

/**
 * Promotions: content of an account that appears in another account or under another name. `digest` is what was asked for,
 * also if the tag moves. `requested_by` and `decided_by` are actors as JSON, and `requester` is the person, rule or token that
 * counts as one.
 */
export const promotionMigrations: Migration[] = [
  {
    name: '072-1-promotions',
    sql: `CREATE TABLE promotions (
      id {serial},
      state VARCHAR(16){ascii} NOT NULL,
      kind VARCHAR(16){ascii} NOT NULL,
      from_account BIGINT NOT NULL,
      from_name VARCHAR(255) NOT NULL,
      reference VARCHAR(255) NOT NULL,
      digest VARCHAR(135){ascii} NOT NULL,
      to_account BIGINT NOT NULL,
      to_name VARCHAR(255) NOT NULL,
      reason VARCHAR(500) NOT NULL,
      requester VARCHAR(100) NOT NULL,
      requested_by {text} NOT NULL,
      requested_at BIGINT NOT NULL,
      decided_by {text},
      decided_at BIGINT
    )`,
  },
  { name: '072-2-promotions-from', sql: 'CREATE INDEX promotions_from ON promotions (from_account, id)' },
  { name: '072-3-promotions-to', sql: 'CREATE INDEX promotions_to ON promotions (to_account, id)' },
  { name: '072-4-promotions-open', sql: 'CREATE INDEX promotions_open ON promotions (to_account, state, id)' },
  { name: '072-5-promotions-decided', sql: 'CREATE INDEX promotions_decided ON promotions (decided_at)' },
];
