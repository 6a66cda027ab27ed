import type { Accounts } from '../accounts/accounts.ts';
import type { NameKind } from '../accounts/names.ts';
import { forUpdate, type Database, type Queryable, type Transaction } from '../database/database.ts';
import { afterId, type IdPlace } from '../database/tables.ts';
import { recordFrom } from '../events/record.ts';
import { currentOrigin } from '../runtime/caller.ts';
import { DomainError } from '../runtime/errors.ts';
import { toPromotion, type Promotion, type PromotionRow, type PromotionState } from './promotion.ts';
import type { PreparedPromotion, PromotableContents } from './promotable.ts';
import type { PromotionRules } from './rules.ts';

interface PromotionsParts {
  database: Database;
  accounts: Accounts;
  rules: PromotionRules;
  protocols: readonly { kind: NameKind; promotable?: PromotableContents }[];
  /** Throws `QuotaExceeded` if the account has no room for the bytes. */
  admit: (owner: { accountId: number; accountName: string }, bytes: number) => Promise<void>;
  now: () => number;
}

/** What somebody asks for. */
interface WantedPromotion {
  kind: NameKind;
  account: { id: number; name: string };
  name: string;
  reference: string;
  toAccount: string;
  /** The name there; the same one by default. */
  toName: string | undefined;
  reason: string;
  requester: string;
  /** Whether the requester may approve promotions to an account of this name, too. */
  mayPromoteIn: (account: string) => Promise<boolean>;
  /** Throws if the requester may not promote to this name of the own account. */
  permit: (toName: string) => void;
}

type NewPromotion = Omit<Promotion, 'id' | 'state' | 'requestedBy' | 'requestedAt' | 'decidedBy' | 'decidedAt'>;

/** The names of the two accounts. */
interface AccountNames {
  from: string;
  to: string;
}

/** Undecided promotions to an account, and those of them that one person, rule or token has asked for. */
const maxOpen = 1000;
const maxOpenOfOne = 100;
/** Promotions that one transaction deletes. */
const atATime = 100;

/**
 * Promotions: content of an account appears in another account or under another name, in one transaction and without new bytes. A
 * promotion of other accounts is "not found".
 */
export class Promotions {
  readonly #parts: PromotionsParts;

  constructor(parts: PromotionsParts) {
    this.#parts = parts;
  }

