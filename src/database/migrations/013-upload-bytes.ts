import type { Migration } from '../migrate.ts';

/**
 * `uploads.reserved` is the number of bytes that the staged file of a session may have now: those that it has, and those
 * that its writer may still append. It counts for the account's limit of storage.
 */
export const uploadBytes: Migration[] = [
  { name: '013-1-uploads-reserved', sql: 'ALTER TABLE uploads ADD COLUMN reserved BIGINT NOT NULL DEFAULT 0' },
  { name: '013-2-uploads-reserved-now', sql: 'UPDATE uploads SET reserved = received' },
  { name: '013-3-uploads-account', sql: 'CREATE INDEX uploads_account ON uploads (account_id)' },
];
