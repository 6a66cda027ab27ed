import type { Migration } from '../migrate.ts';

/** The accounts in which the person has a session or tokens. */
const usedBefore = `FROM accounts WHERE id IN (SELECT account_id FROM sessions WHERE person_id = people.id)
  OR id IN (SELECT account_id FROM tokens WHERE owner_id = people.id)`;

/** `people.used_accounts` is JSON: the names of the accounts that the person has used, the latest first. */
export const usedAccounts: Migration[] = [
  { name: '084-1-people-used-accounts', sql: 'ALTER TABLE people ADD COLUMN used_accounts {text}' },
  {
    name: '084-2-people-used-accounts-sqlite',
    sql: `UPDATE people SET used_accounts = (SELECT json_group_array(name) ${usedBefore})`,
    dialect: 'sqlite',
  },
  {
    name: '084-3-people-used-accounts-mysql',
    sql: `UPDATE people SET used_accounts = (SELECT JSON_ARRAYAGG(name) ${usedBefore})`,
    dialect: 'mysql',
  },
];
