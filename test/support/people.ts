import type { ExecutionContext } from 'ava';
import { Accounts } from '../../src/accounts/accounts.ts';
import { Grants } from '../../src/accounts/grants.ts';
import { People, personIdOf, type Person } from '../../src/accounts/people.ts';
import { Tokens } from '../../src/accounts/tokens.ts';
import type { Dialect } from '../../src/database/database.ts';
import { migrate } from '../../src/database/migrate.ts';
import { testClock } from './clock.ts';
import { openUntilEnd, temporaryDatabase } from './databases.ts';

const issuer = 'https://provider.example';
export const day = 86_400_000;
export const ann: Person = { issuer, subject: 'ann', name: 'Ann', claims: [['team', 'build']], groups: [] };
export const annId = personIdOf(ann);

type Settings = ConstructorParameters<typeof People>;

/** Two accounts of a new database on day 1000, with people, grants and tokens, without a server. */
export async function openPeople(
  t: ExecutionContext,
  dialect: Dialect,
  rules: Settings[1]['rules'],
  lifetimes: Settings[2],
) {
  const database = await openUntilEnd(t, await temporaryDatabase(t, dialect));
  await migrate(database);
  const clock = testClock(1000 * day);
  const now = clock.time;
  const accounts = new Accounts(database, now);
  const [alpha, beta] = [await accounts.create('alpha'), await accounts.create('beta')];
  const grants = new Grants({ database, accounts, now }, issuer);
  const people = new People({ database, accounts, grants, now }, { issuer, rules }, lifetimes);
  const tokens = new Tokens(database, now, { people, grants });
  return { database, clock, now, accounts, alpha, beta, grants, people, tokens };
}
