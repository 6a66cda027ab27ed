import { randomUUID } from 'node:crypto';
import { currentOrigin, type Actor, type Origin } from '../runtime/caller.ts';
import { placeholders, type Database, type Transaction } from '../database/database.ts';
import { rankedRows } from '../database/ranked-rows.ts';
import { DomainError } from '../runtime/errors.ts';
import type { Rank, Ranked } from '../runtime/ranked.ts';
import type { Details } from '../events/event.ts';
import { recordFrom } from '../events/record.ts';
import type { Grants } from './grants.ts';
import { parsePatterns, type Patterns } from './names.ts';
import { isDisabled, personOfRow, type People, type Person } from './people.ts';
import { parseScopes, scopes as allScopes, type CiJob, type TokenPrincipal, type Verifier } from './principal.ts';
import { rightsOfToken } from './token-rights.ts';
import { boundTokens, firstToken, makeRoom } from './token-bounds.ts';
import {
  endOfToken,
  foundColumns,
  foundTokens,
  tokenOfRow,
  type FoundToken,
  type PersonLack,
  type Token,
  type TokenRow,
} from './token-rows.ts';
import { hashToken, newTokenValue, prefixLength, prefixOf } from './token-value.ts';

const found = `SELECT ${foundColumns} FROM ${foundTokens}`;
const byHash = `${found} WHERE hash = ?`;
const byId = `${found} WHERE id = ?`;

export interface NewToken {
  name: string;
  scopes: readonly string[];
  patterns?: Patterns | null | undefined;
  expiresAt?: number | null;
  value?: string;
  /** For a token that a rule gives, or that one of these makes. They are not listed, and are deleted, after they have expired. */
  publisherId?: string | null;
  /** For a personal token, or one that such a token makes. It can do what its person can, and ends with the person's rights. */
  personId?: string | null;
  /** The job of a CI that gets it, or that got the token which makes it. */
  job?: CiJob | null;
  /** Who makes it, if that is not the actor of the request. */
  createdBy?: Actor;
  /** Further facts for its event. */
  details?: Details;
}

/** Milliseconds that a short-lived token is valid at most. */
const shortLife = 24 * 60 * 60_000;

/** Expired tokens that are deleted in one transaction. */
const batch = 500;

/** Without Redis, how long an instance may accept a token after another instance revoked it; milliseconds. */
const lag = 200;

/** API tokens, stored and found by their hash. */
export class Tokens implements Verifier {
  readonly #database: Database;
  readonly #now: () => number;
  readonly #rights: { people: People; grants: Grants } | undefined;
  #used = new Map<string, number>();
  /** Times that a flush is writing. */
  readonly #writing = new Set<ReadonlyMap<string, number>>();
  /** By token row: the database returns the same row object until the next write. */
  readonly #principals = new WeakMap<object, TokenPrincipal>();

  /** Without `rights`, personal tokens are refused, and grants do not count. */
  constructor(database: Database, now: () => number, rights?: { people: People; grants: Grants }) {
    this.#database = database;
    this.#now = now;
    this.#rights = rights;
  }

