import type { Migration } from '../migrate.ts';

/**
 * Prefetches that users start from files. A run that has not ended has a `slot`, a number below the most runs at a time, so
 * that all instances together start no more. `beat_at` shows that its process lives. `input` has the files of a dry run,
 * compressed; `progress` is JSON.
 */
export const prefetchRuns: Migration[] = [
  {
    name: '027-1-prefetch-runs',
    sql: `CREATE TABLE prefetch_runs (
      id VARCHAR(36){ascii} PRIMARY KEY,
      slot INTEGER,
      account_id BIGINT NOT NULL,
      state VARCHAR(16){ascii} NOT NULL,
      cancelled INTEGER NOT NULL,
      created_at BIGINT NOT NULL,
      beat_at BIGINT NOT NULL,
      ended_at BIGINT,
      settings {text} NOT NULL,
      input {text},
      progress {text} NOT NULL
    )`,
  },
  { name: '027-2-prefetch-runs-slot', sql: 'CREATE UNIQUE INDEX prefetch_runs_slot ON prefetch_runs (slot)' },
  { name: '027-3-prefetch-runs-time', sql: 'CREATE INDEX prefetch_runs_time ON prefetch_runs (created_at, id)' },
];
