import { hash } from 'node:crypto';
import { inTurn } from '../runtime/in-turn.ts';
import { rankedRows } from '../database/ranked-rows.ts';
import type { Rank, Ranked } from '../runtime/ranked.ts';
import { placeholders, type Database, type Value } from '../database/database.ts';
import type { SubjectKind } from './counters.ts';

/** What failed requests have in common that count as one. */
interface FailureKey {
  accountId: number;
  kind: SubjectKind;
  name: string;
  /** The version, tag or digest; empty without one. */
  reference: string;
  /** Null for an anonymous reader. */
  tokenId: string | null;
  /** The name of the upstream that caused it; null without one. */
  upstream: string | null;
  status: number;
  /** The name of the error. */
  code: string;
  reason: string;
}

/** Requests that failed. Times are in milliseconds since 1970 UTC. */
export interface FailedRequest extends FailureKey {
  id: string;
  /** `X-Request-Id` of the latest one. */
  requestId: string;
  count: number;
  firstAt: number;
  lastAt: number;
}

/** What clients asked for in vain. */
interface WantedName {
  kind: SubjectKind;
  name: string;
  /** The version, tag or digest; empty if only the name is known. */
  reference: string;
  /** One of the accounts whose clients asked. */
  accountId: number;
  count: number;
  /** Milliseconds since 1970 UTC. */
  lastAt: number;
}

/** The failures of one token of an account. */
interface TokenFailures {
  /** Null for anonymous readers and people in the console. */
  tokenId: string | null;
  /** Requests, and the names that they were for. */
  count: number;
  names: number;
  /** Milliseconds since 1970 UTC. */
  lastAt: number;
}

interface FailureFilter {
  /** Undefined: those of all accounts. */
  accountId?: number | undefined;
  kind?: string | undefined;
  /** One of these. */
  names?: readonly string[] | undefined;
  tokenId?: string | undefined;
  upstream?: string | undefined;
  code?: string | undefined;
}

/** How long a failure is kept after its latest request, in milliseconds. */
const keepFor = 2 * 86_400_000;
/** Most failures of an account that are kept, the latest; and most of those that say what is wanted. */
const maxKept = 5000;
const maxKeptWanted = 20_000;
/** How long it is kept what was asked of upstreams that are set to offline, in milliseconds. */
const wantedFor = 60 * 86_400_000;
/** Most names and references that are wanted. */
const maxWanted = 50_000;
/** Most failures in memory until the next flush. More are lost: one client may cause any number. */
const maxUnwritten = 500;
const maxReason = 500;
const maxName = 255;

const columns = `id, account_id AS accountId, kind, name, reference, token_id AS tokenId, upstream, status, code, reason,
  request_id AS requestId, count, first_at AS firstAt, last_at AS lastAt`;

/** The requests of the last two days that were refused or failed, for people who look for the cause. */
export class FailedRequests {
  readonly #database: Database;
  readonly #now: () => number;
  readonly #offline: readonly string[];
  readonly #unwritten = new Map<string, FailedRequest>();

  /** `offline` has the names of the upstreams that are never asked. */
  constructor(database: Database, now: () => number, offline: readonly string[] = []) {
    this.#database = database;
    this.#now = now;
    this.#offline = offline;
  }

