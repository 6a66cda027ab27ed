import { hash, randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { placeholders, type Database } from '../database/database.ts';
import { DomainError } from '../runtime/errors.ts';
import { inTurn } from '../runtime/in-turn.ts';
import type { SubjectKind } from './counters.ts';

/** A request that a check waits for. */
interface CheckedRequest {
  status: number;
  /** Why it was refused; null if it was not. */
  reason: string | null;
  /** Whether it had a credential, valid or not. */
  hasCredential: boolean;
  agent: string;
  address: string;
  /** The `Host` of the request, and its path with the query. */
  host: string;
  path: string;
  /** Null without a valid credential. */
  accountId: number | null;
  tokenId: string | null;
}

/** Equal requests, which count as one. Times are in milliseconds since 1970 UTC. */
export interface NotedRequest extends CheckedRequest {
  count: number;
  firstAt: number;
  lastAt: number;
}

/** A check whether a client asks this server: it asks for a name, and all instances note its requests for that name. */
export interface ClientCheck {
  id: string;
  accountId: number;
  client: string;
  /** The name as the client asks for it, and the version or tag. */
  name: string;
  reference: string;
  /** The names of what a policy refuses, as requests have them; null for a name of its own that nobody else asks for. */
  denied: readonly string[] | null;
  createdAt: number;
  expiresAt: number;
}

/**
 * How a check stands. `refused`: the client asks here, and has no valid credential for it. `served`: it got what a policy refused
 * when the check began. `unused`: it did not ask here.
 */
export const checkStates = ['waiting', 'used', 'refused', 'served', 'unused'] as const;
export type CheckState = (typeof checkStates)[number];

/** How long a check takes requests, and how long it is kept; milliseconds. */
export const checkedFor = 15 * 60_000;
const keepFor = 86_400_000;
/** Most checks of an account that take requests. */
const maxChecks = 20;
/** Most different requests of a check. */
const maxRequests = 20;
/** Most different requests in memory until the next flush. Further ones are lost. */
const maxUnwritten = 200;
const maxText = 255;
/** A read of the awaited names may be so old, and is made each second. */
const lag = 2000;
/** Until then each instance has read a new check of a name that a policy refuses. */
const learnedWithin = lag + 1500;
/** Most checks, of all accounts, that wait for a name which a policy refuses. */
const maxAwaited = 1000;

const canary = /\bentrepot-check[./]([0-9a-f]{32})\b/;

/** The check whose own name is in a path or query; undefined if there is none. No upstream is asked for such a name. */
export function checkIn(target: string): string | undefined {
  // Almost no request has it.
  if (!target.includes('entrepot-check')) return undefined;
  try {
    return canary.exec(decodeURIComponent(target))?.[1];
  } catch {
    return undefined;
  }
}

/** The checks of whether clients use this server, and the requests that arrived for them at any instance. */
export class ClientChecks {
  readonly #database: Database;
  /** Milliseconds since 1970 UTC. */
  readonly now: () => number;
  readonly #unwritten = new Map<string, { checkId: string; request: CheckedRequest; count: number; at: number }>();
  /** The checks of names that a policy refuses, by account, kind and name. */
  #awaited: ReadonlyMap<string, readonly { id: string; reference: string }[]> = new Map();

  constructor(database: Database, now: () => number) {
    this.#database = database;
    this.now = now;
  }

  /**
   * Starts a check, which ends after 15 minutes; resolves when all instances note its requests. `nameOf` makes the name from its ID.
   * Throws `TooManyRequests` above 20 of an account.
   */
  async start(
    {
      kind,
      denied,
      ...check
    }: Pick<ClientCheck, 'accountId' | 'client' | 'reference' | 'denied'> & { kind: SubjectKind },
    nameOf: (id: string) => string,
  ): Promise<ClientCheck> {
    const now = this.now();
    const id = randomBytes(16).toString('hex');
    const made = { ...check, denied, id, name: nameOf(id), createdAt: now, expiresAt: now + checkedFor };
    await this.#database.transaction(async (tx) => {
      const sql = 'SELECT COUNT(*) AS count FROM client_checks WHERE account_id = ? AND expires_at > ?';
      const { count } = (await tx.get<{ count: number }>(sql, [check.accountId, now]))!;
      if (count >= maxChecks) {
        const message = `This account has ${maxChecks} checks of clients that go on. Wait until one ends.`;
        throw new DomainError('TooManyRequests', message, { retryAfter: checkedFor / 1000 });
      }
      await tx.insert('client_checks', {
        id,
        account_id: check.accountId,
        client: check.client,
        kind,
        name: made.name,
        reference: check.reference,
        denied: denied && JSON.stringify(denied),
        created_at: now,
        expires_at: made.expiresAt,
      });
    });
    if (denied) await sleep(learnedWithin);
    return made;
  }

  /** A check of the account and its requests, the first ones first. `NotFound` if there is none. */
  async read(id: string, accountId: number): Promise<{ check: ClientCheck; requests: NotedRequest[] }> {
    await this.flush().catch(() => undefined);
    const found = await this.#database.get<Omit<ClientCheck, 'denied'> & { denied: string | null }>(
      `SELECT id, account_id AS accountId, client, name, reference, denied, created_at AS createdAt,
        expires_at AS expiresAt FROM client_checks WHERE id = ? AND account_id = ? AND expires_at > ?`,
      [id, accountId, this.now() - keepFor],
    );
    if (!found) throw new DomainError('NotFound', 'This account has no such check. Checks are kept for a day.');
    const rows = await this.#database.select<{ request: string; count: number; firstAt: number; lastAt: number }>(
      `SELECT request, count, first_at AS firstAt, last_at AS lastAt FROM client_check_requests WHERE check_id = ?
       ORDER BY first_at, id LIMIT ${2 * maxRequests}`,
      [id],
    );
    const denied = found.denied === null ? null : (JSON.parse(found.denied) as string[]);
    const requests = rows.map(({ request, ...times }) => ({ ...(JSON.parse(request) as CheckedRequest), ...times }));
    return { check: { ...found, denied }, requests };
  }

  /** Notes a finished request if a check waits for it. `asked` is what a client with a valid credential asks for. */
  note(
    target: string,
    asked: { accountId: number; kind: SubjectKind; name: string; reference: string } | undefined,
    requestOf: () => CheckedRequest,
  ): void {
    const own = checkIn(target);
    const key = asked && this.#awaited.size > 0 ? keyOf(asked.accountId, asked.kind, asked.name) : '';
    const others = (this.#awaited.get(key) ?? []).filter(
      ({ reference }) => asked!.reference === '' || asked!.reference.toLowerCase() === reference.toLowerCase(),
    );
    const ids = [...(own === undefined ? [] : [own]), ...others.map(({ id }) => id)];
    if (ids.length === 0) return;
    const request = cut(requestOf());
    for (const checkId of ids) {
      const id = hash('sha256', JSON.stringify([checkId, ...Object.values(request)]));
      const before = this.#unwritten.get(id);
      if (!before && this.#unwritten.size >= maxUnwritten) continue;
      this.#unwritten.set(id, { checkId, request, count: (before?.count ?? 0) + 1, at: this.now() });
    }
  }

  /** Writes what was noted, and reads which names are awaited. */
  readonly flush = inTurn(() => this.#flush());

  async #flush(): Promise<void> {
    const noted = [...this.#unwritten];
    this.#unwritten.clear();
    const now = this.now();
    const awaited = new Map<string, { id: string; reference: string }[]>();
    const rows = await this.#database.selectCached<
      Pick<ClientCheck, 'id' | 'accountId' | 'reference' | 'expiresAt'> & { kind: string; denied: string }
    >(
      `SELECT id, account_id AS accountId, kind, reference, denied, expires_at AS expiresAt FROM client_checks
       WHERE expires_at > ? AND denied IS NOT NULL LIMIT ${maxAwaited}`,
      // The same value for a minute, so that the rows come from memory.
      [now - (now % 60_000)],
      { lag },
    );
    for (const { id, accountId, kind, reference, denied, expiresAt } of rows) {
      if (expiresAt <= now) continue;
      for (const name of JSON.parse(denied) as string[]) {
        const key = keyOf(accountId, kind, name);
        awaited.set(key, [...(awaited.get(key) ?? []), { id, reference }]);
      }
    }
    this.#awaited = awaited;
    if (noted.length > 0) await this.#write(noted, now);
  }

  async #write(
    noted: [string, { checkId: string; request: CheckedRequest; count: number; at: number }][],
    now: number,
  ) {
    const ids = [...new Set(noted.map(([, { checkId }]) => checkId))].sort();
    const known = await this.#database.select<{ id: string }>(
      `SELECT id FROM client_checks WHERE id IN (${placeholders(ids)}) AND expires_at > ?`,
      [...ids, now],
    );
    const open = new Set(known.map(({ id }) => id));
    const rows = noted
      .filter(([, { checkId }]) => open.has(checkId))
      .map(([id, { checkId, request, count, at }]) => ({
        check_id: checkId,
        id,
        request: JSON.stringify(request),
        count,
        first_at: at,
        last_at: at,
      }));
    if (rows.length === 0) return;
    await this.#database.transaction(
      async (tx) => {
        for (const checkId of [...open].sort()) {
          const sql = 'SELECT id FROM client_check_requests WHERE check_id = ?';
          const before = (await tx.select<{ id: string }>(sql, [checkId])).map(({ id }) => id);
          const fresh = rows.filter((each) => each.check_id === checkId && !before.includes(each.id));
          const kept = new Set([
            ...before,
            ...fresh.slice(0, Math.max(0, maxRequests - before.length)).map(({ id }) => id),
          ]);
          const some = rows.filter((each) => each.check_id === checkId && kept.has(each.id));
          const update = 'count = client_check_requests.count + new.count, last_at = new.last_at';
          if (some.length > 0) await tx.upsert('client_check_requests', ['check_id', 'id'], some, update);
        }
      },
      { fleeting: true },
    );
  }

  /** Deletes old checks with their requests, up to 200. */
  async deleteOld(): Promise<void> {
    const sql = 'SELECT id FROM client_checks WHERE expires_at <= ? LIMIT 200';
    const ids = (await this.#database.select<{ id: string }>(sql, [this.now() - keepFor])).map(({ id }) => id);
    if (ids.length === 0) return;
    await this.#database.transaction(async (tx) => {
      await tx.run(`DELETE FROM client_check_requests WHERE check_id IN (${placeholders(ids)})`, ids);
      await tx.run(`DELETE FROM client_checks WHERE id IN (${placeholders(ids)})`, ids);
    });
  }
}

