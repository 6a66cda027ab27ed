import type { Logger } from 'pino';
import { listAccounts } from '../accounts/accounts.ts';
import type { Database } from '../database/database.ts';
import { DomainError } from '../runtime/errors.ts';
import { periodAt } from './period.ts';
import { totalsOf } from './report.ts';
import type { StorageMeter } from './stored.ts';

interface QuotaParts {
  database: Database;
  stored: StorageMeter;
  /** Bytes that an account may host, and may download in a month; unlimited by default. */
  limits: { accountStorage?: number | undefined; accountEgress?: number | undefined };
  /** Throws `Denied` for an account that takes no pushes. */
  requirePushes?: ((owner: QuotaOwner) => Promise<void>) | undefined;
  /** Bytes of an account's unfinished uploads. They count as stored. */
  unfinished: (accountId: number) => Promise<number>;
  /** Called when an account has used a limit up, and each time when a push is refused because of a limit. */
  onReached?: ((reached: LimitReached) => void) | undefined;
  log: Logger;
  now: () => number;
}

/** One limit of one account, and how much of it is used. */
interface LimitUse {
  account: string;
  limit: LimitName;
  /** Used share of the limit; 1 at the limit. */
  ratio: number;
}

export type LimitName = 'storage' | 'egress';

interface LimitReached extends QuotaOwner {
  limit: LimitName;
  used: number;
  allowed: number;
}

/** Bytes that an account may have in unfinished uploads, and the error if these have `unfinished` bytes already. */
export interface Allowance {
  bytes: number;
  refusal: (unfinished: number) => DomainError;
}

/** Whose limits are checked. */
export interface QuotaOwner {
  accountId: number;
  accountName: string;
}

const thresholds = [100, 90, 80];

/**
 * The limits of accounts: bytes that they host, and bytes that they download in a month. Near a limit, the account is
 * warned. At a limit its pushes are refused; reads continue. Mirrored content does not count: eviction limits it.
 */
export class Quota {
  readonly #parts: QuotaParts;
  readonly #used = new Map<string, LimitUse>();
  readonly #warned = new Map<string, number>();

  constructor(parts: QuotaParts) {
    this.#parts = parts;
  }

  /** The latest measurement of each limit, for metrics. */
  get used(): Iterable<LimitUse> {
    return this.#used.values();
  }

  /** As `requireRoom`, for a push; throws also `Denied`. */
  async admit(owner: QuotaOwner, announced: number, warn: (text: string) => void): Promise<void> {
    await this.#parts.requirePushes?.(owner);
    await this.requireRoom(owner, announced, warn);
  }

  /**
   * Checks the limits for `announced` new bytes; throws `QuotaExceeded`. Calls `warn` for each limit that is near.
   * Concurrent pushes, or a push without an announced length, can exceed the limit once.
   */
  async requireRoom(owner: QuotaOwner, announced: number, warn: (text: string) => void): Promise<void> {
    const { accountStorage, accountEgress } = this.#parts.limits;
    if (accountStorage !== undefined) {
      const { hosted, used } = await this.#storageOf(owner.accountId);
      this.#note(owner, 'storage', used, accountStorage, warn);
      // The last request of an upload may bring no bytes: all of them count already.
      if (hosted >= accountStorage || used + announced > accountStorage) {
        this.#parts.onReached?.({ ...ownerOf(owner), limit: 'storage', used, allowed: accountStorage });
        throw storageExceeded(owner.accountName, used, accountStorage);
      }
    }
    if (accountEgress !== undefined) {
      const used = await this.#egressOf(owner.accountId);
      this.#note(owner, 'egress', used, accountEgress, warn);
      if (used >= accountEgress) {
        this.#parts.onReached?.({ ...ownerOf(owner), limit: 'egress', used, allowed: accountEgress });
        const renewed = new Date(periodAt(this.#parts.now()).end).toISOString();
        throw exceeded(
          `Account "${owner.accountName}" has downloaded ${used} bytes this month; its limit is ${accountEgress} bytes. Push again after ${renewed}, or ask the operator to raise the limit.`,
          { limit: 'egress', used, allowed: accountEgress },
        );
      }
    }
  }

  /**
   * Measures how many bytes the unfinished uploads of an account may have together; undefined without a limit. An upload
   * reserves bytes of these while it arrives, so that a body without an announced length cannot pass the limit.
   */
  unfinishedOf({ accountId, accountName }: QuotaOwner): (() => Promise<Allowance>) | undefined {
    const { stored, limits, onReached } = this.#parts;
    const { accountStorage } = limits;
    if (accountStorage === undefined) return undefined;
    return async () => {
      const { hosted } = await stored.recent(accountId);
      const refusal = (unfinished: number) => {
        const used = hosted + unfinished;
        onReached?.({ accountId, accountName, limit: 'storage', used, allowed: accountStorage });
        return storageExceeded(accountName, used, accountStorage);
      };
      return { bytes: accountStorage - hosted, refusal };
    };
  }

  /** Measures the limits of all accounts, for the log and the metrics, because downloads change them without a push. */
  async review(): Promise<void> {
    const { database, limits } = this.#parts;
    const { accountStorage, accountEgress } = limits;
    if (accountStorage === undefined && accountEgress === undefined) return;
    for (const { id, name } of await listAccounts(database)) {
      const owner = { accountId: id, accountName: name };
      if (accountStorage !== undefined) this.#note(owner, 'storage', (await this.#storageOf(id)).used, accountStorage);
      if (accountEgress !== undefined) this.#note(owner, 'egress', await this.#egressOf(id), accountEgress);
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

  /** Logs each threshold once when the use rises to it. Without `warn` no push follows, which could be refused. */
  #note(
    { accountId, accountName: account }: QuotaOwner,
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
      this.#parts.log.warn({ account, limit, used, allowed, percent: reached }, 'an account is near its limit');
      if (reached === 100 && !warn) this.#parts.onReached?.({ accountId, accountName: account, limit, used, allowed });
    }
    this.#warned.set(key, reached);
    if (reached > 0) warn?.(`${limit}: ${used} of ${allowed} bytes (${Math.floor(ratio * 100)} %)`);
  }
}

/** A principal has more fields. */
function ownerOf({ accountId, accountName }: QuotaOwner): QuotaOwner {
  return { accountId, accountName };
}

function storageExceeded(account: string, used: number, allowed: number): DomainError {
  return exceeded(
    `Account "${account}" stores ${used} bytes; its limit is ${allowed} bytes. Delete content, or ask the operator to raise the limit.`,
    { limit: 'storage', used, allowed },
  );
}

function exceeded(message: string, detail: Record<string, unknown>): DomainError {
  return new DomainError('QuotaExceeded', message, { detail });
}
