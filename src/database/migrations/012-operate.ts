import type { Migration } from '../migrate.ts';

/**
 * `012-1`: the scope `operate` is new, and it crosses accounts. So of the existing tokens only one gets it: the oldest of account
 * `default` that has all other scopes and no name patterns, which is the first token. If that one is revoked, none has it.
 *
 * `012-2`: of a chosen token, a prefix of 8 characters could be the whole value. So a prefix is kept only of made tokens.
 */
export const operate: Migration[] = [
  {
    name: '012-1-operate-scope',
    // MySQL reads from the table of an UPDATE only through a derived table.
    sql: `UPDATE tokens SET scopes = 'read,write,delete,admin,operate' WHERE id IN (
      SELECT id FROM (
        SELECT tokens.id FROM tokens JOIN accounts ON accounts.id = tokens.account_id
        WHERE accounts.name = 'default' AND tokens.scopes = 'read,write,delete,admin' AND tokens.patterns IS NULL
        ORDER BY tokens.created_at, tokens.id LIMIT 1
      ) AS oldest
    )`,
  },
  {
    name: '012-2-token-prefix',
    sql: `UPDATE tokens SET token_prefix = '' WHERE SUBSTR(token_prefix, 1, 4) <> 'ent_'`,
  },
];
