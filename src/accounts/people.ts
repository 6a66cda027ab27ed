import { hash } from 'node:crypto';
import type { Database } from '../database/database.ts';
import type { Accounts } from './accounts.ts';
import type { PersonPrincipal, Scope } from './principal.ts';

/** A person at the provider that people sign in with. */
export interface Person {
  /** Issuer and subject together identify the person. E-mail addresses and names can change their owner. */
  issuer: string;
  subject: string;
  /** For people who read the audit. */
  name: string;
  /** The claims that rules had at sign-in, with the values that the person had. */
  claims: readonly (readonly [claim: string, value: string])[];
}

/** People with this claim get these scopes in this account. */
interface PersonRule {
  claim: string;
  value: string;
  account: string;
  scopes: readonly Scope[];
}

/** When personal tokens end: without a sign-in of their person, and in any case; milliseconds. */
interface PersonalTokenTimes {
  idle: number;
  absolute: number;
}

/** What people may do: only what the rules of the settings give them. */
export class People {
  readonly tokenTimes: PersonalTokenTimes;
  readonly #accounts: Accounts;
  readonly #database: Database;
  readonly #now: () => number;
  readonly #issuer: string | undefined;
  readonly #rules: readonly PersonRule[];

  constructor(
    { database, accounts, now }: { database: Database; accounts: Accounts; now: () => number },
    { issuer, rules }: { issuer?: string | undefined; rules: readonly PersonRule[] },
    tokenTimes: PersonalTokenTimes,
  ) {
    this.#database = database;
    this.#accounts = accounts;
    this.#now = now;
    this.tokenTimes = tokenTimes;
    this.#issuer = issuer;
    this.#rules = rules;
  }

  /** Records a sign-in. From now on the personal tokens of the person can do what the claims of this sign-in give. */
  async signedIn(person: Person): Promise<void> {
    const now = this.#now();
    const row = { id: personIdOf(person), person: JSON.stringify(person), signed_in_at: now };
    await this.#database.transaction(async (tx) => {
      await tx.upsert('people', ['id'], [row], 'person = new.person, signed_in_at = new.signed_in_at');
      // Their tokens are refused already.
      await tx.run('DELETE FROM people WHERE signed_in_at <= ?', [now - this.tokenTimes.idle]);
    });
  }

  /** Whether the personal tokens of somebody who last signed in then are accepted: providers do not tell who has left. */
  isCurrent(signedInAt: number): boolean {
    return this.#now() - signedInAt < this.tokenTimes.idle;
  }

  /** What a person of the table `people` may do in an account by the rules of now. */
  scopesOf(person: string, accountName: string): ReadonlySet<Scope> {
    return this.#grantsOf(JSON.parse(person) as Person).get(accountName) ?? new Set();
  }

  /** As `scopesOf`, for the person with an ID, by the last sign-in. */
  async scopesOfId(personId: string, accountName: string): Promise<ReadonlySet<Scope>> {
    const row = await this.#database.get<{ person: string }>('SELECT person FROM people WHERE id = ?', [personId]);
    return row ? this.scopesOf(row.person, accountName) : new Set();
  }

  /** The first existing account that a rule gives to the person; undefined without one. */
  async firstAccountOf(person: Person): Promise<number | undefined> {
    for (const name of this.#grantsOf(person).keys()) {
      const account = await this.#accounts.named(name);
      if (account) return account.id;
    }
    return undefined;
  }

  /** The ID of an account that the person may use; undefined if there is none with this name. */
  async accountOf(person: Person, name: string): Promise<number | undefined> {
    return this.#grantsOf(person).has(name) ? (await this.#accounts.named(name))?.id : undefined;
  }

  /** The names of the accounts that the person may use, and every scope that the person has in one of them. */
  rightsOf(person: Person): { accounts: string[]; scopes: Set<Scope> } {
    const grants = this.#grantsOf(person);
    return { accounts: [...grants.keys()], scopes: new Set([...grants.values()].flatMap((each) => [...each])) };
  }

  /** What the person may do in the account, by the rules of now; undefined for nothing. */
  async principalOf(person: Person, accountId: number): Promise<PersonPrincipal | undefined> {
    const accountName = await this.#accounts.nameOf(accountId);
    const grants = this.#grantsOf(person);
    const scopes = accountName === undefined ? undefined : grants.get(accountName);
    if (!scopes) return undefined;
    return {
      kind: 'person',
      accountId,
      accountName: accountName!,
      scopes,
      names: undefined,
      personId: personIdOf(person),
      personName: person.name,
      accounts: [...grants.keys()],
    };
  }

  /** Scopes by account, in the order of the rules. */
  #grantsOf({ issuer, claims }: Person): Map<string, Set<Scope>> {
    const grants = new Map<string, Set<Scope>>();
    if (issuer !== this.#issuer) return grants;
    for (const { claim, value, account, scopes } of this.#rules) {
      if (!claims.some(([name, found]) => name === claim && found === value)) continue;
      grants.set(account, new Set([...(grants.get(account) ?? []), ...scopes]));
    }
    return grants;
  }
}

/** The ID of a person in the audit and in sessions: 32 characters of a digest of issuer and subject. */
export function personIdOf({ issuer, subject }: Pick<Person, 'issuer' | 'subject'>): string {
  return hash('sha256', JSON.stringify([issuer, subject])).slice(0, 32);
}
