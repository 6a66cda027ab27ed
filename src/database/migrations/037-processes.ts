import type { Migration } from '../migrate.ts';

/**
 * The process that runs a job, and the one that deletes the bytes of a blob, so that others take over at once when it has
 * ended. NULL for processes that others cannot see, and those of older versions. `deleted_generation` is the generation of
 * the blob that `deleted_by` began to delete: older versions do not clear the two when they take over a deletion.
 */
export const processes: Migration[] = [
  { name: '037-1-job-runs-process', sql: 'ALTER TABLE job_runs ADD COLUMN process VARCHAR(36){ascii}' },
  { name: '037-2-blobs-deleted-by', sql: 'ALTER TABLE blobs ADD COLUMN deleted_by VARCHAR(36){ascii}' },
  { name: '037-3-blobs-deleted-generation', sql: 'ALTER TABLE blobs ADD COLUMN deleted_generation BIGINT' },
];