  /**
   * Creates a token of the account. Only this result contains its value. `expiresAt` is in milliseconds since 1970,
   * null for never. `value` is only for the first token of a new installation. `first` runs in the same transaction, before
   * the token is written.
   */
  async create(
    accountId: number,
    options: NewToken,
    first?: (tx: Transaction) => Promise<void>,
  ): Promise<{ token: Token; value: string }> {
    const name = options.name.trim();
    if (name.length === 0 || name.length > 200) {
      throw new DomainError('Invalid', 'A token needs a name of 1 to 200 characters.');
    }
    const patterns = parsePatterns(options.patterns);
    const expiresAt = options.expiresAt ?? null;
    if (expiresAt !== null && !(expiresAt > this.#now())) {
      throw new DomainError('Invalid', 'The expiry time of a token must be in the future.');
    }
    const value = options.value ?? newTokenValue();
    const createdBy = options.createdBy ?? currentOrigin().actor;
    const row: TokenRow = {
      id: randomUUID(),
      account_id: accountId,
      name,
      token_prefix: prefixOf(value),
      hash: hashToken(value),
      scopes: parseScopes(options.scopes).join(','),
      patterns: patterns && JSON.stringify(patterns),
      publisher_id: options.publisherId ?? null,
      owner_id: options.personId ?? null,
      created_by: JSON.stringify(createdBy),
      job: options.job ? JSON.stringify(options.job) : null,
      created_at: this.#now(),
      expires_at: expiresAt,
      last_used_at: null,
      revoked_at: null,
    };
    await this.#database.transaction(async (tx) => {
      await first?.(tx);
      if (row.publisher_id === null) await makeRoom(tx, accountId, this.#now());
      await boundTokens(tx, row, this.#now());
      await tx.insert('tokens', { ...row });
      const origin = { ...currentOrigin(), actor: createdBy };
      await this.#record(tx, 'token.created', row, origin, {
        scopes: row.scopes.split(','),
        ...(patterns && { patterns: { ...patterns } }),
        expires_at: expiresAt === null ? null : new Date(expiresAt).toISOString(),
        ...options.details,
      });
    });
    return { token: tokenOfRow({ ...row, personal_tokens: null }, null), value };
  }

  /**
   * Creates the first token of a new installation, with every scope, and returns its value; undefined if the account
   * has tokens. With `value`, creates that token at every start if it does not exist; a revoked one exists and stays
   * revoked.
   */
  async bootstrap(accountId: number, value?: string): Promise<string | undefined> {
    const any = await this.#database.get('SELECT id FROM tokens WHERE account_id = ?', [accountId]);
    if (value === undefined ? any : await this.isKnown(value)) return undefined;
    return this.#database.exclusively(async () => {
      if (value === undefined ? (await this.list(accountId, 1)).length > 0 : await this.isKnown(value))
        return undefined;
      return (await this.create(accountId, { name: firstToken, scopes: allScopes, ...(value && { value }) })).value;
    });
  }

  /**
   * Up to `limit` tokens of the account, the latest first, after `cursor` (`created_at`, `id`), without expired ones that a
   * rule gave. With `personId`, only the personal tokens of that person.
   */
  async list(
    accountId: number,
    limit: number,
    cursor?: readonly [number, string],
    personId?: string,
  ): Promise<Token[]> {
    const [createdAt, id] = cursor ?? [Number.MAX_SAFE_INTEGER, ''];
    const rows = await this.#database.select<FoundToken>(
      `${found} WHERE account_id = ? AND (created_at < ? OR (created_at = ? AND id < ?))
       AND (publisher_id IS NULL OR expires_at > ?) ${personId === undefined ? '' : 'AND owner_id = ?'}
       ORDER BY created_at DESC, id DESC LIMIT ?`,
      [accountId, createdAt, createdAt, id, this.#now(), ...(personId === undefined ? [] : [personId]), limit],
    );
    return Promise.all(rows.map((row) => this.#tokenOfRow(row)));
  }

  /** As `list`, those that were used last first, as far as their uses are in the database. */
  async byUse(accountId: number, limit: number, after: Rank | undefined): Promise<Ranked<Token>[]> {
    const statement = {
      columns: foundColumns,
      from: `${foundTokens} WHERE account_id = ? AND (publisher_id IS NULL OR expires_at > ?)`,
      values: [accountId, this.#now()],
      value: 'last_used_at',
      name: 'id',
    };
    const rows = await rankedRows<FoundToken>(this.#database, statement, limit, after);
    return Promise.all(rows.map(async ({ rank, item }) => ({ rank, item: await this.#tokenOfRow(item) })));
  }

  /** One token of the account, in any state; undefined if the account has no token with this ID. */
  async get(accountId: number, id: string): Promise<Token | undefined> {
    const row = await this.#database.get<FoundToken>(`${byId} AND account_id = ?`, [id, accountId]);
    return row && this.#tokenOfRow(row);
  }

  /**
   * The tokens of the account, in any state, that `value` is or is the beginning of: at most 50. A whole token is found by its
   * hash; else only its stored beginning is compared.
   */
  async find(accountId: number, value: string): Promise<Token[]> {
    const exact = await this.#database.get<FoundToken>(`${byHash} AND account_id = ?`, [hashToken(value), accountId]);
    if (exact) return [await this.#tokenOfRow(exact)];
    // It is the whole value of a token that this account does not have.
    if (prefixOf(value) !== '') return [];
    const rows = await this.#database.select<FoundToken>(
      `${found} WHERE account_id = ? AND token_prefix = ? ORDER BY created_at DESC, id DESC LIMIT 50`,
      [accountId, value.slice(0, prefixLength)],
    );
    return Promise.all(rows.map((row) => this.#tokenOfRow(row)));
  }

  /** With uses that are not yet in the database. */
  async #tokenOfRow(row: FoundToken): Promise<Token> {
    const used = { ...row, last_used_at: this.#used.get(row.id) ?? row.last_used_at };
    return tokenOfRow(used, (await this.#lackOf(row)) ?? null);
  }

  /** Revokes a token at once on all instances (but see `lag`); `NotFound` if the account does not have it. */
  async revoke(accountId: number, id: string): Promise<void> {
    const row = await this.#database.transaction(async (tx) => {
      const found = await tx.get<TokenRow>('SELECT * FROM tokens WHERE id = ? AND account_id = ?', [id, accountId]);
      if (found && found.revoked_at === null) {
        await tx.run('UPDATE tokens SET revoked_at = ? WHERE id = ?', [this.#now(), id]);
        await this.#record(tx, 'token.revoked', found, currentOrigin());
      }
      return found;
    });
    if (!row) throw new DomainError('NotFound', 'This account has no such token.');
  }

  /** Revokes the valid tokens that a rule gave; resolves to their number. */
  revokeGiven(tx: Transaction, publisherId: string): Promise<number> {
    const sql = 'UPDATE tokens SET revoked_at = ? WHERE publisher_id = ? AND expires_at > ? AND revoked_at IS NULL';
    return tx.run(sql, [this.#now(), publisherId, this.#now()]);
  }

  /** Deletes up to 500 expired tokens that rules gave; resolves to their number. */
  async deleteExpired(): Promise<number> {
    const rows = await this.#database.select<{ id: string }>(
      `SELECT id FROM tokens WHERE publisher_id > '' AND expires_at <= ? LIMIT ${batch}`,
      [this.#now()],
    );
    if (rows.length === 0) return 0;
    const ids = rows.map(({ id }) => id);
    const sql = `DELETE FROM tokens WHERE id IN (${placeholders(ids)})`;
    // A cached row of an expired token is refused as well.
    return this.#database.transaction((tx) => tx.run(sql, ids), { uncached: true });
  }

  /** The principal of the token `value`; undefined for an unknown, expired or revoked token. */
  async verify(value: string): Promise<TokenPrincipal | undefined> {
    return this.#principal(await this.#database.getCached<FoundToken>(byHash, [hashToken(value)], { lag }));
  }

  /** As `verify`, for the token with this ID. It reads the database, so that a revocation has effect at once. */
  async principalOf(id: string): Promise<TokenPrincipal | undefined> {
    return this.#principal(await this.#database.get<FoundToken>(byId, [id]));
  }

  /** As `verify`, for the token with this ID. */
  async verifiedById(id: string): Promise<TokenPrincipal | undefined> {
    return this.#principal(await this.#database.getCached<FoundToken>(byId, [id], { lag }));
  }

  async #principal(row: FoundToken | undefined): Promise<TokenPrincipal | undefined> {
    const now = this.#now();
    if (!row || row.revoked_at !== null) return undefined;
    if (row.owner_id !== null && !this.#rights?.people.isCurrent(row.signed_in_at ?? 0)) return undefined;
    let principal = this.#principals.get(row);
    if (!principal) {
      const expiresAt = endOfToken(row);
      principal = {
        kind: 'token',
        accountId: row.account_id,
        accountName: row.account_name,
        tokenId: row.id,
        tokenName: row.name,
        publisherId: row.publisher_id,
        personId: row.owner_id,
        personName: row.person === null ? null : (JSON.parse(row.person) as Person).name,
        job: row.job === null ? null : (JSON.parse(row.job) as CiJob),
        expiresAt,
        isShortLived: expiresAt !== null && expiresAt - row.created_at <= shortLife,
        ...(await rightsOfToken(row, this.#rights)),
      };
      this.#principals.set(row, principal);
    }
    const { expiresAt, scopes } = principal;
    if (scopes.size === 0 || (expiresAt !== null && expiresAt <= now)) return undefined;
    this.#used.set(row.id, now);
    return principal;
  }

  /** What the person of a personal token lacks, so that the token is refused. */
  async #lackOf(row: FoundToken): Promise<PersonLack | undefined> {
    if (row.owner_id === null) return undefined;
    if (row.person === null || !this.#rights?.people.isCurrent(row.signed_in_at!)) return 'no_sign_in';
    if (isDisabled(personOfRow({ ...row, person: row.person }), row.account_name)) return 'disabled';
    return (await rightsOfToken(row, this.#rights)).scopes.size === 0 ? 'no_rights' : undefined;
  }

  /** Writes the times of last use to the database. Called every few seconds and when the server closes. */
  async flush(): Promise<void> {
    const used = this.#used;
    if (used.size === 0) return;
    this.#used = new Map();
    this.#writing.add(used);
    try {
      await this.restore(used);
    } catch (error) {
      for (const [id, at] of used) this.#used.set(id, Math.max(at, this.#used.get(id) ?? 0));
      throw error;
    } finally {
      this.#writing.delete(used);
    }
  }

  /** The times of last use by token ID that are not written, or whose write has not ended. */
  unwritten(): Map<string, number> {
    const all = new Map(this.#used);
    for (const used of this.#writing) for (const [id, at] of used) all.set(id, Math.max(at, all.get(id) ?? 0));
    return all;
  }

  /** Writes times of last use, except those of tokens that were used later. */
  async restore(used: ReadonlyMap<string, number>): Promise<void> {
    const sql = 'UPDATE tokens SET last_used_at = ? WHERE id = ? AND COALESCE(last_used_at, 0) < ?';
    await this.#database.transaction(async (tx) => {
      for (const [id, at] of used) await tx.run(sql, [at, id, at]);
    });
  }

  #record(
    tx: Transaction,
    type: 'token.created' | 'token.revoked',
    { id, account_id: accountId, name }: TokenRow,
    origin: Origin,
    details?: Details,
  ): Promise<void> {
    const event = { type, accountId, subject: { kind: 'token', name }, details: { token_id: id, ...details } } as const;
    return recordFrom(tx, event, this.#now(), origin);
  }

  /** Whether `value` is a token of any account, in any state. */
  async isKnown(value: string): Promise<boolean> {
    return (await this.#database.get('SELECT id FROM tokens WHERE hash = ?', [hashToken(value)])) !== undefined;
  }
}
