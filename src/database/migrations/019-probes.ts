import type { Migration } from '../migrate.ts';

/** One row, which readiness writes to find out whether the database can be written. */
export const probes: readonly Migration[] = [
  {
    name: '019-probes',
    sql: 'CREATE TABLE probes (id INTEGER PRIMARY KEY, written_at BIGINT NOT NULL)',
  },
];
