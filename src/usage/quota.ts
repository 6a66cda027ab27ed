import type { Logger } from 'pino';
import { listAccounts } from '../accounts/accounts.ts';
import type { Database } from '../database/database.ts';
import { DomainError } from '../errors.ts';
import { periodAt } from './period.ts';
import { totalsOf } from './report.ts';
import type { StoredBytes } from './stored.ts';

export interface QuotaParts {
  database: Database;
  stored: StoredBytes;
  /** Bytes an account may store, and may be sent in a month; unlimited when left out. */
  limits: { accountStorage?: number | undefined; accountEgress?: number | undefined };
  log: Logger;
  now: () => number;
}

/** One limit of one account, and what is used of it. */
export interface LimitUse {
  account: string;
  limit: LimitName;
  /** Of all that is allowed; 1 at the limit. */
  ratio: number;
}

export type LimitName = 'storage' | 'egress';

interface Asking {
  accountId: number;
  accountName: string;
}

const thresholds = [100, 90, 80];

/**
 * What accounts may use: a bound of what they host, and of what a month sends them. Who comes near is warned; at the
 * bound pushes are refused, and reading goes on. What the mirror keeps does not count: it makes room by itself.
 */
export class Quota {
  readonly #parts: QuotaParts;
  readonly #used = new Map<string, LimitUse>();
  readonly #warned = new Map<string, number>();

  constructor(parts: QuotaParts) {
    this.#parts = parts;
  }

  /** The limits as they were seen the last time, for metrics. */
  get used(): Iterable<LimitUse> {
    return this.#used.values();
  }

  /**
   * Lets a push of `announced` bytes go on, telling `warn` of limits that are near; throws `QuotaExceeded`. What is under
   * way at the same time, or comes without announcing its length, may pass the limit once.
   */
  async admit(asking: Asking, announced: number, warn: (text: string) => void): Promise<void> {
    const { accountStorage, accountEgress } = this.#parts.limits;
    if (accountStorage !== undefined) {
      const used = await this.#storageOf(asking.accountId);
      this.#note(asking, 'storage', used, accountStorage, warn);
      if (used >= accountStorage || used + announced > accountStorage) {
        throw exceeded(
          `Account "${asking.accountName}" stores ${used} of the ${accountStorage} bytes it may. Delete what is not needed, or ask for more.`,
          { limit: 'storage', used, allowed: accountStorage },
        );
      }
    }
    if (accountEgress !== undefined) {
      const used = await this.#egressOf(asking.accountId);
      this.#note(asking, 'egress', used, accountEgress, warn);
      if (used >= accountEgress) {
        const renewed = new Date(periodAt(this.#parts.now()).end).toISOString();
        throw exceeded(
          `Account "${asking.accountName}" was sent ${used} bytes this month, of ${accountEgress} it may. Pushes are taken again from ${renewed}; or ask for more.`,
          { limit: 'egress', used, allowed: accountEgress },
        );
      }
    }
  }

  /** Looks at every account's limits, for the log and the metrics: reading moves them too. */
  async review(): Promise<void> {
    const { database, limits } = this.#parts;
    const { accountStorage, accountEgress } = limits;
    if (accountStorage === undefined && accountEgress === undefined) return;
    for (const { id, name } of await listAccounts(database)) {
      const asking = { accountId: id, accountName: name };
      if (accountStorage !== undefined) this.#note(asking, 'storage', await this.#storageOf(id), accountStorage);
      if (accountEgress !== undefined) this.#note(asking, 'egress', await this.#egressOf(id), accountEgress);
    }
  }

  async #storageOf(accountId: number): Promise<number> {
    return (await this.#parts.stored.recent(accountId)).hosted;
  }

  async #egressOf(accountId: number): Promise<number> {
    const { database, now } = this.#parts;
    return (await totalsOf(database, accountId, periodAt(now()))).egress_bytes;
  }

  /** Each threshold is logged once on its way up. */
  #note(
    { accountId, accountName: account }: Asking,
    limit: LimitName,
    used: number,
    allowed: number,
    warn?: (text: string) => void,
  ): void {
    const key = `${limit} ${accountId}`;
    const ratio = allowed === 0 ? 1 : used / allowed;
    this.#used.set(key, { account, limit, ratio });
    const reached = thresholds.find((each) => ratio * 100 >= each) ?? 0;
    if (reached > (this.#warned.get(key) ?? 0)) {
      this.#parts.log.warn({ account, limit, used, allowed, percent: reached }, 'an account comes near its limit');
    }
    this.#warned.set(key, reached);
    if (reached > 0) warn?.(`${limit}: ${used} of ${allowed} bytes (${Math.floor(ratio * 100)} %)`);
  }
}

function exceeded(message: string, detail: Record<string, unknown>): DomainError {
  return new DomainError('QuotaExceeded', message, { detail });
}
