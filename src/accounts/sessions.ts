import { hash, randomBytes, randomUUID } from 'node:crypto';
import { placeholders, type Database } from '../database/database.ts';
import { DomainError } from '../runtime/errors.ts';
import { recordEvent } from '../events/record.ts';
import { withPauses } from '../runtime/event-loop.ts';
import type { CookieKey } from './cookie-key.ts';
import { personIdOf, personOfRow, type People, type Person } from './people.ts';
import type { PersonPrincipal, Scope, TokenPrincipal } from './principal.ts';
import { RefusedForms } from './refused-forms.ts';
import type { Tokens } from './tokens.ts';

export interface Session {
  id: string;
  /** The token that the visitor signed in with; null for a person. */
  tokenId: string | null;
  tokenName: string | null;
  /** The person who signed in, and the names of the accounts whose administrators see the session; null for a token. */
  person: { id: string; name: string; accounts: readonly string[] } | null;
  /** What it may do; for a person in any of the accounts. */
  scopes: ReadonlySet<Scope>;
  /** `User-Agent` of the browser. */
  agent: string;
  address: string | null;
  createdAt: number;
  /** Exact to a minute. */
  lastUsedAt: number;
}

interface SessionRow {
  id: string;
  hash: string;
  account_id: number;
  token_id: string | null;
  person_id: string | null;
  /** A `Person` as JSON. */
  person: string | null;
  agent: string;
  address: string | null;
  created_at: number;
  used_at: number;
}

/** With its person as of the last sign-in in any browser; null without one. */
type SessionOfPerson = SessionRow & { present: string | null; disabled: string | null; signed_in_at: number | null };
/** With its account, and the scopes and the name of its token; null without one. */
type SessionWithToken = SessionOfPerson & { account_name: string; scopes: string | null; token_name: string | null };

const ofPeople = 'LEFT JOIN people ON people.id = sessions.person_id';
const presentPerson = 'people.person AS present, people.disabled, people.signed_in_at';
const withPerson = `SELECT sessions.*, ${presentPerson} FROM sessions ${ofPeople}`;
const withToken = `SELECT sessions.*, ${presentPerson}, accounts.name AS account_name, tokens.scopes, tokens.name AS token_name
  FROM sessions JOIN accounts ON accounts.id = sessions.account_id ${ofPeople} LEFT JOIN tokens ON tokens.id = sessions.token_id`;

/** Milliseconds after which a session ends: without a request, and in any case. */
interface SessionTimes {
  idle: number;
  absolute: number;
}

/** Who begins a session. */
export type SessionOwner = Pick<TokenPrincipal, 'accountId' | 'tokenId'> | { accountId: number; person: Person };

/** Bytes of the value of a cookie. */
const randomLength = 24;
const signatureLength = 8;
/** Sessions that a token or a person can have. The oldest ends when there are more. */
const maxSessions = 50;
/** The time of the last use is written once a minute; milliseconds. */
const useInterval = 60_000;

/**
 * Sessions of the console. The cookie has a random value of 192 bits and a signature of 64 bits, which is checked before the
 * database is asked; the database has the SHA-256 of both only. A session of a
 * token can do what the token can, and ends with it. A session of a person can do what the person can since the last sign-in in any browser.
 */
export class Sessions {
  readonly #database: Database;
  readonly #tokens: Tokens;
  readonly #people: People;
  readonly #times: SessionTimes;
  readonly #now: () => number;
  readonly #cookies: CookieKey;
  /** What was refused in the sessions. */
  readonly refusedForms: RefusedForms;

  constructor(
    database: Database,
    { tokens, people, cookies }: { tokens: Tokens; people: People; cookies: CookieKey },
    times: SessionTimes,
    now: () => number,
  ) {
    this.#database = database;
    this.#tokens = tokens;
    this.#people = people;
    this.#cookies = cookies;
    this.#times = times;
    this.#now = now;
    this.refusedForms = new RefusedForms(database, now);
  }

