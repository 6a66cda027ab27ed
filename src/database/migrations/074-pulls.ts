import type { Migration } from '../migrate.ts';

/**
 * Who pulled and pushed which content on which day. A content is a version of a package or a digest of an image that an account used,
 * and a user is a token, a job of a CI, or one of the others that have no name of their own; the IDs of contents and jobs are digests.
 * `pull_users.facts` is JSON. `last_day` is the last day of a row in `pulls`. `is_compared` says whether known vulnerabilities were
 * compared with the content before: what becomes true later is told. `tokens.job` is the job that got the token, as JSON.
 */
export const pullMigrations: Migration[] = [
  { name: '074-1-token-jobs', sql: 'ALTER TABLE tokens ADD COLUMN job {text}' },
  {
    name: '074-2-pulls',
    sql: `CREATE TABLE pulls (
      content_id CHAR(32){ascii} NOT NULL,
      act VARCHAR(4){ascii} NOT NULL,
      user_id VARCHAR(40){ascii} NOT NULL,
      day BIGINT NOT NULL,
      count BIGINT NOT NULL,
      first_at BIGINT NOT NULL,
      last_at BIGINT NOT NULL,
      PRIMARY KEY (content_id, act, user_id, day)
    ){clustered}`,
  },
  { name: '074-3-pulls-user', sql: 'CREATE INDEX pulls_user ON pulls (user_id, act, last_at)' },
  { name: '074-4-pulls-day', sql: 'CREATE INDEX pulls_day ON pulls (day, content_id)' },
  {
    name: '074-5-pull-contents',
    sql: `CREATE TABLE pull_contents (
      id CHAR(32){ascii} NOT NULL PRIMARY KEY,
      account_id BIGINT NOT NULL,
      kind VARCHAR(16){ascii} NOT NULL,
      name VARCHAR(255) NOT NULL,
      reference VARCHAR(255){ascii} NOT NULL,
      last_day BIGINT NOT NULL,
      is_compared SMALLINT NOT NULL
    )`,
  },
  {
    name: '074-6-pull-contents-name',
    sql: 'CREATE INDEX pull_contents_name ON pull_contents (kind, name, account_id, id)',
  },
  { name: '074-7-pull-contents-reference', sql: 'CREATE INDEX pull_contents_reference ON pull_contents (reference)' },
  { name: '074-8-pull-contents-day', sql: 'CREATE INDEX pull_contents_day ON pull_contents (last_day)' },
  {
    name: '074-9-pull-users',
    sql: `CREATE TABLE pull_users (
      id VARCHAR(40){ascii} NOT NULL PRIMARY KEY,
      account_id BIGINT NOT NULL,
      facts {text} NOT NULL,
      last_day BIGINT NOT NULL
    )`,
  },
  { name: '074-a-pull-users-day', sql: 'CREATE INDEX pull_users_day ON pull_users (last_day)' },
  {
    name: '074-b-exposures',
    sql: `CREATE TABLE exposures (
      content_id CHAR(32){ascii} NOT NULL,
      advisory VARCHAR(100) NOT NULL,
      found_at BIGINT NOT NULL,
      PRIMARY KEY (content_id, advisory)
    )`,
  },
];
