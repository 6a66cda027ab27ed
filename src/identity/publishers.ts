import { hash, randomUUID } from 'node:crypto';
import type { Scope } from '../accounts/principal.ts';
import type { Patterns } from '../accounts/names.ts';
import type { Tokens } from '../accounts/tokens.ts';
import { forUpdate, type Database, type Transaction } from '../database/database.ts';
import { DomainError } from '../errors.ts';
import { recordEvent } from '../events/record.ts';
import type { Wanted } from './claims.ts';
import type { TrustedIssuer } from './issuer-keys.ts';
import { checkPublisher, warningsOf, type CheckedPublisher, type NewPublisher, type Publisher } from './publisher.ts';

interface PublisherRow {
  id: string;
  account_id: number;
  name: string;
  issuer: string;
  claims: string;
  scopes: string;
  patterns: string | null;
  created_at: number;
  updated_at: number;
}

/** A rule of the settings, whose account may not exist yet. */
export interface SettingsPublisher extends NewPublisher {
  account: string;
}

/** Rules of an account besides those of the settings. */
const mostRules = 200;

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
    const rows = await this.#database.select<PublisherRow>(
      'SELECT * FROM publishers WHERE account_id = ? ORDER BY created_at, id',
      [accountId],
    );
    return [...(await this.#ofSettings(accountId)), ...rows.map(toPublisher)];
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
        const sql = 'SELECT COUNT(*) AS n FROM publishers WHERE account_id = ?';
        if ((await tx.get<{ n: number }>(sql, [accountId]))!.n >= mostRules) {
          throw new DomainError('Invalid', `An account has at most ${mostRules} rules. Delete one first.`);
        }
        if ((await tx.insertNew('publishers', [row])) === 0) throw nameTaken(checked.name);
        await this.#record(tx, 'publisher.created', row);
      },
      { uncached: true },
    );
    return toPublisher(row);
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
      allowed(toPublisher(before));
      const same = 'SELECT id FROM publishers WHERE account_id = ? AND name = ? AND id <> ?';
      if (await tx.get(same, [accountId, checked.name, id])) throw nameTaken(checked.name);
      const row = { ...before, ...rowOf(checked), updated_at: Math.max(this.#now(), before.updated_at + 1) };
      await tx.run(
        'UPDATE publishers SET name = ?, issuer = ?, claims = ?, scopes = ?, patterns = ?, updated_at = ? WHERE id = ?',
        [row.name, row.issuer, row.claims, row.scopes, row.patterns, row.updated_at, id],
      );
      await this.#tokens.revokeGiven(tx, id);
      await this.#record(tx, 'publisher.updated', row);
      return toPublisher(row);
    });
  }

  /** Deletes a rule, and revokes the tokens that it gave. `allowed` checks the rule. Throws `NotFound`. */
  async delete(accountId: number, id: string, allowed: (before: Publisher) => void = () => undefined): Promise<void> {
    await this.#refuseSettings(accountId, id);
    await this.#database.transaction(async (tx) => {
      const row = await locked(tx, accountId, id);
      allowed(toPublisher(row));
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

  #record(
    tx: Transaction,
    type: 'publisher.created' | 'publisher.updated' | 'publisher.deleted',
    { id, account_id: accountId, name, issuer, claims, scopes, patterns }: Omit<PublisherRow, 'created_at'>,
  ): Promise<void> {
    const details = {
      publisher_id: id,
      issuer,
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

function nameTaken(name: string): DomainError {
  return new DomainError('AlreadyExists', `This account already has a rule named "${name}".`);
}

function rowOf({ name, issuer, claims, scopes, patterns }: CheckedPublisher) {
  return {
    name,
    issuer,
    claims: JSON.stringify(claims),
    scopes: scopes.join(','),
    patterns: patterns && JSON.stringify(patterns),
  };
}

function toPublisher(row: PublisherRow): Publisher {
  return {
    id: row.id,
    accountId: row.account_id,
    name: row.name,
    issuer: row.issuer,
    claims: JSON.parse(row.claims) as Wanted,
    scopes: row.scopes.split(',') as Scope[],
    patterns: row.patterns === null ? null : (JSON.parse(row.patterns) as Patterns),
    source: 'api',
    createdAt: row.created_at,
    updatedAt: row.updated_at,
  };
}
