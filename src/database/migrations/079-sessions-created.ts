import type { Migration } from '../migrate.ts';

/** Lists read the sessions of an account and of all people in the order of time. */
export const sessionsCreated: Migration[] = [
  { name: '079-1-sessions-created', sql: 'CREATE INDEX sessions_created ON sessions (created_at, id)' },
];
