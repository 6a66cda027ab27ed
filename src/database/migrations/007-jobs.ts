import type { Migration } from '../migrate.ts';

/**
 * Scheduled jobs. `jobs.run_id` is the current run, which increments `beat` while it is alive. An instance that sees
 * the same `beat` for long enough, by its own clock, may take over. `scheduled_at` is the time when a run was due; a
 * manual run has none.
 *
 * `storage_cursors` holds the position of jobs that go through all blobs. `manifests.untagged_at` is when a manifest
 * last lost a tag or a parent.
 */
export const jobs: Migration[] = [
  {
    name: '007-1-jobs',
    sql: `CREATE TABLE jobs (
      name VARCHAR(64) PRIMARY KEY,
      run_id BIGINT,
      beat BIGINT NOT NULL DEFAULT 0
    )`,
  },
  {
    name: '007-2-job-runs',
    sql: `CREATE TABLE job_runs (
      id {serial},
      job VARCHAR(64) NOT NULL,
      scheduled_at BIGINT,
      started_at BIGINT NOT NULL,
      ended_at BIGINT,
      outcome VARCHAR(16) NOT NULL,
      counts {text} NOT NULL,
      error VARCHAR(500)
    )`,
  },
  { name: '007-3-job-runs-job', sql: 'CREATE INDEX job_runs_job ON job_runs (job, scheduled_at)' },
  {
    name: '007-4-storage-cursors',
    sql: `CREATE TABLE storage_cursors (
      name VARCHAR(32) PRIMARY KEY,
      digest VARCHAR(135) NOT NULL
    )`,
  },
  { name: '007-5-manifests-untagged', sql: 'ALTER TABLE manifests ADD COLUMN untagged_at BIGINT' },
];