  /** Begins a session; resolves to the value for the cookie, which only this result contains. */
  async begin(owner: SessionOwner, { agent, address }: { agent: string; address: string | null }): Promise<string> {
    const value = await this.#newValue();
    const now = this.#now();
    const isPerson = 'person' in owner;
    const row: SessionRow = {
      id: randomUUID(),
      hash: hash('sha256', value),
      account_id: owner.accountId,
      token_id: isPerson ? null : owner.tokenId,
      person_id: isPerson ? personIdOf(owner.person) : null,
      person: isPerson ? JSON.stringify(owner.person) : null,
      agent: agent.slice(0, 255),
      address,
      created_at: now,
      used_at: now,
    };
    await this.#database.transaction(
      async (tx) => {
        const condition = isPerson ? 'person_id = ?' : 'account_id = ? AND token_id = ?';
        const others = await tx.select<{ id: string }>(
          `SELECT id FROM sessions WHERE ${condition} ORDER BY created_at DESC, id LIMIT 1000`,
          isPerson ? [row.person_id] : [owner.accountId, owner.tokenId],
        );
        for (const { id } of others.slice(maxSessions - 1)) await tx.run('DELETE FROM sessions WHERE id = ?', [id]);
        await tx.insert('sessions', { ...row });
        if (isPerson) await this.#people.use(tx, row.person_id!, owner.accountId);
      },
      { uncached: true },
    );
    return value;
  }

  /** Whether a server of this installation made the value of a cookie. Those of older versions are not signed. */
  isSigned(value: string): Promise<boolean> {
    const bytes = Buffer.from(value, 'base64url');
    const random = bytes.subarray(0, randomLength).toString('base64url');
    return this.#cookies.isSigned('session', random, bytes.subarray(randomLength), signatureLength);
  }

  async #newValue(): Promise<string> {
    const random = randomBytes(randomLength);
    const signature = await this.#cookies.sign('session', random.toString('base64url'));
    return Buffer.concat([random, signature.subarray(0, signatureLength)]).toString('base64url');
  }

  /**
   * The ID of the session of a cookie, and what it may do; undefined if it has ended, its token is revoked or expired, or no rule gives
   * its person anything in its account. With `isUse`, it is not idle from now on.
   */
  async find(
    value: string,
    { isUse = true }: { isUse?: boolean } = {},
  ): Promise<{ id: string; principal: TokenPrincipal | PersonPrincipal } | undefined> {
    const sql = `${withPerson} WHERE hash = ?`;
    const row = await this.#database.get<SessionOfPerson>(sql, [hash('sha256', value)]);
    if (!row || !this.#isOpen(row)) return undefined;
    const principal = await this.#principalOf(row);
    if (!principal) return undefined;
    const now = this.#now();
    if (isUse && now - row.used_at >= useInterval) {
      const used = 'UPDATE sessions SET used_at = ? WHERE id = ?';
      await this.#database.transaction((tx) => tx.run(used, [now, row.id]), { uncached: true });
    }
    return { id: row.id, principal };
  }

  /** Uses another account in the session of a person from now on. Throws `NotFound` for one that no rule gives. */
  async useAccount(id: string, account: string): Promise<void> {
    const row = await this.#database.get<SessionOfPerson>(`${withPerson} WHERE sessions.id = ?`, [id]);
    const person = row && personIn(row);
    const accountId = person && (await this.#people.accountOf(person, account));
    if (accountId === undefined) {
      throw new DomainError('NotFound', 'There is no account with this name, or you may not use it.');
    }
    const sql = 'UPDATE sessions SET account_id = ? WHERE id = ?';
    await this.#database.transaction(
      async (tx) => {
        await tx.run(sql, [accountId, id]);
        await this.#people.use(tx, row!.person_id!, accountId);
      },
      { uncached: true },
    );
  }

  async #principalOf(row: SessionOfPerson): Promise<TokenPrincipal | PersonPrincipal | undefined> {
    const person = personIn(row);
    if (person) return this.#people.principalOf(person, row.account_id);
    return row.token_id === null ? undefined : this.#tokens.principalOf(row.token_id);
  }

  /**
   * The open sessions of the account's tokens and of all people, the latest first, up to `limit` and before `cursor`
   * (`created_at`, `id`). A person changes the account of a session at any time, so the administrators of each account that
   * rules give the person see it, and those of the account that it uses. With `tokenId`, those of one token.
   */
  async list(
    accountId: number,
    limit: number,
    cursor?: readonly [number, string],
    { tokenId, isOldest = false }: { tokenId?: string | undefined; isOldest?: boolean } = {},
  ): Promise<Session[]> {
    const [createdAt, id] = cursor ?? [isOldest ? 0 : Number.MAX_SAFE_INTEGER, ''];
    const [sign, order] = isOldest ? ['>', 'ASC'] : ['<', 'DESC'];
    const { idle, absolute } = this.#times;
    const rows = await this.#database.select<SessionWithToken>(
      `${withToken} WHERE ${tokenId === undefined ? "(sessions.account_id = ? OR COALESCE(person_id, '') <> '')" : 'sessions.account_id = ? AND token_id = ?'}
       AND (person_id IS NULL OR people.signed_in_at > ?) AND used_at > ? AND sessions.created_at > ?
       AND sessions.created_at ${sign}= ? AND (sessions.created_at <> ? OR sessions.id ${sign} ?)
       ORDER BY sessions.created_at ${order}, sessions.id ${order} LIMIT ?`,
      [
        accountId,
        ...(tokenId === undefined ? [] : [tokenId]),
        this.#now() - this.#people.tokenTimes.idle,
        this.#now() - idle,
        this.#now() - absolute,
        createdAt,
        createdAt,
        id,
        limit,
      ],
    );
    return this.#toSessions(rows);
  }

  /** One session of those that `list` shows; undefined if it has ended. */
  async get(accountId: number, id: string): Promise<Session | undefined> {
    const sql = `${withToken} WHERE sessions.id = ? AND (sessions.account_id = ? OR person_id IS NOT NULL)`;
    const row = await this.#database.get<SessionWithToken>(sql, [id, accountId]);
    return row && this.#isOpen(row) ? (await this.#toSessions([row]))[0] : undefined;
  }

  /** Ends a session at once on all instances, if it has not ended. The event is one of the account. */
  async end(accountId: number, id: string): Promise<void> {
    const event = { type: 'session.ended', accountId, subject: { kind: 'session', name: id } } as const;
    await this.#database.transaction(
      async (tx) => {
        const ended = await tx.run('DELETE FROM sessions WHERE id = ?', [id]);
        if (ended > 0) await recordEvent(tx, event, this.#now());
      },
      { uncached: true },
    );
  }

  /** Deletes the rows of up to 200 sessions that have ended, and of refused forms that are kept no longer. */
  async deleteEnded(): Promise<void> {
    await this.refusedForms.deleteOld();
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

  async #toSessions(rows: readonly SessionWithToken[]): Promise<Session[]> {
    const people: (Person | undefined)[] = [];
    // A person can have hundreds of groups.
    for await (const row of withPauses(rows)) people.push(personIn(row));
    const accountsOf = await this.#people.accountsOfAll(people.filter((each) => each !== undefined));
    const sessions: Session[] = [];
    for await (const [at, row] of withPauses(rows.entries())) {
      const person = people[at];
      sessions.push({
        id: row.id,
        tokenId: row.token_id,
        tokenName: row.token_name,
        person: person
          ? { id: row.person_id!, name: person.name, accounts: accountsOf(person, [row.account_name]) }
          : null,
        scopes: person ? this.#people.ruledScopesOf(person) : new Set((row.scopes?.split(',') ?? []) as Scope[]),
        agent: row.agent,
        address: row.address,
        createdAt: row.created_at,
        lastUsedAt: row.used_at,
      });
    }
    return sessions;
  }

  /** One of a person ends also when the person has not signed in for the time that ends personal tokens. */
  #isOpen({ created_at: createdAt, used_at: usedAt, ...row }: SessionOfPerson): boolean {
    const now = this.#now();
    if (row.person_id !== null && !this.#people.isCurrent(row.signed_in_at ?? 0)) return false;
    return now - usedAt < this.#times.idle && now - createdAt < this.#times.absolute;
  }
}

/** The person of a session, with what the provider said at the last sign-in in any browser. */
function personIn({ person, present, disabled }: SessionOfPerson): Person | undefined {
  return person === null ? undefined : personOfRow({ person: present ?? person, disabled });
}
