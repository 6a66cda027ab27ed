import type { Migration } from '../migrate.ts';

/**
 * Webhooks and their deliveries. Secrets are encrypted; `webhook_key` has one row while there are webhooks, or accounts with
 * observed bills: `proof` shows whether a key is the one that encrypts them. Events up to `webhook_cursor.position` have been
 * turned into deliveries. `events` is a JSON list of patterns. Nothing is sent before `paused_until`. A row with `deleted_at`
 * is hidden, and is removed after its deliveries.
 */
export const webhooks: Migration[] = [
  {
    name: '021-1-webhooks',
    sql: `CREATE TABLE webhooks (
      id VARCHAR(36){ascii} PRIMARY KEY,
      account_id BIGINT NOT NULL,
      url VARCHAR(2000) NOT NULL,
      events {text} NOT NULL,
      enabled INTEGER NOT NULL,
      disabled_reason VARCHAR(255),
      operate INTEGER NOT NULL,
      secret VARCHAR(255){ascii} NOT NULL,
      old_secret VARCHAR(255){ascii},
      old_until BIGINT,
      since_position BIGINT NOT NULL,
      paused_until BIGINT NOT NULL,
      created_at BIGINT NOT NULL,
      deleted_at BIGINT
    )`,
  },
  { name: '021-2-webhooks-account', sql: 'CREATE INDEX webhooks_account ON webhooks (account_id, created_at, id)' },
  {
    name: '021-3-webhook-deliveries',
    sql: `CREATE TABLE webhook_deliveries (
      number {serial},
      id VARCHAR(36){ascii} NOT NULL,
      webhook_id VARCHAR(36){ascii} NOT NULL,
      event_position BIGINT NOT NULL,
      type VARCHAR(40){ascii} NOT NULL,
      body {text} NOT NULL,
      state VARCHAR(16){ascii} NOT NULL,
      attempts INTEGER NOT NULL,
      next_at BIGINT NOT NULL,
      lease VARCHAR(36){ascii},
      created_at BIGINT NOT NULL,
      attempted_at BIGINT,
      duration BIGINT,
      status INTEGER,
      failure VARCHAR(255),
      answer {text}
    )`,
  },
  { name: '021-4-webhook-deliveries-id', sql: 'CREATE UNIQUE INDEX webhook_deliveries_id ON webhook_deliveries (id)' },
  {
    name: '021-5-webhook-deliveries-list',
    sql: 'CREATE INDEX webhook_deliveries_list ON webhook_deliveries (webhook_id, number)',
  },
  {
    name: '021-6-webhook-deliveries-due',
    sql: 'CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, state, next_at)',
  },
  {
    name: '021-7-webhook-deliveries-state',
    sql: 'CREATE INDEX webhook_deliveries_state ON webhook_deliveries (state)',
  },
  {
    name: '021-8-webhook-deliveries-age',
    sql: 'CREATE INDEX webhook_deliveries_age ON webhook_deliveries (created_at)',
  },
  {
    name: '021-9-webhook-cursor',
    sql: 'CREATE TABLE webhook_cursor (id INTEGER PRIMARY KEY, position BIGINT NOT NULL)',
  },
  {
    name: '021-a-webhook-key',
    sql: 'CREATE TABLE webhook_key (id INTEGER PRIMARY KEY, proof VARCHAR(100){ascii} NOT NULL)',
  },
];
