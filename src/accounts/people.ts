import { hash } from 'node:crypto';
import { withPauses } from '../runtime/event-loop.ts';
import { forUpdate, type Database, type Transaction } from '../database/database.ts';
import type { Actor } from '../runtime/caller.ts';
import type { Accounts } from './accounts.ts';
import type { Grantee } from './grant-rows.ts';
import type { Grants } from './grants.ts';
import type { PersonPrincipal, Scope } from './principal.ts';
import { combined, rightOf, type Right } from './rights.ts';

/** A person at the provider that people sign in with. */
export interface Person {
  /** Issuer and subject together identify the person. E-mail addresses and names can change their owner. */
  issuer: string;
  subject: string;
  /** For people who read the audit. */
  name: string;
  /** The claims that rules had at sign-in, with the values that the person had. */
  claims: readonly (readonly [claim: string, value: string])[];
  /** The IDs of groups at sign-in. Missing for a person who signed in with an older version. */
  groups?: readonly string[];
  /** The claims of which the provider had more values than it sent, whose values are those of an earlier sign-in. */
  cut?: readonly string[];
  /** The time of that sign-in; milliseconds since 1970. */
  knownAt?: number;
  /** Where administrators disabled the person: by the name of an account, or `everywhere`. */
  disabled?: Readonly<Record<string, Disabled>>;
}

/** What stands for all accounts in `Person.disabled`. */
export const everywhere = '*';

/** Who disabled a person, when (milliseconds since 1970), and why. */
export interface Disabled {
  by: Actor;
  at: number;
  reason: string;
}

/** The columns of the table `people` that say who it is, as JSON. */
export interface PersonRow {
  person: string;
  disabled: string | null;
}

export function personOfRow({ person, disabled }: PersonRow): Person {
  return {
    ...(JSON.parse(person) as Person),
    disabled: disabled === null ? {} : (JSON.parse(disabled) as Record<string, Disabled>),
  };
}

/** Whether an administrator disabled the person in the account, or everywhere. */
export function isDisabled({ disabled = {} }: Person, accountName: string): boolean {
  return Object.hasOwn(disabled, everywhere) || Object.hasOwn(disabled, accountName);
}

/** The claim with the groups of a person. */
export const groupsClaim = 'groups';

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

/** Groups of a person that are kept, besides those that have grants. */
const maxGroups = 500;

/** What people may do: what the rules of the settings and the grants of accounts give them. */
export class People {
  readonly tokenTimes: PersonalTokenTimes;
  readonly #accounts: Accounts;
  readonly #grants: Grants;
  readonly #database: Database;
  readonly #now: () => number;
  readonly #issuer: string | undefined;
  readonly #rules: readonly PersonRule[];

  constructor(
    { database, accounts, grants, now }: { database: Database; accounts: Accounts; grants: Grants; now: () => number },
    { issuer, rules }: { issuer?: string | undefined; rules: readonly PersonRule[] },
    tokenTimes: PersonalTokenTimes,
  ) {
    this.#database = database;
    this.#accounts = accounts;
    this.#grants = grants;
    this.#now = now;
    this.tokenTimes = tokenTimes;
    this.#issuer = issuer;
    this.#rules = rules;
  }

  /** Whether grants ask for the groups of people. */
  async needsGroups(): Promise<boolean> {
    return this.#issuer !== undefined && (await this.#grants.groups(this.#issuer)).size > 0;
  }

