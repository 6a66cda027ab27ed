import type { Migration } from '../migrate.ts';

/** The names of packages and images of which a webhook gets events, as JSON; null for all names. */
export const webhookPatterns: Migration[] = [
  { name: '077-1-webhook-patterns', sql: 'ALTER TABLE webhooks ADD COLUMN patterns {text}' },
];
