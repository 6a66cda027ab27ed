import { createHmac, hash, randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import type { Accounts } from '../accounts/accounts.ts';
import type { TokenPrincipal } from '../accounts/principal.ts';
import type { Tokens } from '../accounts/tokens.ts';
import { Cache } from '../cache/cache.ts';
import type { Database } from '../database/database.ts';
import type { ForeignCredential, ForeignVerifier } from '../http/authenticate.ts';
import { limitAttempt, limitIdentity } from '../http/limit.ts';
import type { Limits } from '../limits/limits.ts';
import { runForSystem } from '../runtime/caller.ts';
import { DomainError } from '../runtime/errors.ts';
import { Recent } from '../runtime/recent.ts';
import { Semaphore } from '../runtime/semaphore.ts';
import { Refused } from '../upstream/failures.ts';
import { UpstreamError } from '../upstream/upstream-error.ts';
import type { AdoptedRight } from './adopted-rights.ts';
import type { Inventory } from './inventory.ts';
import type { Predecessor } from './predecessor.ts';
import { directoryName, Tries } from './tries.ts';

interface AdoptedParts {
  database: Database;
  accounts: Accounts;
  tokens: Tokens;
  limits: Limits;
  inventory: Inventory;
  now: () => number;
}

interface AdoptedRow {
  predecessor: string;
  kind: AdoptedRight['kind'];
  name: string;
  /** As `textOf` tells it. */
  scopes: string;
  /** Of a user: salt and scrypt of the password, base64. Null for a key, which is in the file of rights. */
  secret: string | null;
  token_id: string;
  /** When the predecessor accepted it last; milliseconds since 1970 UTC. */
  checked_at: number;
}

const day = 86_400_000;
/** Milliseconds that a credential is accepted while the predecessor, which has to be asked again, does not answer. */
const graceOfUnreachable = 7 * day;
/** Milliseconds that an accepted, and a refused one is remembered in this process; of so many. */
const acceptedFor = 5 * 60_000;
const refusedFor = 10 * 60_000;
const maxRemembered = 10_000;
/** Questions to one predecessor at the same time, each for another user, and those that wait. */
const maxAsking = 4;
const maxWaiting = 200;
const maxSecret = 1024;
/** Milliseconds after which a predecessor is tried again with a credential that nobody has. */
const openFor = 60 * 60_000;
/** What a password costs, by OWASP's "Password Storage Cheat Sheet": 32 MiB of memory, and time of a thread. */
const cost = { N: 2 ** 15, r: 8, p: 3, maxmem: 64 * 2 ** 20 };
/** Passwords that are compared at the same time: the threads also read and write files. */
const comparisons = new Semaphore({ max: 1 });
const scryptOf = promisify<string, Buffer, number, object, Buffer>(scrypt);

/**
 * The credentials of old servers that clients still send. A user and password are tried at the predecessor once, and give a token of
 * its account, which ends with the takeover or when the predecessor no longer accepts the password. Keys are in a file.
 */
export class AdoptedCredentials implements ForeignVerifier {
  readonly #parts: AdoptedParts;
  readonly #predecessors: readonly Predecessor[];
  readonly #key = randomBytes(32);
  readonly #accepted: Recent<string, string>;
  readonly #refused: Recent<string, true>;
  readonly #looks = new Map<string, Promise<string | undefined>>();
  readonly #tries: Tries;
  readonly #asking = new Semaphore({ max: maxAsking, maxOfGroup: () => 1, maxWaiting });
  /** Whether a predecessor accepts a credential that nobody has, so that none proves anything. */
  readonly #acceptsAny: Recent<string, boolean>;
  /** The keys of the files, by predecessor and `#digest`. */
  readonly #keys = new Map<string, AdoptedRight>();

  constructor(predecessors: readonly Predecessor[], parts: AdoptedParts) {
    this.#parts = parts;
    this.#tries = new Tries(parts.database, parts.now);
    const clock = { perf: { now: parts.now }, ttlResolution: 0 };
    this.#accepted = new Recent(maxRemembered, { ...clock, ttl: acceptedFor });
    this.#refused = new Recent(maxRemembered, { ...clock, ttl: refusedFor });
    this.#acceptsAny = new Recent(100, { ...clock, ttl: openFor });
    this.#predecessors = predecessors.filter(({ config }) => config.adoptCredentials !== false);
    for (const { name, rights } of this.#predecessors)
      for (const right of rights) if (right.kind === 'key') this.#keys.set(this.#digest([name, right.key]), right);
  }

  /**
   * The principal of a credential that a predecessor accepts. Throws `UpstreamUnavailable` or `UpstreamTimeout` if none accepts it and
   * one cannot be asked, and `TooManyRequests` for too many tries.
   */
  async verifyForeign({ user, secret }: ForeignCredential): Promise<TokenPrincipal | undefined> {
    if (this.#predecessors.length === 0 || !isForeign(user, secret)) return undefined;
    let failure: unknown;
    for (const predecessor of this.#predecessors) {
      const takeover = await this.#parts.inventory.takeover(predecessor.name);
      if (takeover && takeover.finished_at !== null) continue;
      try {
        const tokenId = await this.#tokenOf(predecessor, user, secret);
        const principal = tokenId === undefined ? undefined : await this.#parts.tokens.verifiedById(tokenId);
        if (principal) return principal;
      } catch (error) {
        failure ??= error;
      }
    }
    if (failure !== undefined) throw failure;
    return undefined;
  }

  /** Ends what the credentials of a predecessor give, and forgets them. */
  async end(predecessor: string): Promise<void> {
    const sql = 'SELECT * FROM adopted_credentials WHERE predecessor = ?';
    for (const row of await this.#parts.database.select<AdoptedRow>(sql, [predecessor])) await this.#end(row);
  }

  /** How many users and keys of a predecessor have a token. */
  async count(predecessor: string): Promise<number> {
    const sql = 'SELECT COUNT(*) AS n FROM adopted_credentials WHERE predecessor = ?';
    return (await this.#parts.database.get<{ n: number }>(sql, [predecessor]))!.n;
  }

  /** Several requests with the same credential look once. */
  async #tokenOf(predecessor: Predecessor, user: string | undefined, secret: string): Promise<string | undefined> {
    const id = this.#digest([predecessor.name, user ?? null, secret]);
    for (;;) {
      const known = this.#accepted.get(id);
      if (known !== undefined) return known;
      if (this.#refused.has(id)) return undefined;
      const others = this.#looks.get(id);
      const look = others ?? this.#look(predecessor, user, secret).finally(() => this.#looks.delete(id));
      this.#looks.set(id, look);
      try {
        const found = await look;
        if (found === undefined) this.#refused.set(id, true);
        else this.#accepted.set(id, found);
        return found;
      } catch (error) {
        // The client whose request looked has left.
        if (others && error instanceof DomainError && error.name === 'Aborted') continue;
        throw error;
      }
    }
  }

  async #look(predecessor: Predecessor, user: string | undefined, secret: string): Promise<string | undefined> {
    const key = this.#keys.get(this.#digest([predecessor.name, secret]));
    if (key) return this.#adopt(predecessor, key, null);
    if (user === undefined) return undefined;
    return limitAttempt(
      this.#parts.limits,
      () => this.#lookForUser(predecessor, user, secret),
      (tokenId) => tokenId !== undefined,
    );
  }

  /** It counts as a failed sign-in of the address until it has found a token. */
  async #lookForUser(predecessor: Predecessor, user: string, secret: string): Promise<string | undefined> {
    const row = await this.#row(predecessor.name, 'user', user);
    const isSame = row?.secret != null && (await isSecret(row.secret, secret));
    const age = this.#parts.now() - (row?.checked_at ?? 0);
    const right = rightOf(predecessor, user);
    if (!right) return undefined;
    if (row && isSame && age < day && row.scopes === textOf(right)) return row.token_id;
    try {
      if (await this.#isAccepted(predecessor, user, secret, isSame))
        return await this.#adopt(predecessor, right, row && isSame ? row.secret : await secretOf(secret));
    } catch (error) {
      if (row && isSame && age < graceOfUnreachable && error instanceof UpstreamError) return row.token_id;
      throw error;
    }
    // One that was revoked keeps its row: the user gets no other token with the next password.
    if (row && isSame && (await this.#parts.tokens.principalOf(row.token_id))) await this.#end(row);
    return undefined;
  }

  /**
   * Whether a predecessor accepts a password. It counts as a failed sign-in of the predecessor until it has. `isKnown` says that the
   * predecessor accepted it before: then it also counts no more if the predecessor does not answer.
   */
  async #isAccepted(predecessor: Predecessor, user: string, secret: string, isKnown: boolean): Promise<boolean> {
    if (predecessor.remote.pause && predecessor.remote.pause.until > this.#parts.now())
      throw new UpstreamError('UpstreamUnavailable', `The predecessor ${predecessor.name} does not answer.`, {
        upstream: predecessor.name,
        retryAfter: 10,
      });
    const work = async (): Promise<boolean | UpstreamError> => {
      const release = await this.#asking.take(predecessor.name, { group: directoryName(user) });
      if (!release)
        throw new DomainError('TooManyRequests', 'Too many sign-ins are being checked.', { retryAfter: 10 });
      try {
        if (await this.#takesAny(predecessor)) return false;
        const ask = () => asked(predecessor, user, secret, this.#parts.now);
        return await this.#tries.run(predecessor.name, user, ask, isKnown);
      } catch (error) {
        if (isKnown && error instanceof UpstreamError) return error;
        throw error;
      } finally {
        release();
      }
    };
    const key = `predecessor ${predecessor.name}`;
    const found = await limitIdentity(this.#parts.limits, key, work, (result) => result !== false);
    if (found instanceof UpstreamError) throw found;
    return found;
  }

  /** A server that lets everybody read accepts each password, which then proves nothing. */
  async #takesAny(predecessor: Predecessor): Promise<boolean> {
    const { name } = predecessor;
    const known = this.#acceptsAny.get(name);
    if (known !== undefined) return known;
    const [user, password] = [`check-${randomBytes(8).toString('hex')}`, randomBytes(16).toString('hex')];
    const any = await asked(predecessor, user, password, this.#parts.now);
    this.#acceptsAny.set(name, any);
    if (any) predecessor.warn('it lets everybody read, so no credential of a client can be checked there');
    return any;
  }

  /** Gives a credential its token; resolves to the ID of the token. One whose token was revoked gets no other. */
  async #adopt(predecessor: Predecessor, right: AdoptedRight, secret: string | null): Promise<string | undefined> {
    const { database, accounts, tokens, now } = this.#parts;
    const { name, config } = predecessor;
    const scopes = textOf(right);
    let row = await this.#row(name, right.kind, right.name);
    if (row && row.scopes !== scopes) {
      if (!(await tokens.principalOf(row.token_id))) return row.token_id;
      await this.#end(row);
      row = undefined;
    }
    if (row) {
      const sql =
        'UPDATE adopted_credentials SET secret = ?, checked_at = ? WHERE predecessor = ? AND kind = ? AND name = ?';
      await database.transaction((tx) => tx.run(sql, [secret, now(), name, right.kind, right.name]));
      return row.token_id;
    }
    const account = await accounts.named(config.account);
    if (!account || (await this.#isRevoked(name, right))) return undefined;
    const what = right.kind === 'user' ? `user ${right.name}` : `key ${right.name}`;
    const { token } = await runForSystem('takeover', () =>
      tokens.create(account.id, {
        name: `${what} of ${name}`.slice(0, 200),
        scopes: right.scopes,
        patterns: right.patterns,
        details: { adopted_from: name },
      }),
    );
    const added = { predecessor: name, kind: right.kind, name: right.name, scopes, secret };
    await database.transaction((tx) =>
      tx.insertNew('adopted_credentials', [{ ...added, token_id: token.id, checked_at: now() }]),
    );
    const kept = await this.#row(name, right.kind, right.name);
    // Another instance was first.
    if (kept && kept.token_id !== token.id) await runForSystem('takeover', () => tokens.revoke(account.id, token.id));
    return kept?.token_id;
  }

  /** Whether the token of the same user, as directories compare names, was revoked. */
  async #isRevoked(predecessor: string, { kind, name }: AdoptedRight): Promise<boolean> {
    if (kind !== 'user') return false;
    const { database, tokens } = this.#parts;
    const sql = "SELECT name, token_id FROM adopted_credentials WHERE predecessor = ? AND kind = 'user'";
    const rows = await database.select<Pick<AdoptedRow, 'name' | 'token_id'>>(sql, [predecessor]);
    for (const row of rows.filter((each) => directoryName(each.name) === directoryName(name)))
      if (!(await tokens.principalOf(row.token_id))) return true;
    return false;
  }

  async #end(row: AdoptedRow): Promise<void> {
    const { database, tokens } = this.#parts;
    const principal = await tokens.principalOf(row.token_id);
    if (principal) await runForSystem('takeover', () => tokens.revoke(principal.accountId, row.token_id));
    const sql = 'DELETE FROM adopted_credentials WHERE predecessor = ? AND kind = ? AND name = ?';
    await database.transaction((tx) => tx.run(sql, [row.predecessor, row.kind, row.name]));
  }

  #row(predecessor: string, kind: AdoptedRight['kind'], name: string): Promise<AdoptedRow | undefined> {
    const sql = 'SELECT * FROM adopted_credentials WHERE predecessor = ? AND kind = ? AND name = ?';
    return this.#parts.database.get<AdoptedRow>(sql, [predecessor, kind, name]);
  }

  /** Not a plain hash: old passwords are guessable. The key is of this process. */
  #digest(parts: readonly (string | null)[]): string {
    return createHmac('sha256', this.#key).update(JSON.stringify(parts)).digest('base64');
  }
}

/** Whether it can be a credential of another server: tokens of this one and of identity providers are never sent on. */
function isForeign(user: string | undefined, secret: string): boolean {
  if (secret === '' || secret.length > maxSecret || (user !== undefined && (user === '' || user.length > 200)))
    return false;
  return !secret.startsWith('ent_') && !/^eyJ[\w-]*\.[\w-]+\.[\w-]*$/.test(secret);
}

/**
 * What a user may do: what the line of this user says; else to read, within what the line says of the name in other letter case, which most
 * servers take as the same user. Undefined for nothing.
 */
function rightOf({ rights }: Predecessor, user: string): AdoptedRight | undefined {
  const users = rights.filter(({ kind }) => kind === 'user');
  const own = users.find(({ name }) => name === user);
  if (own) return own;
  const like = users.find(({ name }) => directoryName(name) === directoryName(user));
  if (like && !like.scopes.includes('read')) return undefined;
  return { kind: 'user', name: user, scopes: ['read'], patterns: like?.patterns ?? null };
}

/** The scopes and the names of a right, to see whether it has changed. */
function textOf({ scopes, patterns }: AdoptedRight): string {
  const names = patterns && hash('sha256', JSON.stringify(patterns)).slice(0, 32);
  return [scopes.join(), ...(names === null ? [] : [names])].join(' ');
}

/** Whether the index of a feed, or `/v2/` of a registry, can be read with a password. Throws `UpstreamError` if it does not answer. */
async function asked(
  predecessor: Predecessor,
  username: string,
  password: string,
  now: () => number,
): Promise<boolean> {
  // In memory of its own: what a registry gives for a password is not kept.
  const cache = await Cache.open(undefined, now, () => undefined);
  const remote = predecessor.asUser({ username, password }, cache);
  try {
    const { status, body } = await remote.send({ url: predecessor.signInAddress, subject: 'a credential of a client' });
    body.destroy();
    return status === 200;
  } catch (error) {
    if (error instanceof UpstreamError && error.cause instanceof Refused && error.cause.verdict === 'answered')
      return false;
    throw error;
  } finally {
    remote.close();
  }
}

async function secretOf(secret: string, salt = randomBytes(16)): Promise<string> {
  const digest = await comparisons.run(() => scryptOf(secret, salt, 32, cost), 'scrypt');
  return `${salt.toString('base64')} ${digest.toString('base64')}`;
}

async function isSecret(stored: string, secret: string): Promise<boolean> {
  const salt = Buffer.from(stored.split(' ')[0]!, 'base64');
  const [one, other] = [Buffer.from(stored), Buffer.from(await secretOf(secret, salt))];
  return one.length === other.length && timingSafeEqual(one, other);
}
