import { forUpdate, type Database, type Transaction } from '../database/database.ts';
import { recordEvent } from '../events/record.ts';
import type { ListSettings } from '../known-bad/list-settings.ts';
import { compileLayer, type RangeReader } from './compile.ts';
import { refusesAll, type Layer, type Regime } from './decide.ts';
import { checkPolicy, type PolicyPlaceOf, type PolicyDocument } from './document.ts';
import { typed } from '../runtime/command-name.ts';
import { DomainError } from '../runtime/errors.ts';
import { Recent } from '../runtime/recent.ts';

/** A policy in force, as it was written. */
export interface StoredPolicy {
  /** 0 for the layer of all accounts. */
  accountId: number;
  /** Null after a policy ended. */
  written: unknown;
  document: PolicyDocument | null;
  /** Grows with each change. */
  revision: number;
  regimes: readonly Regime[];
  /** Milliseconds since 1970 UTC. */
  changedAt: number;
  /** Until when it is not enforced; 0 if it never was suspended since it was applied. */
  suspendedUntil: number;
}

interface PolicyRow {
  account_id: number;
  document: string;
  revision: number;
  regimes: string;
  changed_at: number;
  suspended_until: number;
}

/** A policy that was read. */
interface CompiledPolicy {
  layer: Layer | undefined;
  /** The same while it is suspended: it only counts what it would refuse. */
  suspended: Layer | undefined;
  lists: readonly ListSettings[];
}

interface PoliciesParts {
  database: Database;
  readRange: RangeReader;
  accountName: (accountId: number) => Promise<string | undefined>;
  now: () => number;
}

/** What is said of a policy that `check` finds to refuse next to everything. */
export const refusesAllText =
  'This policy refuses packages or images that no rule mentions, however old they are: clients get next to nothing of the upstreams.';
/** The account of the layer of all accounts. */
export const allAccounts = 0;
/** Earlier times of a layer that are kept, the latest. */
const maxRegimes = 50;
/** Layers that are kept in memory. */
const maxLayers = 1000;
const none: readonly ListSettings[] = [];
const columns = 'account_id, document, revision, regimes, changed_at, suspended_until';
const sql = `SELECT ${columns} FROM policies WHERE account_id IN (0, ?)`;
/** The longest time for which a policy can be suspended; milliseconds. */
const maxSuspension = 86_400_000;

/**
 * The policies for mirrored content: one for all accounts, and one for each account that has one. A change acts with the next
 * request on all instances.
 */
export class Policies {
  readonly #parts: PoliciesParts;
  readonly #compiled = new Recent<string, CompiledPolicy>(maxLayers);

  constructor(parts: PoliciesParts) {
    this.#parts = parts;
  }

