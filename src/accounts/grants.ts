import { randomUUID } from 'node:crypto';
import { currentOrigin, systemOrigin } from '../runtime/caller.ts';
import { placeholders, type Database, type Transaction } from '../database/database.ts';
import { recordFrom } from '../events/record.ts';
import { DomainError } from '../runtime/errors.ts';
import { SharedNames, type AccountNames } from './shared-names.ts';
import { Names, type NameKind } from './names.ts';
import { Recent } from '../runtime/recent.ts';
import type { Accounts } from './accounts.ts';
import {
  checkGrant,
  grantOfRow,
  patternCount,
  rowOfGrant,
  type Grant,
  type Grantee,
  type GrantRow,
  type NewGrant,
} from './grant-rows.ts';

/** Most grants of an account, patterns in all of them, and grants of others that it has accepted. */
const maxGrants = 2000;
const maxPatterns = 5000;
const maxAccepted = 200;
/** Accounts that share names with one: each costs a search of its own. */
const maxSharing = 20;
/** Names that a refusal names. */
const maxNamed = 10;
/** People and groups in one statement. */
const idsPerStatement = 500;
/** Accounts whose grants are kept in memory. */
const maxKept = 1000;
/** Without Redis, how long an instance may use grants after another instance changed them; milliseconds. */
const lag = 200;

const versionOf = 'SELECT grants_version FROM accounts WHERE id = ?';
const ofAccount = `account_id = ? OR (subject_kind = 'account' AND subject_id = ?)`;

/** The grants of one account at one time, and those of other accounts that it accepted. */
class AccountGrants {
  readonly #bySubject: Map<string, Grant[]>;
  /** What the account reads of others; undefined if it accepted no grant. */
  readonly shared: SharedNames | undefined;

  constructor(accountId: number, grants: readonly Grant[], kinds: ReadonlyMap<NameKind, AccountNames>) {
    const own = grants.filter((each) => each.accountId === accountId);
    this.#bySubject = Map.groupBy(own, ({ subject }) => keyOf(subject));
    const received = grants.filter((each) => each.accountId !== accountId);
    this.shared = received.length === 0 ? undefined : new SharedNames(received, kinds);
  }

  /** Who has grants of the account. */
  get subjects(): Grantee[] {
    return [...this.#bySubject.values()].map(([grant]) => grant!.subject);
  }

  /** The grants to a person, a group, a token or another account. */
  to(subject: Grantee): readonly Grant[] {
    return this.#bySubject.get(keyOf(subject)) ?? [];
  }
}

const noGrants = new AccountGrants(0, [], new Map());

/**
 * Who may do what with which names of which account, beside the rules of the settings. The grants of an account are kept in
 * memory until they change, which all instances see at once (but see `lag`).
 */
export class Grants {
  readonly #database: Database;
  readonly #accounts: Accounts;
  readonly #now: () => number;
  /** The provider that people sign in with. */
  readonly #issuer: string | undefined;
  readonly #kinds = new Map<NameKind, AccountNames>();
  readonly #kept = new Recent<number, { version: number; grants: Promise<AccountGrants> }>(maxKept);

  constructor(
    { database, accounts, now }: { database: Database; accounts: Accounts; now: () => number },
    issuer: string | undefined,
  ) {
    this.#database = database;
    this.#accounts = accounts;
    this.#now = now;
    this.#issuer = issuer;
  }

  /** Lets accounts share the names of these kinds. */
  share(kinds: readonly AccountNames[]): void {
    for (const each of kinds) this.#kinds.set(each.kind, each);
  }

  /** The version of an account's grants; 0 if it never had one. */
  async versionOf(accountId: number): Promise<number> {
    const row = await this.#database.getCached<{ grants_version: number }>(versionOf, [accountId], { lag });
    return row?.grants_version ?? 0;
  }

