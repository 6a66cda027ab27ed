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
  /** Bytes of an account's unfinished uploads. They count as stored. */
  unfinished: (accountId: number) => Promise<number>;
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

/** Bytes that an account may have in unfinished uploads, and the error if these have `unfinished` bytes already. */
export interface Allowance {
  bytes: number;
  refusal: (unfinished: number) => DomainError;
}

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
      const { hosted, used } = await this.#storageOf(asking.accountId);
      this.#note(asking, 'storage', used, accountStorage, warn);
      // The last request of an upload may bring no bytes: all of them count already.
      if (hosted >= accountStorage || used + announced > accountStorage) {
        throw storageExceeded(asking.accountName, used, accountStorage);
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

  /**
   * Measures how many bytes the unfinished uploads of an account may have together; undefined without a limit. An upload
   * reserves bytes of these while it arrives, so that a body without an announced length cannot pass the limit.
   */
  unfinishedOf({ accountId, accountName }: Asking): (() => Promise<Allowance>) | undefined {
    const { stored, limits } = this.#parts;
    const { accountStorage } = limits;
    if (accountStorage === undefined) return undefined;
    return async () => {
      const { hosted } = await stored.recent(accountId);
      const refusal = (unfinished: number) => storageExceeded(accountName, hosted + unfinished, accountStorage);
      return { bytes: accountStorage - hosted, refusal };
    };
  }

  /** Looks at every account's limits, for the log and the metrics: reading moves them too. */
  async review(): Promise<void> {
    const { database, limits } = this.#parts;
    const { accountStorage, accountEgress } = limits;
    if (accountStorage === undefined && accountEgress === undefined) return;
    for (const { id, name } of await listAccounts(database)) {
      const asking = { accountId: id, accountName: name };
      if (accountStorage !== undefined) this.#note(asking, 'storage', (await this.#storageOf(id)).used, accountStorage);
      if (accountEgress !== undefined) this.#note(asking, 'egress', await this.#egressOf(id), accountEgress);
    }
  }

  async #storageOf(accountId: number): Promise<{ hosted: number; used: number }> {
    const { stored, unfinished } = this.#parts;
    // In this order, an upload that ends in between counts twice and not never.
    const bytes = await unfinished(accountId);
    const { hosted } = await stored.recent(accountId);
    return { hosted, used: hosted + bytes };
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

function storageExceeded(account: string, used: number, allowed: number): DomainError {
  return exceeded(
    `Account "${account}" stores ${used} of the ${allowed} bytes it may. Delete what is not needed, or ask for more.`,
    { limit: 'storage', used, allowed },
  );
}

function exceeded(message: string, detail: Record<string, unknown>): DomainError {
  return new DomainError('QuotaExceeded', message, { detail });
}
