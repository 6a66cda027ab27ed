import { hash, randomBytes, randomUUID } from 'node:crypto';
import { placeholders, type Database } from '../database/database.ts';
import { DomainError } from '../errors.ts';
import type { TokenPrincipal } from './principal.ts';
import type { Tokens } from './tokens.ts';

export interface Session {
  id: string;
  /** The token that the visitor signed in with. */
  tokenId: string;
  /** `User-Agent` of the browser. */
  agent: string;
  address: string | null;
  createdAt: number;
  /** Exact to a minute. */
  usedAt: number;
}

interface SessionRow {
  id: string;
  hash: string;
  account_id: number;
  token_id: string;
  agent: string;
  address: string | null;
  created_at: number;
  used_at: number;
}

/** Milliseconds after which a session ends: without a request, and in any case. */
export interface SessionTimes {
  idle: number;
  absolute: number;
}

/** Sessions that a token can have. The oldest ends when there are more. */
const maxSessions = 50;
/** The time of the last use is written once a minute; milliseconds. */
const useInterval = 60_000;

/**
 * Sessions of the console. The cookie has a random value of 256 bits; the database has its SHA-256 only. A session can do
 * what its token can, and ends with it.
 */
export class Sessions {
  readonly #database: Database;
  readonly #tokens: Tokens;
  readonly #times: SessionTimes;
  readonly #now: () => number;

  constructor(database: Database, tokens: Tokens, times: SessionTimes, now: () => number) {
    this.#database = database;
    this.#tokens = tokens;
    this.#times = times;
    this.#now = now;
  }

  /** Begins a session; resolves to the value for the cookie, which only this result contains. */
  async begin(
    { accountId, tokenId }: TokenPrincipal,
    { agent, address }: { agent: string; address: string | null },
  ): Promise<string> {
    const value = randomBytes(32).toString('base64url');
    const now = this.#now();
    const row: SessionRow = {
      id: randomUUID(),
      hash: hash('sha256', value),
      account_id: accountId,
      token_id: tokenId,
      agent: agent.slice(0, 255),
      address,
      created_at: now,
      used_at: now,
    };
    await this.#database.transaction(
      async (tx) => {
        const others = await tx.select<{ id: string }>(
          'SELECT id FROM sessions WHERE account_id = ? AND token_id = ? ORDER BY created_at DESC, id LIMIT 1000',
          [accountId, tokenId],
        );
        for (const { id } of others.slice(maxSessions - 1)) await tx.run('DELETE FROM sessions WHERE id = ?', [id]);
        await tx.insert('sessions', { ...row });
      },
      { uncached: true },
    );
    return value;
  }

  /** The session of a cookie and what it may do; undefined if it has ended, or its token is revoked or expired. */
  async find(value: string): Promise<{ session: Session; principal: TokenPrincipal } | undefined> {
    const row = await this.#database.get<SessionRow>('SELECT * FROM sessions WHERE hash = ?', [hash('sha256', value)]);
    if (!row || !this.#isOpen(row)) return undefined;
    const principal = await this.#tokens.principalOf(row.token_id);
    if (!principal) return undefined;
    const now = this.#now();
    if (now - row.used_at >= useInterval) {
      const sql = 'UPDATE sessions SET used_at = ? WHERE id = ?';
      await this.#database.transaction((tx) => tx.run(sql, [now, row.id]), { uncached: true });
    }
    return { session: toSession(row), principal };
  }

  /** The open sessions of an account, the latest first, up to `limit` and before `cursor` (`created_at`, `id`). */
  async list(accountId: number, limit: number, cursor?: readonly [number, string]): Promise<Session[]> {
    const [createdAt, id] = cursor ?? [Number.MAX_SAFE_INTEGER, ''];
    const { idle, absolute } = this.#times;
    const rows = await this.#database.select<SessionRow>(
      `SELECT * FROM sessions WHERE account_id = ? AND used_at > ? AND created_at > ?
       AND (created_at < ? OR (created_at = ? AND id < ?)) ORDER BY created_at DESC, id DESC LIMIT ?`,
      [accountId, this.#now() - idle, this.#now() - absolute, createdAt, createdAt, id, limit],
    );
    return rows.map(toSession);
  }

  /** Ends a session of the account, or only of the token `tokenId`, at once on all instances. Throws `NotFound`. */
  async end(accountId: number, id: string, tokenId?: string): Promise<void> {
    const sql = 'DELETE FROM sessions WHERE id = ? AND account_id = ? AND token_id = COALESCE(?, token_id)';
    const values = [id, accountId, tokenId ?? null];
    const ended = await this.#database.transaction((tx) => tx.run(sql, values), { uncached: true });
    if (ended === 0) throw new DomainError('NotFound', 'This account has no such session. It may have ended.');
  }

  /** Deletes the rows of up to 200 sessions that have ended. */
  async deleteEnded(): Promise<void> {
    const { idle, absolute } = this.#times;
    const rows = await this.#database.select<{ id: string }>(
      'SELECT id FROM sessions WHERE used_at <= ? OR created_at <= ? ORDER BY used_at LIMIT 200',
      [this.#now() - idle, this.#now() - absolute],
    );
    if (rows.length === 0) return;
    const ids = rows.map(({ id }) => id);
    const sql = `DELETE FROM sessions WHERE id IN (${placeholders(ids)})`;
    await this.#database.transaction((tx) => tx.run(sql, ids), { uncached: true });
  }

  #isOpen({ created_at: createdAt, used_at: usedAt }: SessionRow): boolean {
    const now = this.#now();
    return now - usedAt < this.#times.idle && now - createdAt < this.#times.absolute;
  }
}

function toSession(row: SessionRow): Session {
  return {
    id: row.id,
    tokenId: row.token_id,
    agent: row.agent,
    address: row.address,
    createdAt: row.created_at,
    usedAt: row.used_at,
  };
}
