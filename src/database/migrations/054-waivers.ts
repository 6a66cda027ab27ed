import type { Migration } from '../migrate.ts';

/**
 * Waivers of what policies refuse. `layer` is the policy of which one is lifted, since it was approved. `reference_list` is JSON,
 * `requested_by` and `decided_by` are actors as JSON, and `requester` is the person, rule or token that counts as one. `warned` is 1
 * after the event that its end is near. `policies.suspended_until` is set while a policy is not enforced for a time.
 */
export const waiverMigrations: Migration[] = [
  {
    name: '054-1-waivers',
    sql: `CREATE TABLE waivers (
      id {serial},
      account_id BIGINT NOT NULL,
      state VARCHAR(16){ascii} NOT NULL,
      layer VARCHAR(16){ascii},
      kind VARCHAR(16){ascii} NOT NULL,
      name VARCHAR(255) NOT NULL,
      name_key VARCHAR(255) NOT NULL,
      reference_list {text} NOT NULL,
      lifts VARCHAR(100) NOT NULL,
      reason VARCHAR(500) NOT NULL,
      requester VARCHAR(100) NOT NULL,
      requested_by {text} NOT NULL,
      requested_at BIGINT NOT NULL,
      decided_by {text},
      decided_at BIGINT,
      expires_at BIGINT NOT NULL,
      warned INT NOT NULL,
      ended_at BIGINT
    )`,
  },
  { name: '054-2-waivers-account', sql: 'CREATE INDEX waivers_account ON waivers (account_id, id)' },
  { name: '054-3-waivers-name', sql: 'CREATE INDEX waivers_name ON waivers (account_id, kind, name_key, state)' },
  { name: '054-4-waivers-open', sql: 'CREATE INDEX waivers_open ON waivers (account_id, state, id)' },
  { name: '054-5-waivers-state', sql: 'CREATE INDEX waivers_state ON waivers (state, id)' },
  { name: '054-6-waivers-end', sql: 'CREATE INDEX waivers_end ON waivers (state, expires_at)' },
  { name: '054-7-waivers-ended', sql: 'CREATE INDEX waivers_ended ON waivers (ended_at)' },
  {
    name: '054-8-policy-suspended',
    sql: 'ALTER TABLE policies ADD COLUMN suspended_until BIGINT NOT NULL DEFAULT 0',
  },
];