  /**
   * Records a sign-in; resolves to the person as recorded. From now on the personal tokens and all sessions of the person can do what
   * the claims of this sign-in give. A claim that the provider cut is unknown: it has the values of the last sign-in with all of them, for
   * `signIn.tokens.idle` at most.
   */
  async signedIn(person: Person): Promise<Person> {
    const now = this.#now();
    const known = await this.#completed(person);
    const granted = await this.#grants.groups(person.issuer);
    const groups = known.groups ?? [];
    const others = groups.filter((each) => !granted.has(each)).slice(0, maxGroups);
    const kept = { ...known, groups: [...groups.filter((each) => granted.has(each)), ...others] };
    const row = { id: personIdOf(person), person: JSON.stringify(kept), signed_in_at: now };
    return this.#database.transaction(async (tx) => {
      await tx.upsert('people', ['id'], [row], 'person = new.person, signed_in_at = new.signed_in_at');
      // Their tokens are refused already. Who is disabled stays so.
      await tx.run('DELETE FROM people WHERE signed_in_at <= ? AND disabled IS NULL', [now - this.tokenTimes.idle]);
      return personOfRow((await tx.get<PersonRow>('SELECT person, disabled FROM people WHERE id = ?', [row.id]))!);
    });
  }

  /** With the values that claims had before they were cut. */
  async #completed(person: Person): Promise<Person> {
    const { cut = [], claims, ...rest } = person;
    if (cut.length === 0) return person;
    const sql = 'SELECT person, signed_in_at FROM people WHERE id = ?';
    const row = await this.#database.get<{ person: string; signed_in_at: number }>(sql, [personIdOf(person)]);
    if (!row) return person;
    const before = JSON.parse(row.person) as Person;
    const isKnown = ([claim, value]: readonly [string, string]) =>
      cut.includes(claim) && !claims.some(([name, found]) => name === claim && found === value);
    return {
      ...rest,
      cut,
      claims: [...claims, ...before.claims.filter(isKnown)],
      groups: cut.includes(groupsClaim) ? (before.groups ?? []) : (rest.groups ?? []),
      knownAt: before.knownAt ?? row.signed_in_at,
    };
  }

  /** Whether the sessions and personal tokens of somebody who last signed in then are accepted: providers do not tell who has left. */
  isCurrent(signedInAt: number): boolean {
    return this.#now() - signedInAt < this.tokenTimes.idle;
  }

  /** What a person may do in an account now, whose grants have this version. */
  async rightsIn(person: Person, account: { id: number; name: string; version: number }): Promise<Right[]> {
    if (isDisabled(person, account.name)) return [];
    const rights: Right[] = [];
    const scopes = this.#ruledOf(person).get(account.name);
    if (scopes) rights.push({ scopes: [...scopes], patterns: null });
    const grants = await this.#grants.of(account.id, account.version);
    for (const subject of this.#granteesOf(person)) rights.push(...grants.to(subject).map(rightOf));
    return rights;
  }

  /** Whether the person has the scope in the account of this name, also where the person is disabled. */
  async hasScope(person: Person, accountName: string, scope: Scope): Promise<boolean> {
    const account = await this.#accounts.named(accountName);
    const enabled = { ...person, disabled: {} };
    return (account && (await this.principalOf(enabled, account.id)))?.scopes.has(scope) === true;
  }

  /** As `principalOf`, for the person with an ID, by the last sign-in, in the account of this name. */
  async principalOfId(personId: string, accountName: string): Promise<PersonPrincipal | undefined> {
    const row = await this.#database.get<PersonRow>('SELECT person, disabled FROM people WHERE id = ?', [personId]);
    const account = row && (await this.#accounts.named(accountName));
    return account && this.principalOf(personOfRow(row), account.id);
  }

  /** The person with this subject at the provider, by the last sign-in; with nothing but the subject without one. */
  async withSubject(subject: string): Promise<Person> {
    const person = { issuer: this.#issuer ?? '', subject, name: subject, claims: [] };
    const sql = 'SELECT person, disabled FROM people WHERE id = ?';
    const row = await this.#database.get<PersonRow>(sql, [personIdOf(person)]);
    return row ? personOfRow(row) : person;
  }

  /** The rules of the settings for an account. */
  rulesOf(accountName: string): readonly PersonRule[] {
    return this.#rules.filter(({ account }) => account === accountName);
  }

  /** The rights in an account that membership in this group alone gives. */
  rightsOfGroup(group: string, account: { id: number; name: string; version: number }): Promise<Right[]> {
    const claims = [[groupsClaim, group] as const];
    return this.rightsIn({ issuer: this.#issuer ?? '', subject: '', name: '', claims, groups: [group] }, account);
  }

  /** The existing account that the person used last, else the first that a rule or a grant gives; undefined without one. */
  async firstAccountOf(person: Person): Promise<number | undefined> {
    const sql = 'SELECT used_accounts FROM people WHERE id = ?';
    const row = await this.#database.get<{ used_accounts: string | null }>(sql, [personIdOf(person)]);
    const used = usedIn(row?.used_accounts);
    const names = await this.#accountsOf(person);
    for (const name of new Set([...used.filter((each) => names.includes(each)), ...names])) {
      const account = await this.#accounts.named(name);
      if (account) return account.id;
    }
    return undefined;
  }

  /** Records that the person uses the account from now on. */
  async use(tx: Transaction, personId: string, accountId: number): Promise<void> {
    const name = await this.#accounts.nameOf(accountId);
    const sql = `SELECT used_accounts FROM people WHERE id = ?${forUpdate(tx)}`;
    const row = await tx.get<{ used_accounts: string | null }>(sql, [personId]);
    const others = usedIn(row?.used_accounts).filter((each) => each !== name);
    const used = JSON.stringify([name, ...others]);
    await tx.run('UPDATE people SET used_accounts = ? WHERE id = ?', [used, personId]);
  }

  /** The ID of an account that the person may use; undefined if there is none with this name. */
  async accountOf(person: Person, name: string): Promise<number | undefined> {
    const isOwn = (await this.#accountsOf(person)).includes(name);
    return isOwn ? (await this.#accounts.named(name))?.id : undefined;
  }

  /** Every scope that rules give the person in one of the accounts. */
  ruledScopesOf(person: Person): Set<Scope> {
    return new Set([...this.#ruledOf(person).values()].flatMap((each) => [...each]));
  }

  /** What the person may do in the account now; undefined for nothing. */
  async principalOf(person: Person, accountId: number): Promise<PersonPrincipal | undefined> {
    const name = await this.#accounts.nameOf(accountId);
    if (name === undefined) return undefined;
    const version = await this.#grants.versionOf(accountId);
    const rights = await this.rightsIn(person, { id: accountId, name, version });
    if (rights.length === 0) return undefined;
    return {
      kind: 'person',
      accountId,
      accountName: name,
      ...combined(rights),
      shared: (await this.#grants.of(accountId, version)).shared,
      personId: personIdOf(person),
      personName: person.name,
      accounts: await this.#accountsOf(person),
    };
  }

  async #accountsOf(person: Person): Promise<string[]> {
    return (await this.accountsOfAll([person]))(person);
  }

  /**
   * Tells the names of the accounts that each of these people may use: those of the rules in their order, then those of grants.
   * With `used`, only those of grants that are in it: any account can give a grant to anybody.
   */
  async accountsOfAll(people: readonly Person[]): Promise<(person: Person, used?: readonly string[]) => string[]> {
    const grantees = new Map<string, Grantee>();
    for await (const each of withPauses(people))
      for (const grantee of this.#granteesOf(each)) grantees.set(`${grantee.kind} ${grantee.id}`, grantee);
    const granted = await this.#grants.accountsWith([...grantees.values()]);
    return (person, used) => {
      const given = granted(this.#granteesOf(person)).filter((name) => used?.includes(name) ?? true);
      const names = new Set([...this.#ruledOf(person).keys(), ...given]);
      return [...names].filter((name) => !isDisabled(person, name));
    };
  }

  /** The person and the groups, as grants name them. */
  #granteesOf({ issuer, subject, groups = [], ...person }: Person): Grantee[] {
    if (issuer !== this.#issuer) return [];
    const isGone = this.#isUnknown(person, groupsClaim);
    const ids = isGone ? [] : groups;
    return [{ kind: 'person', issuer, id: subject }, ...ids.map((id) => ({ kind: 'group' as const, issuer, id }))];
  }

  /** Whether the values of a claim that the provider cut were known too long ago. */
  #isUnknown({ cut = [], knownAt = 0 }: Pick<Person, 'cut' | 'knownAt'>, claim: string): boolean {
    return cut.includes(claim) && !this.isCurrent(knownAt);
  }

  /** Scopes by account, in the order of the rules. */
  #ruledOf(person: Person): Map<string, Set<Scope>> {
    const { issuer, claims } = person;
    const ruled = new Map<string, Set<Scope>>();
    if (issuer !== this.#issuer) return ruled;
    for (const { claim, value, account, scopes } of this.#rules) {
      if (isDisabled(person, account)) continue;
      if (!claims.some(([name, found]) => name === claim && found === value)) continue;
      if (this.#isUnknown(person, claim)) continue;
      ruled.set(account, new Set([...(ruled.get(account) ?? []), ...scopes]));
    }
    return ruled;
  }
}

/** The names of the accounts in the column `used_accounts` of a person. */
export function usedIn(text: string | null | undefined): readonly string[] {
  return JSON.parse(text ?? '[]') as string[];
}

/** The ID of a person in the audit and in sessions: 32 characters of a digest of issuer and subject. */
export function personIdOf({ issuer, subject }: Pick<Person, 'issuer' | 'subject'>): string {
  return hash('sha256', JSON.stringify([issuer, subject])).slice(0, 32);
}
