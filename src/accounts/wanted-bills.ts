import { placeholders, type Database, type Queryable, type Transaction } from '../database/database.ts';
import { recordEvent } from '../events/record.ts';

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

  /** Begins or ends that images that are pushed from now on get bills. `claim` has to agree in the same transaction. */
  async put(
    { id, name }: { id: number; name: string },
    enabled: boolean,
    claim?: (tx: Transaction) => Promise<void>,
  ): Promise<void> {
    await this.#database.transaction(async (tx) => {
      await claim?.(tx);
      await tx.run('UPDATE accounts SET observed_bills = ? WHERE id = ?', [enabled ? 1 : 0, id]);
      const subject = { kind: 'account', name } as const;
      const event = { type: 'account.bills_changed', accountId: id, subject, details: { enabled } } as const;
      await recordEvent(tx, event, this.#now());
    });
  }
}

/** Those of some accounts that want bills. */
export async function accountsWithBills(from: Queryable, ids: readonly number[]): Promise<Set<number>> {
  const sql = `SELECT id FROM accounts WHERE observed_bills = 1 AND id IN (${placeholders(ids)})`;
  return new Set((await from.select<{ id: number }>(sql, ids)).map(({ id }) => id));
}
