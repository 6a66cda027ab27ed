import type { Migration } from '../migrate.ts';

/**
 * Usage. `usage_counts` has the daily counters of each account (`dimension` 'account', no name), and also of each of
 * its tokens, packages and containers, so that no report adds up more rows than it shows. `period_start` is the start
 * of the month. It is before the name in the key, so that one page of a month's names is contiguous.
 *
 * `mirrored_downloads` counts downloads of mirrored content without end; hosted content has columns for this.
 * `usage_writers` holds the number of the last batch of each process, written in the transaction of the batch.
 */
export const usageMigrations: Migration[] = [
  {
    name: '006-1-usage-counts',
    sql: `CREATE TABLE usage_counts (
      account_id BIGINT NOT NULL,
      dimension VARCHAR(16) NOT NULL,
      period_start BIGINT NOT NULL,
      name VARCHAR(255) NOT NULL,
      day BIGINT NOT NULL,
      requests BIGINT NOT NULL,
      downloads BIGINT NOT NULL,
      uploads BIGINT NOT NULL,
      version_checks BIGINT NOT NULL,
      cache_hits BIGINT NOT NULL,
      cache_misses BIGINT NOT NULL,
      egress_bytes BIGINT NOT NULL,
      ingress_bytes BIGINT NOT NULL,
      upstream_bytes BIGINT NOT NULL,
      PRIMARY KEY (account_id, dimension, period_start, name, day)
    ){clustered}`,
  },
  {
    name: '006-2-usage-writers',
    sql: `CREATE TABLE usage_writers (
      id CHAR(36) PRIMARY KEY,
      batch BIGINT NOT NULL,
      written_at BIGINT NOT NULL
    )`,
  },
  {
    name: '006-3-storage-samples',
    sql: `CREATE TABLE storage_samples (
      account_id BIGINT NOT NULL,
      hour BIGINT NOT NULL,
      hosted_bytes BIGINT NOT NULL,
      mirrored_bytes BIGINT NOT NULL,
      PRIMARY KEY (account_id, hour)
    ){clustered}`,
  },
  {
    name: '006-4-mirrored-downloads',
    sql: `CREATE TABLE mirrored_downloads (
      account_id BIGINT NOT NULL,
      kind VARCHAR(16) NOT NULL,
      name VARCHAR(255) NOT NULL,
      version VARCHAR(128) NOT NULL,
      downloads BIGINT NOT NULL,
      PRIMARY KEY (account_id, kind, name, version)
    ){clustered}`,
  },
];