  /** Counts a failed request; the next flush writes it. */
  note({ requestId, ...given }: FailureKey & { requestId: string }): void {
    const key = {
      ...given,
      name: given.name.slice(0, maxName),
      reference: given.reference.slice(0, maxName),
      reason: given.reason.slice(0, maxReason),
    };
    const id = hash('sha256', JSON.stringify(Object.values(key)));
    const now = this.#now();
    const before = this.#unwritten.get(id);
    if (!before && this.#unwritten.size >= maxUnwritten) return;
    const { count = 0, firstAt = now } = before ?? {};
    this.#unwritten.set(id, { id, ...key, requestId, count: count + 1, firstAt, lastAt: now });
  }

  /** Writes what was counted. What cannot be written is lost. */
  readonly flush = inTurn(() => this.#write());

  async #write(): Promise<void> {
    const rows = [...this.#unwritten.values()].map((each) => ({
      id: each.id,
      account_id: each.accountId,
      kind: each.kind,
      name: each.name,
      reference: each.reference,
      token_id: each.tokenId,
      upstream: each.upstream,
      status: each.status,
      code: each.code,
      reason: each.reason,
      request_id: each.requestId,
      count: each.count,
      first_at: each.firstAt,
      last_at: each.lastAt,
    }));
    this.#unwritten.clear();
    if (rows.length === 0) return;
    rows.sort((one, other) => (one.id < other.id ? -1 : 1));
    const update = 'count = failed_requests.count + new.count, last_at = new.last_at, request_id = new.request_id';
    await this.#database.transaction((tx) => tx.upsert('failed_requests', ['id'], rows, update), { fleeting: true });
  }

  /** Up to `limit` failures, with those of this process that are not written yet: the latest first, after `after` if given. */
  async list(
    filter: FailureFilter,
    limit: number,
    after?: readonly [lastAt: number, id: string],
  ): Promise<FailedRequest[]> {
    const { conditions, values } = await this.#filtered(filter);
    if (after) {
      conditions.push('(last_at < ? OR (last_at = ? AND id < ?))');
      values.push(after[0], ...after);
    }
    return this.#database.select<FailedRequest>(
      `SELECT ${columns} FROM failed_requests WHERE ${conditions.join(' AND ')} ORDER BY last_at DESC, id DESC LIMIT ?`,
      [...values, limit],
    );
  }

  /** As `list`, the most frequent first. */
  async ranked(filter: FailureFilter, limit: number, after: Rank | undefined): Promise<Ranked<FailedRequest>[]> {
    const { conditions, values } = await this.#filtered(filter);
    const from = `failed_requests WHERE ${conditions.join(' AND ')}`;
    return rankedRows(this.#database, { columns, from, values, value: 'count', name: 'id' }, limit, after);
  }

  /** Up to `limit` tokens of an account whose requests failed as `filter` says, the most frequent first. */
  async byToken(
    filter: FailureFilter & { accountId: number },
    limit: number,
    after: Rank | undefined,
  ): Promise<Ranked<TokenFailures>[]> {
    const { conditions, values } = await this.#filtered(filter);
    const from = `(SELECT token_id AS tokenId, COALESCE(token_id, '') AS tokenKey, SUM(count) AS count,
        COUNT(DISTINCT name) AS names, MAX(last_at) AS lastAt
      FROM failed_requests WHERE ${conditions.join(' AND ')} GROUP BY token_id) AS grouped WHERE 1 = 1`;
    const columns = 'tokenId, count, names, lastAt';
    return rankedRows(this.#database, { columns, from, values, value: 'count', name: 'tokenKey' }, limit, after);
  }

  async #filtered({ accountId, ...rest }: FailureFilter): Promise<{ conditions: string[]; values: Value[] }> {
    await this.flush().catch(() => undefined);
    const conditions: string[] = [];
    const values: Value[] = [];
    const fields = { account_id: accountId, kind: rest.kind, token_id: rest.tokenId };
    for (const [column, value] of Object.entries({ ...fields, upstream: rest.upstream, code: rest.code })) {
      if (value === undefined) continue;
      conditions.push(`${column} = ?`);
      values.push(value);
    }
    if (rest.names) {
      conditions.push(`name IN (${placeholders(rest.names)})`);
      values.push(...rest.names);
    }
    conditions.push('last_at > ?');
    values.push(this.#now() - keepFor);
    return { conditions, values };
  }

  /**
   * What clients of all accounts have asked for in vain since `since`, because an upstream is set to offline: each name and
   * reference once, the most frequent first.
   */
  async wanted(since: number): Promise<WantedName[]> {
    await this.flush().catch(() => undefined);
    if (this.#offline.length === 0) return [];
    return this.#database.select<WantedName>(
      `SELECT kind, name, reference, MIN(account_id) AS accountId, SUM(count) AS count, MAX(last_at) AS lastAt
       FROM failed_requests WHERE ${this.#isWanted} AND last_at > ?
       GROUP BY kind, name, reference ORDER BY count DESC, name, reference LIMIT ${maxWanted}`,
      [...this.#offline, since],
    );
  }

  get #isWanted(): string {
    return `code = 'UpstreamUnavailable' AND COALESCE(upstream, '') IN (${placeholders(this.#offline)})`;
  }

  /** Deletes old failures, and those of an account beyond the most that are kept. */
  async deleteOld(): Promise<void> {
    const now = this.#now();
    const drop = (condition: string, values: readonly Value[]) =>
      this.#database.transaction((tx) => tx.run(`DELETE FROM failed_requests WHERE ${condition}`, values), {
        fleeting: true,
      });
    await drop('last_at <= ?', [now - wantedFor]);
    if (this.#offline.length === 0) {
      await drop('last_at <= ?', [now - keepFor]);
      await this.#deleteBeyond(maxKept, '1 = 1', []);
      return;
    }
    const others = `NOT (${this.#isWanted})`;
    await drop(`last_at <= ? AND ${others}`, [now - keepFor, ...this.#offline]);
    // A client that asks for very much else must not push out what is wanted.
    await this.#deleteBeyond(maxKept, others, this.#offline);
    await this.#deleteBeyond(maxKeptWanted, this.#isWanted, this.#offline);
  }

  /** Deletes the failures of each account that match beyond the latest `max`. */
  async #deleteBeyond(max: number, condition: string, values: readonly string[]): Promise<void> {
    const accounts = await this.#database.select<{ accountId: number }>(
      `SELECT account_id AS accountId FROM failed_requests WHERE ${condition} GROUP BY account_id HAVING COUNT(*) > ?`,
      [...values, max],
    );
    for (const { accountId } of accounts) {
      const first = await this.#database.get<{ lastAt: number }>(
        `SELECT last_at AS lastAt FROM failed_requests WHERE account_id = ? AND ${condition}
         ORDER BY last_at DESC, id DESC LIMIT 1 OFFSET ?`,
        [accountId, ...values, max],
      );
      if (!first) continue;
      const sql = `DELETE FROM failed_requests WHERE account_id = ? AND last_at <= ? AND ${condition}`;
      await this.#database.transaction((tx) => tx.run(sql, [accountId, first.lastAt, ...values]), { fleeting: true });
    }
  }
}
