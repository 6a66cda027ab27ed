import type { Migration } from '../migrate.ts';

/**
 * Which storage the servers use, so that a command with other settings is refused also while no server runs: `folder`, or
 * the endpoint, bucket and prefix in S3. Each start of a server writes it; null before the first one.
 */
export const activeStorageMigrations: Migration[] = [
  {
    name: '036-1-active-storage',
    sql: 'ALTER TABLE storage_identity ADD COLUMN storage VARCHAR(255)',
  },
];
