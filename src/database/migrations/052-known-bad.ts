import type { Migration } from '../migrate.ts';

/**
 * Lists of content that is known to be bad. Readers see the entries of `generation`; `staged` is the newest generation that a run
 * has begun to write. `content` is a digest of the entries, `validator` one of what they were read from, `etag` that of its URL,
 * and `source_key` one of the settings. `failures` counts the failed attempts since the last success.
 */
export const knownBadMigrations: Migration[] = [
  {
    name: '052-1-bad-lists',
    sql: `CREATE TABLE bad_lists (
      name VARCHAR(100) PRIMARY KEY,
      source_key VARCHAR(80){ascii} NOT NULL,
      generation BIGINT NOT NULL,
      staged BIGINT NOT NULL,
      entry_count BIGINT NOT NULL,
      content VARCHAR(80){ascii} NOT NULL,
      validator VARCHAR(80){ascii} NOT NULL,
      etag VARCHAR(255),
      refreshed_at BIGINT,
      checked_at BIGINT,
      failures BIGINT NOT NULL,
      failure VARCHAR(500),
      failed_at BIGINT
    )`,
  },
  {
    name: '052-2-bad-entries',
    sql: `CREATE TABLE bad_entries (
      list VARCHAR(100) NOT NULL,
      generation BIGINT NOT NULL,
      kind VARCHAR(16){ascii} NOT NULL,
      name_key VARCHAR(255) NOT NULL,
      id VARCHAR(100){ascii} NOT NULL,
      part INT NOT NULL,
      size_bytes BIGINT NOT NULL,
      hash VARCHAR(80){ascii} NOT NULL,
      detail {text} NOT NULL,
      PRIMARY KEY (list, generation, kind, name_key, id, part)
    ){clustered}`,
  },
  { name: '052-3-bad-entries-name', sql: 'CREATE INDEX bad_entries_name ON bad_entries (kind, name_key)' },
  { name: '052-4-bad-entries-id', sql: 'CREATE INDEX bad_entries_id ON bad_entries (list, generation, id)' },
];
