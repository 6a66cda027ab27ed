import type { Migration } from '../migrate.ts';

/**
 * Stored content that its upstream does not offer any more. `id` is that of the entry. `mirror_kept` has the ids of the other
 * entries that such content needs, as the last eviction found them.
 */
export const withdrawn: Migration[] = [
  {
    name: '051-1-mirror-withdrawn',
    sql: `CREATE TABLE mirror_withdrawn (
      id CHAR(64) PRIMARY KEY,
      upstream VARCHAR(255) NOT NULL,
      kind VARCHAR(32) NOT NULL,
      name VARCHAR(255) NOT NULL,
      reference VARCHAR(255) NOT NULL,
      missing_at BIGINT NOT NULL,
      withdrawn_at BIGINT
    )`,
  },
  {
    name: '051-2-mirror-withdrawn-name',
    sql: 'CREATE INDEX mirror_withdrawn_name ON mirror_withdrawn (kind, name, upstream)',
  },
  {
    name: '051-3-mirror-withdrawn-upstream',
    sql: 'CREATE INDEX mirror_withdrawn_upstream ON mirror_withdrawn (upstream, kind, withdrawn_at)',
  },
  { name: '051-4-mirror-kept', sql: 'CREATE TABLE mirror_kept (id CHAR(64) PRIMARY KEY){clustered}' },
];
