import type { Migration } from '../migrate.ts';

/** `name` is for people, and may be empty. `failing_since` is set while the latest attempt has failed. */
export const webhookNames: Migration[] = [
  { name: '049-1-webhook-name', sql: "ALTER TABLE webhooks ADD COLUMN name VARCHAR(100) NOT NULL DEFAULT ''" },
  { name: '049-2-webhook-failing', sql: 'ALTER TABLE webhooks ADD COLUMN failing_since BIGINT' },
];
