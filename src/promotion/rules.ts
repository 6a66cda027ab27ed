import type { Database } from '../database/database.ts';
import { recordEvent } from '../events/record.ts';
import { DomainError } from '../runtime/errors.ts';

export const approvals = ['none', 'another'] as const;

/** Most accounts that may ask for promotions to one account. */
export const maxSources = 100;

/** What an account says about promotions to it. */
interface AccountRules {
  /** Whether it takes no pushes. */
  promoteOnly: boolean;
  /** `another`: another person than the requester approves, also inside the account. `none`: only requests of other accounts need approval. */
  approval: (typeof approvals)[number];
  /** The names of the accounts that may ask. For all others, the account does not exist. */
  from: readonly string[];
}

interface RulesRow {
  promote_only: number;
  approval: AccountRules['approval'];
  sources: string;
}

const find = 'SELECT promote_only, approval, sources FROM promotion_rules WHERE account_id = ?';
const none: AccountRules = { promoteOnly: false, approval: 'none', from: [] };

/** The rules of accounts for promotions. */
export class PromotionRules {
  readonly #database: Database;
  readonly #now: () => number;

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.#now = now;
  }

  /** Those of an account that has set none: no promotions of other accounts. */
  async of(accountId: number): Promise<AccountRules> {
    const row = await this.#database.getCached<RulesRow>(find, [accountId]);
    if (!row) return none;
    return { promoteOnly: row.promote_only === 1, approval: row.approval, from: JSON.parse(row.sources) as string[] };
  }

  /** Replaces the rules of an account. */
  async put(accountId: number, accountName: string, { promoteOnly, approval, from }: AccountRules): Promise<void> {
    const row = {
      account_id: accountId,
      promote_only: promoteOnly ? 1 : 0,
      approval,
      sources: JSON.stringify([...new Set(from)]),
    };
    const update = 'promote_only = new.promote_only, approval = new.approval, sources = new.sources';
    const details = { promote_only: promoteOnly, approval, from };
    await this.#database.transaction(async (tx) => {
      await tx.upsert('promotion_rules', ['account_id'], [row], update);
      const subject = { kind: 'account', name: accountName } as const;
      await recordEvent(tx, { type: 'promotion.rules_changed', accountId, subject, details }, this.#now());
    });
  }

  /** Throws `Denied` for an account that takes no pushes. */
  async requirePushes(accountId: number, accountName: string): Promise<void> {
    if (!(await this.of(accountId)).promoteOnly) return;
    throw new DomainError(
      'Denied',
      `The account ${accountName} takes no pushes, only promotions. Push to another account, and promote it from there with POST /v1/promotions.`,
    );
  }
}