function keyOf(accountId: number, kind: string, name: string): string {
  return `${accountId} ${kind} ${name.toLowerCase()}`;
}

function cut(request: CheckedRequest): CheckedRequest {
  const entries = Object.entries(request).map(([key, value]) => [
    key,
    typeof value === 'string' ? value.slice(0, maxText) : value,
  ]);
  return Object.fromEntries(entries) as CheckedRequest;
}

/**
 * Whether a request shows that the client uses this server. For the name of a check, it is answered with 404, after the checks
 * of the credential, of its scope and of its names. For a name that a policy refuses, it has a valid credential.
 */
function isUse({ accountId, denied }: ClientCheck, { status, accountId: by }: CheckedRequest): boolean {
  return by === accountId && (denied ? status !== 401 : status === 404);
}

/** Whether a request got what a policy should refuse. Lists of a name, also those whose path has the reference, are sent. */
function isServed({ denied, reference }: ClientCheck, { status, path }: CheckedRequest): boolean {
  return denied !== null && status < 400 && isContentPath(path.toLowerCase(), reference.toLowerCase());
}

/** Whether a path ends with `manifests/REFERENCE` or `REFERENCE/ID.REFERENCE.nupkg`. Versions, tags and digests need no escapes. */
function isContentPath(path: string, reference: string): boolean {
  const [folder, file = ''] = path.split('?', 1)[0]!.replaceAll('%3a', ':').replaceAll('%2b', '+').split('/').slice(-2);
  return folder === 'manifests' ? file === reference : folder === reference && file.endsWith('.nupkg');
}

/** How a check stands at the time `now`. */
export function checkState(check: ClientCheck, requests: readonly CheckedRequest[], now: number): CheckState {
  if (requests.some((each) => isServed(check, each))) return 'served';
  if (requests.some((each) => isUse(check, each))) return 'used';
  if (now < check.expiresAt) return requests.some(isRefusal) ? 'refused' : 'waiting';
  return requests.length > 0 ? 'refused' : 'unused';
}

/** Clients ask without their credential first, to learn that they need one. */
function isRefusal({ status, hasCredential, accountId }: CheckedRequest): boolean {
  return accountId !== null || (status === 401 && hasCredential);
}
