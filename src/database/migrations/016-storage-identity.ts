import type { Migration } from '../migrate.ts';

/** One row: the identity that this database shares with its storage. `storage/upkeep/identity.ts` describes the states. */
export const storageIdentity: Migration[] = [
  {
    name: '016-1-storage-identity',
    sql: `CREATE TABLE storage_identity (
      id INTEGER PRIMARY KEY,
      identity VARCHAR(36){ascii} NOT NULL,
      state VARCHAR(16){ascii} NOT NULL
    )`,
  },
];
