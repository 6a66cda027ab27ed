import type { Database } from '../database/database.ts';
import { DomainError } from '../runtime/errors.ts';
import { recordEvent } from '../events/record.ts';
import { Recent } from '../runtime/recent.ts';

export interface Account {
  id: number;
  name: string;
  createdAt: number;
}

interface AccountRow {
  id: number;
  name: string;
  created_at: number;
}

/** Names that are kept in memory. */
const maxNames = 10_000;

const namePattern = /^[a-z0-9](?:[a-z0-9._-]{0,98}[a-z0-9])?$/;

/** All accounts, by name. */
export async function listAccounts(database: Database): Promise<Account[]> {
  const rows = await database.select<AccountRow>('SELECT * FROM accounts ORDER BY name');
  return rows.map((row) => toAccount(row)!);
}

/** The accounts. Hosted content belongs to one account and is hidden from all others. */
export class Accounts {
  readonly #database: Database;
  readonly #now: () => number;
  /** By ID. The name of an account never changes. */
  readonly #names = new Recent<number, string>(maxNames);

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  /** Creates an account; `AlreadyExists` if the name is taken, `Invalid` if it is malformed. */
  async create(name: string): Promise<Account> {
    if (!namePattern.test(name)) {
      throw new DomainError(
        'Invalid',
        'An account name has 1 to 100 characters of a-z, 0-9, ".", "_" and "-", and starts and ends with a letter or digit.',
      );
    }
    const createdAt = this.#now();
    const inserted = await this.#database.transaction(async (tx) => {
      const rows = await tx.insertNew('accounts', [{ name, created_at: createdAt }]);
      // Only operators create accounts.
      const event = { type: 'account.created', accountId: 0, subject: { kind: 'account', name } } as const;
      if (rows > 0) await recordEvent(tx, event, createdAt);
      return rows;
    });
    if (inserted === 0) throw new DomainError('AlreadyExists', `The account "${name}" already exists.`);
    return (await this.named(name))!;
  }

  async named(name: string): Promise<Account | undefined> {
    return toAccount(await this.#database.get<AccountRow>('SELECT * FROM accounts WHERE name = ?', [name]));
  }

  async get(id: number): Promise<Account | undefined> {
    return toAccount(await this.#database.get<AccountRow>('SELECT * FROM accounts WHERE id = ?', [id]));
  }

  /** The name of the account with this ID, mostly from memory; undefined if there is none. */
  async nameOf(id: number): Promise<string | undefined> {
    const known = this.#names.get(id);
    if (known !== undefined) return known;
    const name = (await this.get(id))?.name;
    if (name !== undefined) this.#names.set(id, name);
    return name;
  }

  list(): Promise<Account[]> {
    return listAccounts(this.#database);
  }

  /** The account `default`, created if it does not exist. `created` is true only for the caller that created it. */
  async ensureDefault(): Promise<{ account: Account; created: boolean }> {
    const row = { name: 'default', created_at: this.#now() };
    const found = await this.named('default');
    if (found) return { account: found, created: false };
    const inserted = await this.#database.transaction((tx) => tx.insertNew('accounts', [row]));
    return { account: (await this.named('default'))!, created: inserted > 0 };
  }
}

function toAccount(row: AccountRow | undefined): Account | undefined {
  return row && { id: row.id, name: row.name, createdAt: row.created_at };
}
