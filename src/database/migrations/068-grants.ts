import type { Migration } from '../migrate.ts';

/**
 * Who may do what with which names of an account. `subject_kind` is `person`, `group`, `token` or `account`; `subject_id` a subject or
 * the value of a claim of `issuer`, the ID of a token, or the name of an account. `verbs` are scopes, `patterns` is JSON, null for
 * all names. A grant to another account counts from `accepted_at`. `accounts.grants_version` changes with the grants of the account
 * and those that it accepted; 0 if it never had one.
 */
export const grantMigrations: Migration[] = [
  {
    name: '068-1-grants',
    sql: `CREATE TABLE grants (
      id CHAR(36){ascii} PRIMARY KEY,
      account_id BIGINT NOT NULL,
      subject_kind VARCHAR(16){ascii} NOT NULL,
      issuer VARCHAR(255),
      subject_id VARCHAR(255) NOT NULL,
      verbs VARCHAR(100){ascii} NOT NULL,
      patterns {text},
      created_by {text} NOT NULL,
      created_at BIGINT NOT NULL,
      accepted_at BIGINT
    )`,
  },
  { name: '068-2-grants-account', sql: 'CREATE INDEX grants_account ON grants (account_id, created_at)' },
  { name: '068-3-grants-subject', sql: 'CREATE INDEX grants_subject ON grants (subject_id, subject_kind)' },
  { name: '068-4-grants-version', sql: 'ALTER TABLE accounts ADD COLUMN grants_version BIGINT NOT NULL DEFAULT 0' },
];
