import type { Migration } from '../migrate.ts';

/**
 * `cookie_key` has one row: the key that signs the cookies of the console. `tokens.created_by` says who made a token, as JSON;
 * null for a token of before. `publishers.issuer_url` is the issuer that a rule trusts, by its address: the name in the settings
 * can be given to another issuer. Before it, and a space, is the name of then. It is null until the first start, which fills it
 * in; one with another name than `issuer` is void.
 */
export const endsOfAccess: Migration[] = [
  {
    name: '035-1-cookie-key',
    sql: 'CREATE TABLE cookie_key (id INTEGER PRIMARY KEY, value VARCHAR(100){ascii} NOT NULL)',
  },
  { name: '035-2-token-creator', sql: 'ALTER TABLE tokens ADD COLUMN created_by {text}' },
  { name: '035-3-publisher-issuer', sql: 'ALTER TABLE publishers ADD COLUMN issuer_url {text}' },
];
