import type { Migration } from '../migrate.ts';

/**
 * Bundles that operators make and import by `/v1`. A run that has not ended has its `direction` as its `slot`, so that all
 * instances together run one of each. `beat_at` is the last sign of life of its process, and then the time of its last use; `progress` is
 * JSON.
 */
export const bundleRuns: Migration[] = [
  {
    name: '056-1-bundle-runs',
    sql: `CREATE TABLE bundle_runs (
      id VARCHAR(36){ascii} PRIMARY KEY,
      slot VARCHAR(16){ascii},
      direction VARCHAR(16){ascii} NOT NULL,
      state VARCHAR(16){ascii} NOT NULL,
      cancelled INTEGER NOT NULL,
      created_at BIGINT NOT NULL,
      beat_at BIGINT NOT NULL,
      ended_at BIGINT,
      settings {text} NOT NULL,
      progress {text} NOT NULL
    )`,
  },
  { name: '056-2-bundle-runs-slot', sql: 'CREATE UNIQUE INDEX bundle_runs_slot ON bundle_runs (slot)' },
  { name: '056-3-bundle-runs-time', sql: 'CREATE INDEX bundle_runs_time ON bundle_runs (direction, created_at, id)' },
];
