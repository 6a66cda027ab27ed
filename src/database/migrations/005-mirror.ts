import type { Migration } from '../migrate.ts';

/**
 * Content from upstreams. It can be deleted at any time, so it is separate from hosted content. `id` is the hash of
 * upstream, kind, name and reference; each protocol defines its kinds. Freshness follows from `validated_at` and the
 * configuration.
 */
export const mirror: Migration[] = [
  {
    name: '005-1-mirror-entries',
    sql: `CREATE TABLE mirror_entries (
      id CHAR(64) PRIMARY KEY,
      upstream VARCHAR(255) NOT NULL,
      kind VARCHAR(32) NOT NULL,
      name VARCHAR(255) NOT NULL,
      reference VARCHAR(255) NOT NULL,
      digest VARCHAR(135) NOT NULL,
      size_bytes BIGINT NOT NULL,
      content_type VARCHAR(255) NOT NULL,
      etag VARCHAR(255),
      last_modified VARCHAR(64),
      attributes {text} NOT NULL,
      stored_at BIGINT NOT NULL,
      validated_at BIGINT NOT NULL,
      used_at BIGINT NOT NULL
    )`,
  },
  {
    name: '005-2-mirror-entries-name',
    sql: 'CREATE INDEX mirror_entries_name ON mirror_entries (kind, name, reference)',
  },
  { name: '005-3-mirror-entries-digest', sql: 'CREATE INDEX mirror_entries_digest ON mirror_entries (digest)' },
  { name: '005-4-mirror-entries-used', sql: 'CREATE INDEX mirror_entries_used ON mirror_entries (used_at)' },
  {
    name: '005-5-mirror-entries-upstream',
    sql: 'CREATE INDEX mirror_entries_upstream ON mirror_entries (upstream, kind, name)',
  },
];
