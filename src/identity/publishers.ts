import { hash, randomUUID } from 'node:crypto';
import type { Scope } from '../accounts/principal.ts';
import type { Patterns } from '../accounts/names.ts';
import type { Tokens } from '../accounts/tokens.ts';
import { LRUCache } from 'lru-cache';
import { forUpdate, placeholders, type Database, type Transaction } from '../database/database.ts';
import { DomainError } from '../runtime/errors.ts';
import { withPauses } from '../runtime/event-loop.ts';
import { recordEvent } from '../events/record.ts';
import type { Wanted } from './claims.ts';
import type { TrustedIssuer } from './issuer-keys.ts';
import { checkPublisher, warningsOf, type CheckedPublisher, type NewPublisher, type Publisher } from './publisher.ts';

interface PublisherRow {
  id: string;
  account_id: number;
  name: string;
  issuer: string;
  /** As `storedAddress` has it. */
  issuer_url: string | null;
  claims: string;
  scopes: string;
  patterns: string | null;
  created_at: number;
  updated_at: number;
}

type RuleKey = Pick<PublisherRow, 'id' | 'updated_at'>;

/** A rule of the settings, whose account may not exist yet. */
interface SettingsPublisher extends NewPublisher {
  account: string;
}

/** Rules of an account besides those of the settings, and characters of their claims and patterns together. */
const maxRules = 200;
const maxRulesBytes = 128 * 1024;
/** Characters of rules that are kept in memory, by all accounts, and rules that are read at a time. */
const maxKept = 8 * 1024 * 1024;
const readAtATime = 20;

interface PublisherParts {
  database: Database;
  tokens: Tokens;
  issuers: readonly TrustedIssuer[];
  settings: readonly SettingsPublisher[];
  accountName: (id: number) => Promise<string | undefined>;
  now: () => number;
}

