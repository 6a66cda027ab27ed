import type { Database } from '../database/database.ts';
import { DomainError } from '../errors.ts';

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

const namePattern = /^[a-z0-9](?:[a-z0-9._-]{0,98}[a-z0-9])?$/;

/** All accounts, by name. */
export async function listAccounts(database: Database): Promise<Account[]> {
  const rows = await database.select<AccountRow>('SELECT * FROM accounts ORDER BY name');
  return rows.map((row) => toAccount(row)!);
}

/** Accounts are walls: whatever is hosted belongs to one and is shown to no other. */
export class Accounts {
  readonly #database: Database;
  readonly #now: () => number;

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  /** A new account; `AlreadyExists` or `Invalid` when the name cannot be had. */
  async create(name: string): Promise<Account> {
    if (!namePattern.test(name)) {
      throw new DomainError(
        'Invalid',
        'An account name has 1 to 100 of a-z, 0-9, ".", "_", "-", and starts and ends with a letter or digit.',
      );
    }
    const createdAt = this.#now();
    const inserted = await this.#database.transaction((tx) =>
      tx.insertNew('accounts', [{ name, created_at: createdAt }]),
    );
    if (inserted === 0) throw new DomainError('AlreadyExists', `There is an account "${name}" already.`);
    return (await this.named(name))!;
  }

  async named(name: string): Promise<Account | undefined> {
    return toAccount(await this.#database.get<AccountRow>('SELECT * FROM accounts WHERE name = ?', [name]));
  }

  async get(id: number): Promise<Account | undefined> {
    return toAccount(await this.#database.get<AccountRow>('SELECT * FROM accounts WHERE id = ?', [id]));
  }

  list(): Promise<Account[]> {
    return listAccounts(this.#database);
  }

  /** The account `default`, made when it is not there; `created` for the one caller that made it. */
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
