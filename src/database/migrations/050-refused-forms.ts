import type { Migration } from '../migrate.ts';

/** Forms of the console that were refused. `owner` is the ID of a token or a person; `content` is JSON. */
export const refusedForms: Migration[] = [
  {
    name: '050-1-refused-forms',
    sql: `CREATE TABLE refused_forms (
      id VARCHAR(22){ascii} PRIMARY KEY,
      account_id BIGINT NOT NULL,
      owner VARCHAR(64){ascii} NOT NULL,
      content {text} NOT NULL,
      created_at BIGINT NOT NULL
    )`,
  },
  { name: '050-2-refused-forms-owner', sql: 'CREATE INDEX refused_forms_owner ON refused_forms (owner, created_at)' },
  { name: '050-3-refused-forms-created', sql: 'CREATE INDEX refused_forms_created ON refused_forms (created_at)' },
];