/** The rules for the exchange of identity tokens: those of the settings, and those in the database. */
export class Publishers {
  readonly issuers: readonly TrustedIssuer[];
  readonly #database: Database;
  readonly #tokens: Tokens;
  readonly #settings: readonly (CheckedPublisher & { account: string })[];
  readonly #accountName: (id: number) => Promise<string | undefined>;
  readonly #now: () => number;
  /** By ID and time of the last change, so that a changed rule is read again. */
  readonly #kept = new LRUCache<string, Publisher>({
    maxSize: maxKept,
    sizeCalculation: ({ claims, patterns }) => JSON.stringify([claims, patterns]).length,
  });

  /** Throws `Invalid` for a wrong rule of the settings. */
  constructor({ database, tokens, issuers, settings, accountName, now }: PublisherParts) {
    this.issuers = issuers;
    this.#database = database;
    this.#tokens = tokens;
    this.#settings = settings.map((each) => ({ ...checkPublisher(each, issuers), account: each.account }));
    this.#accountName = accountName;
    this.#now = now;
  }

  /** All rules of an account, at most 400: those of the settings in their order, then the others, the oldest first. */
  async list(accountId: number): Promise<Publisher[]> {
    const keys = await this.#database.select<RuleKey>(
      'SELECT id, updated_at FROM publishers WHERE account_id = ? ORDER BY created_at, id',
      [accountId],
    );
    // Before the first read: the rules that it keeps can be more than memory keeps, so that others are there no more.
    const kept = new Map(keys.map((each) => [each.id, this.#kept.get(keyOf(each))]));
    const missing = keys.map(({ id }) => id).filter((id) => !kept.get(id));
    const read = new Map<string, Publisher>();
    for (let from = 0; from < missing.length; from += readAtATime) {
      for (const each of await this.#read(missing.slice(from, from + readAtATime))) read.set(each.id, each);
    }
    // One that is missing now was deleted since.
    const found = keys.flatMap(({ id }) => read.get(id) ?? kept.get(id) ?? []);
    return [...(await this.#ofSettings(accountId)), ...found];
  }

  async #read(ids: readonly string[]): Promise<Publisher[]> {
    const sql = `SELECT * FROM publishers WHERE id IN (${placeholders(ids)})`;
    const found: Publisher[] = [];
    for await (const row of withPauses(await this.#database.select<PublisherRow>(sql, [...ids]))) {
      const publisher = this.#toPublisher(row);
      this.#kept.set(keyOf(row), publisher);
      found.push(publisher);
    }
    return found;
  }

  /** Gives the rules that older versions wrote, which have only the name of their issuer, the address that it has now. */
  async nameIssuers(): Promise<void> {
    const isUnnamed = "(issuer_url IS NULL OR INSTR(issuer_url, CONCAT(issuer, ' ')) <> 1)";
    if (!(await this.#database.get(`SELECT id FROM publishers WHERE ${isUnnamed} LIMIT 1`))) return;
    const sql = `UPDATE publishers SET issuer_url = ? WHERE issuer = ? AND ${isUnnamed}`;
    await this.#database.transaction(
      async (tx) => {
        for (const { name, issuer } of this.issuers) await tx.run(sql, [storedAddress(name, issuer), name]);
      },
      { uncached: true },
    );
  }

  /** What is unsafe or without effect in a rule, in sentences. */
  warningsOf(publisher: Publisher): string[] {
    return warningsOf(publisher, this.issuers);
  }

  /** One rule of the account. Throws `NotFound`. */
  async get(accountId: number, id: string): Promise<Publisher> {
    const found = (await this.list(accountId)).find((each) => each.id === id);
    if (!found) throw new DomainError('NotFound', 'This account has no such rule.');
    return found;
  }

  /** Throws `Invalid` for a wrong rule, and `AlreadyExists` if the account has one with this name. */
  async create(accountId: number, given: NewPublisher): Promise<Publisher> {
    const checked = checkPublisher(given, this.issuers);
    const now = this.#now();
    const row = { id: randomUUID(), account_id: accountId, ...rowOf(checked), created_at: now, updated_at: now };
    await this.#checkName(accountId, checked.name);
    await this.#database.transaction(
      async (tx) => {
        await checkRoom(tx, row);
        if ((await tx.insertNew('publishers', [row])) === 0) throw nameTaken(checked.name);
        await this.#record(tx, 'publisher.created', row);
      },
      { uncached: true },
    );
    return this.#toPublisher(row);
  }

  /**
   * Replaces a rule, and revokes the tokens that it gave. `allowed` checks the rule as it was; it is the rule that the
   * transaction replaces. Throws as `create`, and `NotFound`.
   */
  async update(
    accountId: number,
    id: string,
    given: NewPublisher,
    allowed: (before: Publisher) => void = () => undefined,
  ): Promise<Publisher> {
    const checked = checkPublisher(given, this.issuers);
    await this.#refuseSettings(accountId, id);
    await this.#checkName(accountId, checked.name);
    return this.#database.transaction(async (tx) => {
      const before = await locked(tx, accountId, id);
      allowed(this.#toPublisher(before));
      const same = 'SELECT id FROM publishers WHERE account_id = ? AND name = ? AND id <> ?';
      if (await tx.get(same, [accountId, checked.name, id])) throw nameTaken(checked.name);
      const row = { ...before, ...rowOf(checked), updated_at: Math.max(this.#now(), before.updated_at + 1) };
      await checkRoom(tx, row, before);
      await tx.run(
        'UPDATE publishers SET name = ?, issuer = ?, issuer_url = ?, claims = ?, scopes = ?, patterns = ?, updated_at = ? WHERE id = ?',
        [row.name, row.issuer, row.issuer_url, row.claims, row.scopes, row.patterns, row.updated_at, id],
      );
      await this.#tokens.revokeGiven(tx, id);
      await this.#record(tx, 'publisher.updated', row);
      return this.#toPublisher(row);
    });
  }

  /** Deletes a rule, and revokes the tokens that it gave. `allowed` checks the rule. Throws `NotFound`. */
  async delete(accountId: number, id: string, allowed: (before: Publisher) => void = () => undefined): Promise<void> {
    await this.#refuseSettings(accountId, id);
    await this.#database.transaction(async (tx) => {
      const row = await locked(tx, accountId, id);
      allowed(this.#toPublisher(row));
      await tx.run('DELETE FROM publishers WHERE id = ?', [id]);
      await this.#tokens.revokeGiven(tx, id);
      await this.#record(tx, 'publisher.deleted', row);
    });
  }

  /** Locks a rule until the transaction ends. False if it was changed or deleted; rules of the settings never are. */
  async isUnchanged(tx: Transaction, { id, source, updatedAt }: Publisher): Promise<boolean> {
    if (source === 'settings') return true;
    const sql = `SELECT updated_at FROM publishers WHERE id = ?${forUpdate(tx)}`;
    return (await tx.get<{ updated_at: number }>(sql, [id]))?.updated_at === updatedAt;
  }

  async #ofSettings(accountId: number): Promise<Publisher[]> {
    if (this.#settings.length === 0) return [];
    const name = await this.#accountName(accountId);
    return this.#settings
      .filter(({ account }) => account === name)
      .map(({ account, ...checked }) => ({
        ...checked,
        id: `settings-${hash('sha256', JSON.stringify([account, checked.name])).slice(0, 32)}`,
        accountId,
        source: 'settings',
        createdAt: null,
        updatedAt: null,
      }));
  }

  async #checkName(accountId: number, name: string): Promise<void> {
    if ((await this.#ofSettings(accountId)).some((each) => each.name === name)) throw nameTaken(name);
  }

  async #refuseSettings(accountId: number, id: string): Promise<void> {
    if (!(await this.#ofSettings(accountId)).some((each) => each.id === id)) return;
    throw new DomainError('Invalid', 'This rule is in the settings (publishers). Change it there, and restart.');
  }

  #toPublisher(row: PublisherRow): Publisher {
    const issuerUrl = addressOf(row);
    return {
      id: row.id,
      accountId: row.account_id,
      name: row.name,
      issuer: this.issuers.find(({ issuer }) => issuer === issuerUrl)?.name ?? row.issuer,
      issuerUrl,
      claims: JSON.parse(row.claims) as Wanted,
      scopes: row.scopes.split(',') as Scope[],
      patterns: row.patterns === null ? null : (JSON.parse(row.patterns) as Patterns),
      source: 'api',
      createdAt: row.created_at,
      updatedAt: row.updated_at,
    };
  }

  #record(
    tx: Transaction,
    type: 'publisher.created' | 'publisher.updated' | 'publisher.deleted',
    row: PublisherRow,
  ): Promise<void> {
    const { id, account_id: accountId, name, issuer, claims, scopes, patterns } = row;
    const details = {
      publisher_id: id,
      issuer,
      issuer_url: addressOf(row),
      claims: JSON.parse(claims) as Wanted,
      scopes: scopes.split(','),
      ...(patterns !== null && { patterns: JSON.parse(patterns) as Patterns }),
    };
    // Tokens are named after the rule that gives them, so the audit of one name shows both.
    const subject = { kind: 'token', name } as const;
    return recordEvent(tx, { type, accountId, subject, details }, this.#now());
  }
}

async function locked(tx: Transaction, accountId: number, id: string): Promise<PublisherRow> {
  const sql = `SELECT * FROM publishers WHERE id = ? AND account_id = ?${forUpdate(tx)}`;
  const row = await tx.get<PublisherRow>(sql, [id, accountId]);
  if (!row) throw new DomainError('NotFound', 'This account has no such rule.');
  return row;
}

/**
 * Throws `Invalid` if the account has too many other rules, or too large ones. A change may leave as much as `before`, also in
 * an account that an older version gave more.
 */
async function checkRoom(tx: Transaction, row: PublisherRow, before?: PublisherRow): Promise<void> {
  const others = (await tx.get<{ n: number; size: number | string | null }>(
    `SELECT COUNT(*) AS n, SUM(LENGTH(claims) + LENGTH(COALESCE(patterns, ''))) AS size FROM publishers
     WHERE account_id = ? AND id <> ?`,
    [row.account_id, row.id],
  ))!;
  if (!before && others.n >= maxRules) {
    throw new DomainError('Invalid', `An account has at most ${maxRules} rules. Delete one first.`);
  }
  const size = sizeOf(row);
  if (Number(others.size) + size <= maxRulesBytes || (before && size <= sizeOf(before))) return;
  throw new DomainError(
    'Invalid',
    `The claims and patterns of an account's rules have at most ${maxRulesBytes / 1024} KiB together. Use fewer values, or "*".`,
  );
}

function sizeOf({ claims, patterns }: PublisherRow): number {
  return Buffer.byteLength(claims) + Buffer.byteLength(patterns ?? '');
}

/** The address of an issuer with the name that it was found by: an older version changes only the name of a rule's issuer. */
function storedAddress(name: string, address: string): string {
  return `${name} ${address}`;
}

/** Null if the rule has another issuer since the address was stored. */
function addressOf({ issuer, issuer_url: stored }: PublisherRow): string | null {
  const start = storedAddress(issuer, '');
  return stored?.startsWith(start) ? stored.slice(start.length) : null;
}

function keyOf({ id, updated_at: updatedAt }: RuleKey): string {
  return `${id} ${updatedAt}`;
}

function nameTaken(name: string): DomainError {
  return new DomainError('AlreadyExists', `This account already has a rule named "${name}".`);
}

function rowOf({ name, issuer, issuerUrl, claims, scopes, patterns }: CheckedPublisher) {
  return {
    name,
    issuer,
    issuer_url: issuerUrl && storedAddress(issuer, issuerUrl),
    claims: JSON.stringify(claims),
    scopes: scopes.join(','),
    patterns: patterns && JSON.stringify(patterns),
  };
}
