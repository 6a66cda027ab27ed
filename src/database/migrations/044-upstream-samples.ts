import type { Migration } from '../migrate.ts';

/** What all processes asked of each upstream in each hour, whose start is `hour`. */
export const upstreamSamples: Migration[] = [
  {
    name: '044-1-upstream-samples',
    sql: `CREATE TABLE upstream_samples (
      kind VARCHAR(16) NOT NULL,
      upstream VARCHAR(255) NOT NULL,
      hour BIGINT NOT NULL,
      requests BIGINT NOT NULL,
      failures BIGINT NOT NULL,
      milliseconds BIGINT NOT NULL,
      needed BIGINT NOT NULL,
      hits BIGINT NOT NULL,
      received_bytes BIGINT NOT NULL,
      PRIMARY KEY (kind, upstream, hour)
    ){clustered}`,
  },
];