  /**
   * Promotes what the version, tag or digest is now, or requests that: where somebody has to approve it. The same request again
   * returns the first one. Throws `NotFound` for the content, and for an account that takes none of this one; and as `approve` does.
   */
  async request(wanted: WantedPromotion): Promise<Promotion> {
    const { rules } = this.#parts;
    const { kind, account, reason, requester } = wanted;
    const contents = this.#contentsOf(kind);
    const target = await this.#targetOf(wanted);
    const { name, ...bound } = await contents.bind(account.id, wanted.name, wanted.reference);
    const toName = contents.nameFor(name, wanted.toName ?? name);
    const isOwn = target.id === account.id;
    if (isOwn) wanted.permit(toName);
    if (isOwn && toName === name)
      throw new DomainError('Invalid', `to_name: ${name} is there already. Name another account or another name.`);
    const made: NewPromotion = {
      kind,
      from: { accountId: account.id, name },
      ...bound,
      to: { accountId: target.id, name: toName },
      reason,
      requester,
    };
    const { approval } = await rules.of(target.id);
    if (approval === 'none' && target.isDirect) return this.#doAtOnce(made);
    const names = await this.#namesOf(made);
    return this.#parts.database.transaction(async (tx) => {
      const open = await tx.select<PromotionRow>(
        "SELECT * FROM promotions WHERE to_account = ? AND state = 'requested' ORDER BY id LIMIT ?",
        [target.id, maxOpen],
      );
      const same = open.find((row) => row.requester === requester && isSame(row, made));
      if (same) return toPromotion(same);
      if (open.length >= maxOpen || open.filter((row) => row.requester === requester).length >= maxOpenOfOne)
        throw new DomainError(
          'QuotaExceeded',
          `An account has at most ${maxOpen} promotions that nobody has decided, and ${maxOpenOfOne} of one requester. Reject one that is not needed.`,
        );
      const promotion = await this.#insert(tx, made);
      await this.#record(tx, 'promotion.requested', promotion, names, account.id);
      return promotion;
    });
  }

  /**
   * Up to `limit` promotions from or to an account, or of all accounts without one, after a place.
   */
  async list(
    accountId: number | undefined,
    state: PromotionState | undefined,
    limit: number,
    place: IdPlace = {},
  ): Promise<Promotion[]> {
    const { sql: isAfter, value: id, order } = afterId(place);
    const found = new Map<number, PromotionRow>();
    const more = state === undefined ? '' : 'AND state = ?';
    const rest = [...(state === undefined ? [] : [state]), limit];
    for (const side of accountId === undefined ? ['id <> ?'] : ['from_account = ?', 'to_account = ?']) {
      const sql = `SELECT * FROM promotions WHERE ${side} AND ${isAfter} ${more} ORDER BY ${order} LIMIT ?`;
      const values = [accountId ?? 0, id, ...rest];
      for (const row of await this.#parts.database.select<PromotionRow>(sql, values)) found.set(row.id, row);
    }
    const sign = place.isOldest ? 1 : -1;
    const sorted = [...found.values()].toSorted((one, other) => sign * (one.id - other.id));
    return sorted.slice(0, limit).map(toPromotion);
  }

  /** Throws `NotFound` if it concerns other accounts; without an account, any may have it. */
  get(accountId: number | undefined, id: number): Promise<Promotion> {
    return this.#get(this.#parts.database, accountId, id);
  }

  /**
   * Promotes what was asked for: the digest, wherever the tag points now. A promotion that is done stays as it is. `decider` is the
   * person, rule or token that approves; undefined for the operator of the machine, who may approve everything. Throws `NotFound` if
   * the content was deleted since, `Denied` for the own request where another person has to approve it, `Invalid` if it was rejected,
   * `AlreadyExists`, and `QuotaExceeded`.
   */
  async approve(id: number, decider: string | undefined): Promise<Promotion> {
    const { database, rules } = this.#parts;
    const promotion = await this.#get(database, undefined, id);
    if (promotion.state !== 'requested') return this.#decided(promotion);
    const { approval } = await rules.of(promotion.to.accountId);
    if (approval === 'another' && promotion.requester === decider)
      throw new DomainError('Denied', `You asked for the promotion ${id} yourself. Another person approves it.`);
    const names = await this.#namesOf(promotion);
    const prepared = await this.#prepare(promotion, names);
    return database.transaction(async (tx) => {
      const now = await this.#get(tx, undefined, id, forUpdate(tx));
      if (now.state !== 'requested') return this.#decided(now);
      await prepared.write(tx);
      return this.#decide(tx, now, 'done', names);
    });
  }

  /** Rejects a request, or withdraws it: for the account `accountId`. Throws `Invalid` if it is done. */
  async reject(id: number, accountId: number): Promise<Promotion> {
    const { database } = this.#parts;
    const names = await this.#namesOf(await this.#get(database, undefined, id));
    return database.transaction(async (tx) => {
      const now = await this.#get(tx, undefined, id, forUpdate(tx));
      if (now.state === 'rejected') return now;
      if (now.state === 'done')
        throw new DomainError('Invalid', `The promotion ${id} is done, so it cannot be rejected.`);
      return this.#decide(tx, now, 'rejected', names, accountId);
    });
  }

  /** Deletes promotions that were decided before `before`; milliseconds since 1970 UTC. Resolves to how many. */
  async deleteDecided(before: number, signal: AbortSignal): Promise<number> {
    const { database } = this.#parts;
    const old = 'SELECT id FROM promotions WHERE decided_at < ? ORDER BY id LIMIT ?';
    for (let deleted = 0; ;) {
      signal.throwIfAborted();
      const rows = await database.select<{ id: number }>(old, [before, atATime]);
      if (rows.length === 0) return deleted;
      await database.transaction(async (tx) => {
        for (const { id } of rows) await tx.run('DELETE FROM promotions WHERE id = ?', [id]);
      });
      deleted += rows.length;
    }
  }

  /** An account that takes nothing of this one answers as one that does not exist. */
  async #targetOf({ account, toAccount, mayPromoteIn }: WantedPromotion): Promise<{ id: number; isDirect: boolean }> {
    const { accounts, rules } = this.#parts;
    if (toAccount === account.name) return { id: account.id, isDirect: true };
    const found = await accounts.named(toAccount);
    const { from } = await rules.of(found?.id ?? 0);
    const isDirect = await mayPromoteIn(toAccount);
    if (found && (isDirect || from.includes(account.name))) return { id: found.id, isDirect };
    throw new DomainError(
      'NotFound',
      `There is no account ${toAccount.slice(0, 100)} that takes promotions from ${account.name}. An admin of it can allow them with PUT /v1/account/promotion.`,
    );
  }

  async #doAtOnce(wanted: NewPromotion): Promise<Promotion> {
    const { database } = this.#parts;
    const names = await this.#namesOf(wanted);
    const prepared = await this.#prepare(wanted, names);
    return database.transaction(async (tx) => {
      if (!(await prepared.write(tx))) {
        const sql =
          "SELECT * FROM promotions WHERE to_account = ? AND state = 'done' AND digest = ? ORDER BY id DESC LIMIT 100";
        const rows = await tx.select<PromotionRow>(sql, [wanted.to.accountId, wanted.digest]);
        const same = rows.find((row) => isSame(row, wanted));
        if (same) return toPromotion(same);
      }
      return this.#decide(tx, await this.#insert(tx, wanted), 'done', names);
    });
  }

  /** Reads what it carries, and checks that the account of the target has room for it. */
  async #prepare(promotion: NewPromotion, { from, to }: AccountNames): Promise<PreparedPromotion> {
    const prepared = await this.#contentsOf(promotion.kind).prepare({ ...promotion, fromAccount: from });
    await this.#parts.admit({ accountId: promotion.to.accountId, accountName: to }, prepared.bytes);
    return prepared;
  }

  #contentsOf(kind: NameKind): PromotableContents {
    return this.#parts.protocols.find((each) => each.kind === kind)!.promotable!;
  }

  #decided(promotion: Promotion): Promotion {
    if (promotion.state === 'done') return promotion;
    throw new DomainError('Invalid', `The promotion ${promotion.id} was rejected. Ask for a new one.`);
  }

  async #insert(tx: Transaction, made: NewPromotion): Promise<Promotion> {
    const id = await tx.insert('promotions', {
      state: 'requested',
      kind: made.kind,
      from_account: made.from.accountId,
      from_name: made.from.name,
      reference: made.reference,
      digest: made.digest,
      to_account: made.to.accountId,
      to_name: made.to.name,
      reason: made.reason,
      requester: made.requester,
      requested_by: JSON.stringify(currentOrigin().actor),
      requested_at: this.#parts.now(),
      decided_by: null,
      decided_at: null,
    });
    return this.#get(tx, undefined, id);
  }

  async #decide(
    tx: Transaction,
    { id, to }: Promotion,
    state: 'done' | 'rejected',
    names: AccountNames,
    accountId = to.accountId,
  ): Promise<Promotion> {
    const sql = 'UPDATE promotions SET state = ?, decided_by = ?, decided_at = ? WHERE id = ?';
    await tx.run(sql, [state, JSON.stringify(currentOrigin().actor), this.#parts.now(), id]);
    const promotion = await this.#get(tx, undefined, id);
    await this.#record(tx, state === 'done' ? 'promotion.approved' : 'promotion.rejected', promotion, names, accountId);
    return promotion;
  }

  async #get(from: Queryable, accountId: number | undefined, id: number, lock = ''): Promise<Promotion> {
    const row = await from.get<PromotionRow>(`SELECT * FROM promotions WHERE id = ?${lock}`, [id]);
    const concerned = row && [row.from_account, row.to_account];
    if (row && (accountId === undefined || concerned!.includes(accountId))) return toPromotion(row);
    throw new DomainError(
      'NotFound',
      `There is no promotion ${id}${accountId === undefined ? '' : ' in this account'}.`,
    );
  }

  /** An event for each of the two accounts. `acting` is the account of the sender: the other one does not see the sender's address. */
  async #record(
    tx: Transaction,
    type: 'promotion.requested' | 'promotion.approved' | 'promotion.rejected',
    promotion: Promotion,
    names: AccountNames,
    acting: number,
  ): Promise<void> {
    const { id, kind, from, to, reference, digest, reason, requestedBy } = promotion;
    const details = {
      promotion: id,
      digest,
      from_account: names.from,
      from_name: from.name,
      to_account: names.to,
      to_name: to.name,
      requested_by: requestedBy,
      reason,
    };
    const origin = currentOrigin();
    for (const { accountId, name } of from.accountId === to.accountId ? [to] : [from, to]) {
      const subject = { kind, name, reference };
      const seen = accountId === acting ? origin : { ...origin, address: null, requestId: null };
      await recordFrom(tx, { type, accountId, subject, details }, this.#parts.now(), seen);
    }
  }

  /** A transaction may not wait for them. */
  async #namesOf({ from, to }: NewPromotion): Promise<AccountNames> {
    const nameOf = async (id: number) => (await this.#parts.accounts.nameOf(id)) ?? '';
    return { from: await nameOf(from.accountId), to: await nameOf(to.accountId) };
  }
}

function isSame(row: PromotionRow, wanted: NewPromotion): boolean {
  const { from, to } = toPromotion(row);
  return (
    row.kind === wanted.kind &&
    row.reference === wanted.reference &&
    row.digest === wanted.digest &&
    from.accountId === wanted.from.accountId &&
    from.name === wanted.from.name &&
    to.accountId === wanted.to.accountId &&
    to.name === wanted.to.name
  );
}
