import type { Migration } from '../migrate.ts';

/** `mirror_drops` has at most one row, whose `mark` is another one after each drop of mirrored content by a person. */
export const mirrorDrops: Migration[] = [
  {
    name: '081-1-mirror-drops',
    sql: 'CREATE TABLE mirror_drops (id SMALLINT PRIMARY KEY, mark VARCHAR(36){ascii} NOT NULL)',
  },
];
