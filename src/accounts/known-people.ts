import { batches } from '../database/batches.ts';
import { forUpdate, placeholders, type Database } from '../database/database.ts';
import { recordEvent } from '../events/record.ts';
import { currentOrigin } from '../runtime/caller.ts';
import { DomainError } from '../runtime/errors.ts';
import { withPauses } from '../runtime/event-loop.ts';
import { everywhere, personOfRow, usedIn, type Disabled, type People, type Person, type PersonRow } from './people.ts';

/** A person with a row in `people`: a sign-in within `signIn.tokens.idle`, or disabled. */
export interface KnownPerson {
  /** As sessions, tokens and the audit name it. */
  id: string;
  person: Person;
  /** The accounts that rules and grants give the person, also where the person is disabled. */
  accounts: string[];
  /** Those of them whose administrators know the person: of grants only the accounts that the person has used. */
  knownIn: readonly string[];
  /** Milliseconds since 1970. */
  signedInAt: number;
}

/** Most characters of a reason. */
export const maxDisableReason = 200;

/** Where a person is disabled: in an account, or without one everywhere. */
type Place = { id: number; name: string } | undefined;

type Row = PersonRow & { id: string; signed_in_at: number; used_accounts: string | null };

const columns = 'SELECT id, person, disabled, signed_in_at, used_accounts FROM people';

/**
 * Who signed in with the provider, and who is disabled here. Sessions and personal tokens of a person who is disabled are refused at
 * once on all instances, until the person is enabled again; its sessions do not come back.
 */
export class KnownPeople {
  readonly #database: Database;
  readonly #people: People;
  readonly #now: () => number;

  constructor(database: Database, people: People, now: () => number) {
    this.#database = database;
    this.#people = people;
    this.#now = now;
  }

  /** Up to `limit` people after the one with the ID `after`, in the order of their IDs. */
  async list(limit: number, after = ''): Promise<KnownPerson[]> {
    const rows = await this.#database.select<Row>(`${columns} WHERE id > ? ORDER BY id LIMIT ?`, [after, limit]);
    return this.#toKnown(rows);
  }

  /** The person with an ID; undefined without such a row. */
  async find(id: string): Promise<KnownPerson | undefined> {
    const row = await this.#database.get<Row>(`${columns} WHERE id = ?`, [id]);
    return row && (await this.#toKnown([row]))[0];
  }

  /** Throws `NotFound`, also for a person who does not concern the account `accountName`. */
  async get(id: string, accountName?: string): Promise<KnownPerson> {
    const found = await this.find(id);
    if (!found || !this.concerns(found, accountName)) throw unknown();
    return found;
  }

  /** Whether the account knows the person, or has disabled it; without an account, true. */
  concerns({ person, knownIn }: KnownPerson, accountName: string | undefined): boolean {
    if (accountName === undefined || Object.hasOwn(person.disabled ?? {}, accountName)) return true;
    return knownIn.includes(accountName);
  }

  /** Whether the person has the scope `operate` in the account of this name, also where the person is disabled. */
  operates({ person }: KnownPerson, accountName: string): Promise<boolean> {
    return this.#people.hasScope(person, accountName, 'operate');
  }

  /** Disables a person. Throws `NotFound`, and `Invalid` without a reason of 1 to 200 characters. */
  async disable(id: string, place: Place, reason: string): Promise<KnownPerson> {
    if (reason.trim() === '' || reason.length > maxDisableReason)
      throw new DomainError('Invalid', `A reason has 1 to ${maxDisableReason} characters.`);
    const entry = { by: currentOrigin().actor, at: this.#now(), reason };
    return this.#change(id, place, 'person.disabled', reason, (before) => ({ ...before, [nameOf(place)]: entry }));
  }

  /** Lets a person in again. Throws `NotFound`. */
  enable(id: string, place: Place): Promise<KnownPerson> {
    return this.#change(id, place, 'person.enabled', undefined, ({ [nameOf(place)]: _ended, ...others }) => others);
  }

  async #change(
    id: string,
    place: Place,
    type: 'person.disabled' | 'person.enabled',
    reason: string | undefined,
    change: (disabled: Record<string, Disabled>) => Record<string, Disabled>,
  ): Promise<KnownPerson> {
    const changed = await this.#database.transaction(async (tx): Promise<Row> => {
      const row = await tx.get<Row>(`${columns} WHERE id = ?${forUpdate(tx)}`, [id]);
      if (!row) throw unknown();
      const { name, disabled: before } = personOfRow(row);
      const disabled = change({ ...before });
      const text = Object.keys(disabled).length === 0 ? null : JSON.stringify(disabled);
      await tx.run('UPDATE people SET disabled = ? WHERE id = ?', [text, id]);
      const isOf = place ? 'person_id = ? AND account_id = ?' : 'person_id = ?';
      if (reason !== undefined) await tx.run(`DELETE FROM sessions WHERE ${isOf}`, place ? [id, place.id] : [id]);
      const details = { person_id: id, everywhere: !place, ...(reason !== undefined && { reason }) };
      const subject = { kind: 'person', name } as const;
      await recordEvent(tx, { type, accountId: place?.id ?? 0, subject, details }, this.#now());
      return { ...row, disabled: text };
    });
    // Not in the transaction: each of many at the same time would hold a connection to MySQL and wait for another one.
    return (await this.#toKnown([changed]))[0]!;
  }

  async #toKnown(rows: readonly Row[]): Promise<KnownPerson[]> {
    const people: Person[] = [];
    // A person can have hundreds of groups.
    for await (const row of withPauses(rows)) people.push(personOfRow(row));
    const enabled = people.map((person) => ({ ...person, disabled: {} }));
    const accountsOf = await this.#people.accountsOfAll(enabled);
    const usedBy = await this.#inUse(rows);
    const known: KnownPerson[] = [];
    for await (const [at, { id, signed_in_at: signedInAt, used_accounts: used }] of withPauses(rows.entries())) {
      const [person, each] = [people[at]!, enabled[at]!];
      const knownIn = accountsOf(each, [...usedIn(used), ...(usedBy.get(id) ?? [])]);
      known.push({ id, person, accounts: accountsOf(each), knownIn, signedInAt });
    }
    return known;
  }

  /**
   * The accounts in which people have sessions or valid personal tokens, by the ID of the person. What was noted as used misses those
   * of a person who was forgotten meanwhile, and sessions that an older version began.
   */
  async #inUse(rows: readonly Row[]): Promise<Map<string, string[]>> {
    const accounts = new Map<string, string[]>();
    for (const some of batches(rows.map(({ id }) => id))) {
      const found = await this.#database.select<{ id: string; name: string }>(
        `SELECT used.id, accounts.name FROM (
           SELECT person_id AS id, account_id FROM sessions WHERE person_id IN (${placeholders(some)})
           UNION SELECT owner_id, account_id FROM tokens WHERE owner_id IN (${placeholders(some)})
             AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)
         ) used JOIN accounts ON accounts.id = used.account_id`,
        [...some, ...some, this.#now()],
      );
      for (const { id, name } of found) accounts.set(id, [...(accounts.get(id) ?? []), name]);
    }
    return accounts;
  }
}

function nameOf(place: Place): string {
  return place?.name ?? everywhere;
}

function unknown(): DomainError {
  return new DomainError(
    'NotFound',
    'There is no such person who has signed in. "GET /v1/people" lists people with their IDs.',
  );
}
