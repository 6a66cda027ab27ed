import type { Migration } from '../migrate.ts';

/** A list of events of an account with times skips the events of other accounts. The tokens that users made are counted. */
export const bounds: Migration[] = [
  {
    name: '033-1-events-account-time',
    sql: 'CREATE INDEX events_account_time ON events (account_id, time)',
  },
  { name: '033-2-tokens-made', sql: 'CREATE INDEX tokens_made ON tokens (account_id, publisher_id)' },
];
