import type { Migration } from '../migrate.ts';

/**
 * The record of events. A row is written in the transaction of the change that it describes, without a position. A
 * dispatcher gives committed rows their `position`; `event_positions` has one row, with the last one that was given.
 * `account_id` is 0 for an event that concerns no account. `subject_key` is the name in lower case.
 */
export const events: Migration[] = [
  {
    name: '020-1-events',
    sql: `CREATE TABLE events (
      id {serial},
      position BIGINT,
      time BIGINT NOT NULL,
      type VARCHAR(40){ascii} NOT NULL,
      account_id BIGINT NOT NULL,
      actor_kind VARCHAR(16){ascii} NOT NULL,
      actor_id VARCHAR(255),
      actor_name VARCHAR(255),
      subject_kind VARCHAR(16){ascii} NOT NULL,
      subject_name VARCHAR(255),
      subject_key VARCHAR(255),
      subject_reference VARCHAR(255),
      address VARCHAR(64),
      request_id VARCHAR(64),
      details {text} NOT NULL
    )`,
  },
  { name: '020-2-events-position', sql: 'CREATE UNIQUE INDEX events_position ON events (position)' },
  { name: '020-3-events-account', sql: 'CREATE INDEX events_account ON events (account_id, position)' },
  { name: '020-4-events-subject', sql: 'CREATE INDEX events_subject ON events (subject_key, position)' },
  { name: '020-5-events-time', sql: 'CREATE INDEX events_time ON events (time, position)' },
  {
    name: '020-6-event-positions',
    sql: 'CREATE TABLE event_positions (id INTEGER PRIMARY KEY, position BIGINT NOT NULL)',
  },
];
