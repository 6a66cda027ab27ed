import type { Migration } from '../migrate.ts';

/**
 * Requests of the last days that were refused or failed, counted by what they have in common; `id` is its digest. They only
 * help people to find causes: a crash may lose the last ones.
 */
export const failedRequests: Migration[] = [
  {
    name: '040-1-failed-requests',
    sql: `CREATE TABLE failed_requests (
      id VARCHAR(64){ascii} PRIMARY KEY,
      account_id BIGINT NOT NULL,
      kind VARCHAR(20) NOT NULL,
      name VARCHAR(255) NOT NULL,
      reference VARCHAR(255) NOT NULL,
      token_id VARCHAR(255),
      upstream VARCHAR(255),
      status INT NOT NULL,
      code VARCHAR(40) NOT NULL,
      reason VARCHAR(500) NOT NULL,
      request_id VARCHAR(64) NOT NULL,
      count BIGINT NOT NULL,
      first_at BIGINT NOT NULL,
      last_at BIGINT NOT NULL
    )`,
  },
  {
    name: '040-2-failed-requests-account',
    sql: 'CREATE INDEX failed_requests_account ON failed_requests (account_id, last_at, id)',
  },
  { name: '040-3-failed-requests-last', sql: 'CREATE INDEX failed_requests_last ON failed_requests (last_at, id)' },
];
