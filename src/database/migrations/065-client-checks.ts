import type { Migration } from '../migrate.ts';

/**
 * Checks of whether clients use this server. `denied` is a JSON list of names that a policy refuses, null for a check with a name
 * of its own. `client_check_requests.request` is JSON, and `id` is its digest.
 */
export const clientChecks: Migration[] = [
  {
    name: '065-1-client-checks',
    sql: `CREATE TABLE client_checks (
      id CHAR(32){ascii} NOT NULL PRIMARY KEY,
      account_id BIGINT NOT NULL,
      client VARCHAR(16){ascii} NOT NULL,
      kind VARCHAR(16){ascii} NOT NULL,
      name VARCHAR(600) NOT NULL,
      reference VARCHAR(255) NOT NULL,
      denied {text},
      created_at BIGINT NOT NULL,
      expires_at BIGINT NOT NULL
    )`,
  },
  {
    name: '065-2-client-checks-account',
    sql: 'CREATE INDEX client_checks_account ON client_checks (account_id, expires_at)',
  },
  { name: '065-3-client-checks-end', sql: 'CREATE INDEX client_checks_end ON client_checks (expires_at)' },
  {
    name: '065-4-client-check-requests',
    sql: `CREATE TABLE client_check_requests (
      check_id CHAR(32){ascii} NOT NULL,
      id CHAR(64){ascii} NOT NULL,
      request {text} NOT NULL,
      count BIGINT NOT NULL,
      first_at BIGINT NOT NULL,
      last_at BIGINT NOT NULL,
      PRIMARY KEY (check_id, id)
    )`,
  },
];
