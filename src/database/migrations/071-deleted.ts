import type { Migration } from '../migrate.ts';

/**
 * Hosted content that was deleted and can be restored until `ends_at`. `type` is `version`, `manifest` or `tag`. The rows of a
 * version or manifest stay in their tables, with the owner's number (`package_row`, `repository_id`) below zero: no query finds
 * them by their owner, and their references keep the bytes. `row_id` is the ID of that row, and 0 of a tag, whose digest and time
 * are here. `part_of` is the deletion of the manifest that deleted a tag, or 0. `deleted_by` is an actor as JSON.
 */
export const deletedMigrations: Migration[] = [
  {
    name: '071-1-deleted-items',
    sql: `CREATE TABLE deleted_items (
      id {serial},
      account_id BIGINT NOT NULL,
      kind VARCHAR(32){ascii} NOT NULL,
      type VARCHAR(16){ascii} NOT NULL,
      name VARCHAR(255) NOT NULL,
      reference VARCHAR(255){ascii} NOT NULL,
      digest VARCHAR(135){ascii} NOT NULL,
      size_bytes BIGINT NOT NULL,
      row_id BIGINT NOT NULL,
      part_of BIGINT NOT NULL,
      changed_at BIGINT NOT NULL,
      deleted_by {text} NOT NULL,
      deleted_at BIGINT NOT NULL,
      ends_at BIGINT NOT NULL
    )`,
  },
  {
    name: '071-2-deleted-items-account',
    sql: 'CREATE INDEX deleted_items_account ON deleted_items (account_id, part_of, id)',
  },
  { name: '071-3-deleted-items-end', sql: 'CREATE INDEX deleted_items_end ON deleted_items (part_of, ends_at, id)' },
  { name: '071-4-deleted-items-row', sql: 'CREATE INDEX deleted_items_row ON deleted_items (kind, row_id)' },
  { name: '071-5-deleted-items-part', sql: 'CREATE INDEX deleted_items_part ON deleted_items (part_of, reference)' },
];
