import type { Migration } from '../migrate.ts';

/**
 * While a row has not expired, no collector deletes stored bytes. A backup writes the row, renews it and deletes it.
 * `expires_at` is by the clock of the database.
 */
export const storageHolds: Migration[] = [
  {
    name: '023-1-storage-holds',
    sql: 'CREATE TABLE storage_holds (id CHAR(36) PRIMARY KEY, expires_at BIGINT NOT NULL)',
  },
];
