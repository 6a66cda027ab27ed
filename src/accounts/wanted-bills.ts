import { placeholders, type Database, type Queryable, type Transaction } from '../database/database.ts';
import { recordEvent } from '../events/record.ts';

type InTransaction = (tx: Transaction) => Promise<void>;

/** Which accounts want that images that jobs of a CI push get bills of materials. */
export class WantedBills {
  readonly #database: Database;
  readonly #now: () => number;

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  async has(accountId: number): Promise<boolean> {
    return (await accountsWithBills(this.#database, [accountId])).has(accountId);
  }

  /**
   * Begins or ends that images that are pushed from now on get bills. `before` and `after` the change are in the same
   * transaction, and have to agree.
   */
  async put(
    { id, name }: { id: number; name: string },
    enabled: boolean,
    { before, after }: { before: InTransaction; after?: InTransaction },
  ): Promise<void> {
    await this.#database.transaction(async (tx) => {
      await before(tx);
      await tx.run('UPDATE accounts SET observed_bills = ? WHERE id = ?', [enabled ? 1 : 0, id]);
      await after?.(tx);
      const subject = { kind: 'account', name } as const;
      const event = { type: 'account.bills_changed', accountId: id, subject, details: { enabled } } as const;
      await recordEvent(tx, event, this.#now());
    });
  }
}

/** Whether any account wants bills. */
export async function someWantBills(from: Queryable): Promise<boolean> {
  return (await from.get('SELECT id FROM accounts WHERE observed_bills = 1 LIMIT 1')) !== undefined;
}

/** Those of some accounts that want bills. */
export async function accountsWithBills(from: Queryable, ids: readonly number[]): Promise<Set<number>> {
  const sql = `SELECT id FROM accounts WHERE observed_bills = 1 AND id IN (${placeholders(ids)})`;
  return new Set((await from.select<{ id: number }>(sql, ids)).map(({ id }) => id));
}
