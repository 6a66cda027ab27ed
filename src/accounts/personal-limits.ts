import type { Database } from '../database/database.ts';
import { recordEvent } from '../events/record.ts';
import { personOfRow, type People, type PersonRow } from './people.ts';
import { parseScopes, type Scope } from './principal.ts';

/** What an account allows personal tokens. */
interface PersonalLimits {
  /** Null for every scope that the person has. */
  scopes: readonly Scope[] | null;
  /** The longest life in milliseconds, also of tokens that exist; null for that of the settings. */
  longest: number | null;
}

/** The limits in the column `personal_tokens` of an account. */
export function limitsIn(text: string | null): PersonalLimits {
  return text === null ? { scopes: null, longest: null } : (JSON.parse(text) as PersonalLimits);
}

/** What accounts allow personal tokens. A change acts at once on all instances, also on tokens that exist. */
export class PersonalTokenLimits {
  readonly #database: Database;
  readonly #people: People;
  readonly #now: () => number;

  constructor(database: Database, people: People, now: () => number) {
    this.#database = database;
    this.#people = people;
    this.#now = now;
  }

  async of(accountId: number): Promise<PersonalLimits> {
    const sql = 'SELECT personal_tokens FROM accounts WHERE id = ?';
    const row = await this.#database.get<{ personal_tokens: string | null }>(sql, [accountId]);
    return limitsIn(row?.personal_tokens ?? null);
  }

  /**
   * Whether the account has a valid personal token with the scope `operate` whose person has that, too, also if the person is
   * disabled: limits could end it.
   */
  async concernOperate({ id, name }: { id: number; name: string }): Promise<boolean> {
    const now = this.#now();
    const people = await this.#database.select<PersonRow>(
      `SELECT person, disabled FROM people WHERE signed_in_at > ? AND id IN (SELECT owner_id FROM tokens
       WHERE account_id = ? AND scopes LIKE '%operate%' AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?))`,
      [now - this.#people.tokenTimes.idle, id, now],
    );
    for (const row of people) if (await this.#people.hasScope(personOfRow(row), name, 'operate')) return true;
    return false;
  }

  /** Replaces the limits of an account. Throws `Invalid` for an unknown scope. */
  async put(
    { id, name }: { id: number; name: string },
    { longest, ...given }: { scopes: readonly string[] | null; longest: number | null },
  ): Promise<void> {
    const scopes = given.scopes && parseScopes(given.scopes);
    const details = { scopes, longest_seconds: longest === null ? null : longest / 1000 };
    await this.#database.transaction(async (tx) => {
      await tx.run('UPDATE accounts SET personal_tokens = ? WHERE id = ?', [JSON.stringify({ scopes, longest }), id]);
      const subject = { kind: 'account', name } as const;
      await recordEvent(tx, { type: 'token.limits_changed', accountId: id, subject, details }, this.#now());
    });
  }
}