  /** The layers that hold for an account, or for readers without one (0). */
  async layersOf(accountId: number): Promise<readonly Layer[]> {
    const rows = await this.#parts.database.selectCached<PolicyRow>(sql, [accountId]);
    if (rows.length === 0) return [];
    const now = this.#parts.now();
    return rows
      .map((row) => this.#compiledOf(row)[row.suspended_until > now ? 'suspended' : 'layer'])
      .filter((each) => each !== undefined);
  }

  /** The lists of known bad content, which the policy of all accounts names; the same array until it changes. */
  async lists(): Promise<readonly ListSettings[]> {
    const [row] = await this.#parts.database.selectCached<PolicyRow>(sql, [allAccounts]);
    return row ? this.#compiledOf(row).lists : none;
  }

  /** The policy of one layer; undefined if there never was one. */
  async get(accountId: number): Promise<StoredPolicy | undefined> {
    const row = await this.#parts.database.get<PolicyRow>(`SELECT ${columns} FROM policies WHERE account_id = ?`, [
      accountId,
    ]);
    return row && storedOf(row);
  }

  /** Up to `limit` policies in force, the one of all accounts first. */
  async all(limit: number): Promise<(StoredPolicy & { document: PolicyDocument })[]> {
    const rows = await this.#parts.database.select<PolicyRow>(
      `SELECT ${columns} FROM policies ORDER BY account_id LIMIT ?`,
      [limit],
    );
    return rows.map(storedOf).flatMap((each) => (each.document ? [{ ...each, document: each.document }] : []));
  }

  /**
   * Checks a policy as `put` does, without storing it. Returns whether it would refuse next to everything. Throws
   * `Invalid`, whose message begins with what `placeOf` says of the place in the text.
   */
  check(written: unknown, placeOf?: PolicyPlaceOf): { refusesAll: boolean } {
    const layer = this.layerOf(allAccounts, written, placeOf);
    return { refusesAll: layer !== undefined && refusesAll(layer, this.#parts.now()) };
  }

  /** The layer that a policy would make, without what was open before; undefined for an empty one. Throws as `check`. */
  layerOf(accountId: number, written: unknown, placeOf?: PolicyPlaceOf): Layer | undefined {
    const checked = checkPolicy(written, placeOf);
    if (!checked) return undefined;
    const { document } = checked;
    return compileLayer({ scope: scopeOf(accountId), document, regimes: [] }, this.#parts.readRange, placeOf);
  }

  /**
   * Replaces the policy of one layer, which ends its suspension; an empty one ends the policy. Only a command can name files of this
   * machine and open private addresses. Throws `Invalid`, and then changes nothing.
   */
  async put(accountId: number, written: unknown, by: 'client' | 'command'): Promise<StoredPolicy> {
    const document = checkPolicy(written)?.document ?? null;
    this.check(written);
    if (accountId !== allAccounts && document && document.knownBad.lists.length > 0)
      throw new DomainError('Invalid', 'knownBad.lists: only the policy of all accounts can name lists');
    const name = accountId === allAccounts ? null : ((await this.#parts.accountName(accountId)) ?? null);
    return this.#parts.database.transaction(async (tx) => {
      const before = await lockedIn(tx, accountId);
      const changedAt = this.#parts.now();
      if (document && by === 'client') refuseNewReach(document, before.document);
      const stored: StoredPolicy = {
        accountId,
        written: document && written,
        document,
        revision: before.revision + 1,
        regimes: regimesAfter(before, document, changedAt),
        changedAt,
        suspendedUntil: 0,
      };
      const values = {
        account_id: accountId,
        document: JSON.stringify(stored.written),
        revision: stored.revision,
        regimes: JSON.stringify(stored.regimes),
        changed_at: changedAt,
        suspended_until: 0,
      };
      const changed = ['document', 'revision', 'regimes', 'changed_at', 'suspended_until'];
      await tx.upsert('policies', ['account_id'], [values], changed.map((each) => `${each} = new.${each}`).join(', '));
      const details = { layer: scopeOf(accountId), mode: document?.mode ?? null, revision: stored.revision };
      const subject = { kind: 'account', name };
      await recordEvent(tx, { type: 'policy.changed', accountId, subject, details }, changedAt);
      return stored;
    });
  }

  /**
   * Does not enforce the policy of one layer for `duration` (milliseconds), or enforces it again with 0. Its lists of known bad
   * content still hold. Resolves to when it is enforced again; milliseconds since 1970 UTC. Throws `Invalid`.
   */
  async suspend(accountId: number, duration: number): Promise<number> {
    if (duration > maxSuspension) throw new DomainError('Invalid', 'A policy can be suspended for 24h at most.');
    const now = this.#parts.now();
    const until = now + duration;
    const name = accountId === allAccounts ? null : ((await this.#parts.accountName(accountId)) ?? null);
    await this.#parts.database.transaction(async (tx) => {
      const stored = await lockedIn(tx, accountId);
      if (duration > 0 && stored.document?.mode !== 'enforce')
        throw new DomainError('Invalid', 'There is no policy that is enforced, so there is nothing to suspend.');
      if (duration === 0 && stored.suspendedUntil <= now)
        throw new DomainError('Invalid', 'The policy is not suspended.');
      // What clients get until then stays open, as after a policy in audit mode.
      const regime: Regime = { packages: 0, images: 0, until };
      await tx.run(
        'UPDATE policies SET suspended_until = ?, regimes = ?, revision = revision + 1 WHERE account_id = ?',
        [duration > 0 ? until : 0, JSON.stringify([regime]), accountId],
      );
      const type = duration > 0 ? 'policy.suspended' : 'policy.resumed';
      const details = { layer: scopeOf(accountId), ...(duration > 0 && { until: new Date(until).toISOString() }) };
      await recordEvent(tx, { type, accountId, subject: { kind: 'account', name }, details }, now);
    });
    return until;
  }

  #compiledOf(row: PolicyRow): CompiledPolicy {
    const key = `${row.account_id}/${row.revision}`;
    const known = this.#compiled.get(key);
    if (known) return known;
    const { document, regimes } = storedOf(row);
    const scope = scopeOf(row.account_id);
    const layer = document ? compileLayer({ scope, document, regimes }, this.#parts.readRange) : undefined;
    const compiled: CompiledPolicy = {
      layer,
      suspended: layer && { ...layer, isEnforced: false, suspendedUntil: row.suspended_until },
      lists: document ? listsOf(document) : none,
    };
    this.#compiled.set(key, compiled);
    return compiled;
  }
}

function scopeOf(accountId: number): Layer['scope'] {
  return accountId === allAccounts ? 'all' : 'account';
}

/** A policy in audit mode refuses nothing by its lists either. */
function listsOf({ mode, knownBad: { lists } }: PolicyDocument): readonly ListSettings[] {
  return mode === 'audit' ? lists.map((each) => ({ ...each, mode })) : lists;
}

function reachOf({ url, file, allowPrivateNetwork }: ListSettings): string {
  return JSON.stringify([url, file, allowPrivateNetwork]);
}

/** Throws `Invalid` for a list that makes this server read a file or a private address, unless `before` has the same one. */
function refuseNewReach({ knownBad: { lists } }: PolicyDocument, before: PolicyDocument | null): void {
  const known = before?.knownBad.lists ?? [];
  const isNew = (list: ListSettings) => !known.some((each) => reachOf(each) === reachOf(list));
  const at = lists.findIndex((list) => (list.file !== undefined || list.allowPrivateNetwork) && isNew(list));
  if (at < 0) return;
  const key = lists[at]!.file === undefined ? 'allowPrivateNetwork' : 'file';
  throw new DomainError('Invalid', `knownBad.lists.${at}.${key}: only "${typed('policy apply')}" can set this`);
}

/** Reads the policy of one layer and locks its row until the transaction ends. */
async function lockedIn(tx: Transaction, accountId: number): Promise<StoredPolicy> {
  // Only a row that exists can be locked.
  const none = { document: 'null', revision: 0, regimes: '[]', changed_at: 0, suspended_until: 0 };
  await tx.insertNew('policies', [{ account_id: accountId, ...none }]);
  const row = await tx.get<PolicyRow>(`SELECT ${columns} FROM policies WHERE account_id = ?${forUpdate(tx)}`, [
    accountId,
  ]);
  return storedOf(row!);
}

function storedOf(row: PolicyRow): StoredPolicy {
  const written: unknown = JSON.parse(row.document);
  return {
    accountId: row.account_id,
    written,
    document: checkPolicy(written)?.document ?? null,
    revision: row.revision,
    regimes: JSON.parse(row.regimes) as Regime[],
    changedAt: row.changed_at,
    suspendedUntil: row.suspended_until,
  };
}

/** The earlier times of a layer after a change: what was open in one of them stays open. */
function regimesAfter(before: StoredPolicy, after: PolicyDocument | null, now: number): Regime[] {
  const earlier = [...before.regimes];
  if (!after) return earlier;
  const isOpen = !before.document || before.document.mode === 'audit' || before.suspendedUntil > now;
  const ages: Omit<Regime, 'until'> = isOpen ? { packages: 0, images: 0 } : before.document!.minimumAge;
  const { packages, images, unknownDate } = ages;
  const opensMore = (each: Regime) =>
    each.packages < packages || each.images < images || (unknownDate === 'hold' && each.unknownDate !== 'hold');
  return [...earlier.filter(opensMore), { packages, images, unknownDate, until: now }].slice(-maxRegimes);
}
