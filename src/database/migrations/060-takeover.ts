import type { Migration } from '../migrate.ts';

/**
 * Servers that are replaced. `source` is what of its settings says which content a predecessor has: with another one, its inventory
 * is read anew. `takeover_names` is the inventory, with `name` as it is there and `name_key` as it is here. `takeover_references` has
 * the versions and tags that have come, so that one that is deleted here does not come again.
 */
export const takeoverMigrations: Migration[] = [
  {
    name: '060-1-takeovers',
    sql: `CREATE TABLE takeovers (
      predecessor VARCHAR(100){ascii} NOT NULL PRIMARY KEY,
      source VARCHAR(64){ascii} NOT NULL,
      read_at BIGINT,
      warning VARCHAR(500),
      finished_at BIGINT
    )`,
  },
  {
    name: '060-2-takeover-names',
    sql: `CREATE TABLE takeover_names (
      id {serial},
      predecessor VARCHAR(100){ascii} NOT NULL,
      name VARCHAR(255) NOT NULL,
      name_key VARCHAR(255) NOT NULL,
      state VARCHAR(16){ascii} NOT NULL,
      note VARCHAR(500)
    )`,
  },
  {
    name: '060-3-takeover-names-key',
    sql: 'CREATE UNIQUE INDEX takeover_names_key ON takeover_names (name_key, predecessor)',
  },
  {
    name: '060-4-takeover-names-state',
    sql: 'CREATE INDEX takeover_names_state ON takeover_names (predecessor, state, id)',
  },
  {
    name: '060-5-takeover-references',
    sql: `CREATE TABLE takeover_references (
      name_row BIGINT NOT NULL,
      reference VARCHAR(255) NOT NULL,
      came_at BIGINT NOT NULL,
      PRIMARY KEY (name_row, reference)
    )`,
  },
];