  /** The grants of an account, of `version` or a later one. A failover of the database can make a version smaller. */
  async of(accountId: number, version: number): Promise<AccountGrants> {
    if (version === 0) return noGrants;
    let kept = this.#kept.get(accountId);
    if (!kept || kept.version !== version) {
      kept = { version, grants: this.#read(accountId) };
      this.#kept.set(accountId, kept);
      kept.grants.catch(() => this.#kept.delete(accountId));
    }
    return kept.grants;
  }

  async #read(accountId: number): Promise<AccountGrants> {
    const name = (await this.#accounts.nameOf(accountId)) ?? '';
    const sql = `SELECT * FROM grants WHERE (${ofAccount}) AND (account_id = ? OR accepted_at IS NOT NULL)`;
    const rows = await this.#database.select<GrantRow>(sql, [accountId, name, accountId]);
    return new AccountGrants(accountId, rows.map(grantOfRow), this.#kinds);
  }

  /** Tells, of some of these people and groups of one provider, the names of the accounts that have grants to them, in order. */
  async accountsWith(subjects: readonly Grantee[]): Promise<(some: readonly Grantee[]) => string[]> {
    const accounts = new Map<string, Set<string>>();
    const issuer = subjects[0]?.issuer ?? null;
    const ids = [...new Set(subjects.map(({ id }) => id))];
    for (let start = 0; start < ids.length; start += idsPerStatement) {
      const some = ids.slice(start, start + idsPerStatement);
      const rows = await this.#database.select<{ name: string; subject_kind: Grantee['kind']; subject_id: string }>(
        `SELECT DISTINCT accounts.name, subject_kind, subject_id FROM grants JOIN accounts ON accounts.id = grants.account_id
         WHERE issuer = ? AND subject_kind IN ('person', 'group') AND subject_id IN (${placeholders(some)})`,
        [issuer, ...some],
      );
      for (const { name, subject_kind: kind, subject_id: id } of rows) {
        const key = keyOf({ kind, issuer, id });
        accounts.set(key, (accounts.get(key) ?? new Set()).add(name));
      }
    }
    return (some) => [...new Set(some.flatMap((each) => [...(accounts.get(keyOf(each)) ?? [])]))].toSorted();
  }

  /** The groups of the provider that have grants in any account. */
  async groups(issuer: string): Promise<Set<string>> {
    const sql = `SELECT DISTINCT subject_id FROM grants WHERE subject_kind = 'group' AND issuer = ?`;
    const rows = await this.#database.select<{ subject_id: string }>(sql, [issuer]);
    return new Set(rows.map((row) => row.subject_id));
  }

  /**
   * Up to `limit` grants of the account and those of others to it, the latest first, after `cursor` (`created_at`, `id`).
   */
  async list(accountId: number, limit: number, cursor?: readonly [number, string]): Promise<Grant[]> {
    const [createdAt, id] = cursor ?? [Number.MAX_SAFE_INTEGER, ''];
    const rows = await this.#database.select<GrantRow>(
      `SELECT * FROM grants WHERE (${ofAccount}) AND (created_at < ? OR (created_at = ? AND id < ?))
       ORDER BY created_at DESC, id DESC LIMIT ?`,
      [accountId, await this.#nameOf(accountId), createdAt, createdAt, id, limit],
    );
    return rows.map(grantOfRow);
  }

  /** A grant of the account, or one to it. Throws `NotFound`. */
  async get(accountId: number, id: string): Promise<Grant> {
    const sql = `SELECT * FROM grants WHERE (${ofAccount}) AND id = ?`;
    const row = await this.#database.get<GrantRow>(sql, [accountId, await this.#nameOf(accountId), id]);
    if (!row) throw notFound();
    return grantOfRow(row);
  }

  /** Adds a grant of the account. Throws `Invalid`, and `QuotaExceeded` if there are too many. */
  async add(accountId: number, given: NewGrant): Promise<Grant> {
    const checked = checkGrant(given, { issuer: this.#issuer, account: await this.#nameOf(accountId) });
    const grant: Grant = {
      ...checked,
      id: randomUUID(),
      accountId,
      createdBy: currentOrigin().actor,
      createdAt: this.#now(),
      acceptedAt: null,
    };
    await this.#database.transaction(async (tx) => {
      await renew(tx, [accountId], this.#now());
      if (grant.subject.kind === 'token') await checkToken(tx, accountId, grant.subject.id);
      const rows = await tx.select<GrantRow>('SELECT * FROM grants WHERE account_id = ?', [accountId]);
      const patterns = rows.reduce((sum, row) => sum + patternCount(grantOfRow(row)), patternCount(grant));
      if (rows.length >= maxGrants || patterns > maxPatterns) {
        const message = `An account has at most ${maxGrants} grants, with ${maxPatterns} patterns in all. Remove one that is not needed.`;
        throw new DomainError('QuotaExceeded', message);
      }
      await tx.insert('grants', { ...rowOfGrant(grant) });
      await this.#record(tx, 'grant.created', grant, accountId, [accountId]);
    });
    return grant;
  }

  /**
   * Accepts a grant of another account to this one: from now on it counts. Throws `NotFound`, `QuotaExceeded`, and `Invalid` if
   * this account has matching names from upstreams, which the names of the other account could take over.
   */
  async accept(accountId: number, id: string): Promise<Grant> {
    const given = await this.#toAccept(this.#database, accountId, id);
    await this.#checkMirrored(accountId, given);
    return this.#database.transaction(async (tx) => {
      await renew(tx, [given.accountId, accountId], this.#now());
      const grant = await this.#toAccept(tx, accountId, id);
      if (grant.acceptedAt !== null) return grant;
      const sql = `SELECT account_id AS id FROM grants WHERE subject_kind = 'account' AND subject_id = ? AND accepted_at IS NOT NULL`;
      const sharing = (await tx.select<{ id: number }>(sql, [grant.subject.id])).map(({ id: from }) => from);
      if (sharing.length >= maxAccepted || new Set([...sharing, grant.accountId]).size > maxSharing) {
        const message = `An account accepts at most ${maxAccepted} grants of others, of ${maxSharing} accounts.`;
        throw new DomainError('QuotaExceeded', message);
      }
      const accepted = { ...grant, acceptedAt: this.#now() };
      await tx.run('UPDATE grants SET accepted_at = ? WHERE id = ?', [accepted.acceptedAt, id]);
      await this.#record(tx, 'grant.accepted', accepted, accountId, [accountId, grant.accountId]);
      return accepted;
    });
  }

  /**
   * Removes a grant of the account, or ends one that another account gave it. It ends at once on all instances (but see `lag`).
   * `allowed` checks the grant. Throws `NotFound`.
   */
  async remove(accountId: number, id: string, allowed: (grant: Grant) => void = () => undefined): Promise<void> {
    const given = await this.get(accountId, id);
    allowed(given);
    const { accountId: giver, subject } = given;
    const receiver = subject.kind === 'account' ? (await this.#accounts.named(subject.id))?.id : undefined;
    await this.#database.transaction(async (tx) => {
      // The receiver may accept it meanwhile.
      await renew(tx, receiver === undefined ? [giver] : [giver, receiver], this.#now());
      const row = await tx.get<GrantRow>('SELECT * FROM grants WHERE id = ?', [id]);
      if (!row) throw notFound();
      await tx.run('DELETE FROM grants WHERE id = ?', [id]);
      const grant = grantOfRow(row);
      const isKnown = receiver !== undefined && (receiver === accountId || grant.acceptedAt !== null);
      await this.#record(tx, 'grant.removed', grant, accountId, isKnown ? [giver, receiver] : [giver]);
    });
  }

  async #checkMirrored(accountId: number, { patterns }: Grant): Promise<void> {
    for (const each of this.#kinds.values()) {
      const found = await each.mirroredAmong(accountId, new Names(patterns ?? {}).of(each.kind), maxNamed);
      if (found.length === 0) continue;
      const message = `This account has names from upstreams that match: ${found.join(', ')}. Ask for a grant with narrower patterns.`;
      throw new DomainError('Invalid', message);
    }
  }

  async #toAccept(from: Pick<Database, 'get'>, accountId: number, id: string): Promise<Grant> {
    const sql = `SELECT * FROM grants WHERE id = ? AND subject_kind = 'account' AND subject_id = ?`;
    const row = await from.get<GrantRow>(sql, [id, await this.#nameOf(accountId)]);
    if (!row) throw notFound();
    return grantOfRow(row);
  }

  async #nameOf(accountId: number): Promise<string> {
    return (await this.#accounts.nameOf(accountId))!;
  }

  /** In the record of each account that it concerns. Only the account `by` sees who did it. */
  async #record(
    tx: Transaction,
    type: 'grant.created' | 'grant.accepted' | 'grant.removed',
    { id, accountId: from, subject, verbs, patterns }: Grant,
    by: number,
    concerned: readonly number[],
  ): Promise<void> {
    const name = await this.#nameOf(from);
    const details = { grant_id: id, subject, verbs, patterns };
    for (const accountId of concerned) {
      const own = currentOrigin();
      const origin = accountId === by || own.actor.kind === 'system' ? own : systemOrigin(null);
      await recordFrom(tx, { type, accountId, subject: { kind: 'account', name }, details }, this.#now(), origin);
    }
  }
}

function keyOf({ kind, issuer, id }: Grantee): string {
  return `${kind} ${issuer ?? ''} ${id}`;
}

function notFound(): DomainError {
  return new DomainError('NotFound', 'This account has no such grant.');
}

/**
 * Locks the accounts, in order, until the transaction ends. Their versions are times, because after a failover that loses commits,
 * counts would repeat.
 */
async function renew(tx: Transaction, accountIds: readonly number[], now: number): Promise<void> {
  const sql = `UPDATE accounts SET grants_version = CASE WHEN grants_version < ? THEN ? ELSE grants_version + 1 END
    WHERE id = ?`;
  for (const id of accountIds.toSorted((a, b) => a - b)) await tx.run(sql, [now, now, id]);
}

/** Throws `Invalid` if the account has no token with this ID that can have grants. */
async function checkToken(tx: Transaction, accountId: number, id: string): Promise<void> {
  const sql = 'SELECT owner_id FROM tokens WHERE id = ? AND account_id = ? AND revoked_at IS NULL';
  const token = await tx.get<{ owner_id: string | null }>(sql, [id, accountId]);
  if (token?.owner_id === null) return;
  const message = token
    ? 'A personal token has the rights of its person: give the grant to the person.'
    : 'This account has no valid token with this ID. Name the ID of a token, not its value.';
  throw new DomainError('Invalid', message, { detail: { errors: [{ field: 'subject.id', message }] } });
}
