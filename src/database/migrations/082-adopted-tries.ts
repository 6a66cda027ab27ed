import type { Migration } from '../migrate.ts';

/**
 * The passwords of users that a predecessor was asked for, by the SHA-256 of the user's name. `asking` counts those without an
 * answer, and `asked_at` is the time of the last one.
 */
export const adoptedTries: Migration[] = [
  {
    name: '082-1-adopted-tries',
    sql: `CREATE TABLE adopted_tries (
      predecessor VARCHAR(100){ascii} NOT NULL,
      user_hash CHAR(64){ascii} NOT NULL,
      tries SMALLINT NOT NULL,
      asking SMALLINT NOT NULL,
      asked_at BIGINT NOT NULL,
      PRIMARY KEY (predecessor, user_hash)
    )`,
  },
  { name: '082-2-adopted-tries-asked', sql: 'CREATE INDEX adopted_tries_asked ON adopted_tries (asked_at)' },
];
