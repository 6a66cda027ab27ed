import { hash } from 'node:crypto';
import type { Accounts } from '../accounts/accounts.ts';
import { parseScopes, type Scope } from '../accounts/principal.ts';
import type { Tokens } from '../accounts/tokens.ts';
import { placeholders, type Database } from '../database/database.ts';
import { DomainError } from '../runtime/errors.ts';
import { withPauses } from '../runtime/event-loop.ts';
import { jobOf } from './job.ts';
import { isForProject, mismatches, type Mismatch } from './claims.ts';
import type { Claims, IdentityTokens, VerifiedToken } from './identity-token.ts';
import { tokenRefused } from './refusal.ts';
import type { TrustedIssuer } from './issuer-keys.ts';
import { trusts, type Publisher } from './publisher.ts';
import type { Publishers } from './publishers.ts';

/** Milliseconds that the token of an exchange is valid. */
export const validFor = 15 * 60_000;
/** Milliseconds that the record of a used identity token is kept longer, because clocks differ and are set back. */
const keptLonger = 60 * 60_000;
/** Used identity tokens that are deleted in one transaction, and transactions of one run. */
const batch = 500;
const batchesAtOnce = 20;
/** Claims and characters of a value that a message shows. */
const maxShown = 5;
const maxShownLength = 100;

interface ExchangeParts {
  database: Database;
  accounts: Accounts;
  tokens: Tokens;
  publishers: Publishers;
  /** Loaded with the first token, because most installations exchange none. */
  identityTokens: () => Promise<IdentityTokens>;
  now: () => number;
}

interface ExchangeRequest {
  /** The identity token. */
  token: string;
  /** The account whose rules apply. */
  account: string | ((verified: VerifiedToken) => string);
  /** Fewer scopes than those of the rule; all by default. */
  scopes?: readonly string[] | undefined;
  /** Runs the work that a verified identity may repeat: the comparison with the rules. May throw `TooManyRequests`. */
  attempt?: <T>(identity: string, work: () => Promise<T>) => Promise<T>;
}

interface Exchanged {
  /** The value of the new token. */
  value: string;
  /** Milliseconds since 1970. */
  expiresAt: number;
  scopes: Scope[];
}

/** How a rule compares with an identity token. */
interface Compared {
  publisher: Publisher;
  /** Claims that do not match; null if the rule is for another issuer. */
  missed: Mismatch[] | null;
}

export interface Explanation {
  /** The name of the trusted issuer; null if the token was not verified. */
  issuer: string | null;
  /** Why the token is not accepted; null if it is. */
  problem: string | null;
  /** The claims as the token has them, also if it was not verified. */
  claims: Claims;
  rules: Compared[];
}

/** Exchanges identity tokens for short-lived tokens, by the rules of accounts. */
export class TokenExchange {
  readonly #parts: ExchangeParts;

  constructor(parts: ExchangeParts) {
    this.#parts = parts;
  }

  /**
   * Verifies an identity token, and creates a token by the first rule that matches and has the scopes. Rejects with
   * `Unauthorized` if the identity token or its claims are not accepted, or it was exchanged before; with `ScopeMissing` if no
   * rule that matches has the scopes; and with `UpstreamUnavailable` if the keys of the issuer cannot be fetched.
   */
  async exchange({ attempt = (_identity, work) => work(), ...request }: ExchangeRequest): Promise<Exchanged> {
    const verified = await (await this.#parts.identityTokens()).verify(request.token);
    return attempt(identityKey(verified), () => this.#exchange(verified, request));
  }

  async #exchange(verified: VerifiedToken, { account, scopes }: ExchangeRequest): Promise<Exchanged> {
    const { accounts, tokens, publishers, now } = this.#parts;
    const { id: accountId } = (await accounts.named(typeof account === 'string' ? account : account(verified))) ?? {};
    const rules = accountId === undefined ? [] : await publishers.list(accountId);
    const compared = await compare(rules, verified.issuer, verified.claims);
    const publisher = chosen(compared, verified, scopes);
    const given = scopes?.length ? parseScopes(scopes) : publisher.scopes;
    const expiresAt = now() + validFor;
    const { id: publisherId, name, patterns } = publisher;
    const { value } = await tokens.create(
      publisher.accountId,
      {
        name,
        scopes: given,
        patterns,
        expiresAt,
        publisherId,
        createdBy: { kind: 'rule', id: publisherId, name },
        details: { identity: identityOf(verified) },
        job: jobOf(publisher.accountId, verified),
      },
      async (tx) => {
        const row = { id: verified.useId, expires_at: verified.acceptedUntil + keptLonger };
        if ((await tx.insertNew('used_identity_tokens', [row])) === 0) {
          throw tokenRefused('This identity token was exchanged before. Request a new one from its issuer.');
        }
        if (!(await publishers.isUnchanged(tx, publisher))) throw noMatch();
      },
    );
    return { value, expiresAt, scopes: given };
  }

  /** Compares an identity token with the rules of an account, without an exchange. Rejects with `Invalid` for no token. */
  async explain(accountId: number, token: string): Promise<Explanation> {
    const { publishers } = this.#parts;
    const identityTokens = await this.#parts.identityTokens();
    const claims = claimsIn(identityTokens, token);
    const rules = await publishers.list(accountId);
    try {
      const { issuer } = await identityTokens.verify(token, true);
      return { issuer: issuer.name, problem: null, claims, rules: await compare(rules, issuer, claims) };
    } catch (error) {
      if (!(error instanceof DomainError)) throw error;
      if (error.name !== 'Unauthorized' && error.name !== 'UpstreamUnavailable') throw error;
      const claimed = publishers.issuers.find(({ issuer }) => issuer === claims['iss']);
      return { issuer: null, problem: error.message, claims, rules: await compare(rules, claimed, claims) };
    }
  }

  /** Deletes what has expired: tokens that rules gave, and the record of identity tokens. */
  async deleteExpired(): Promise<void> {
    for (let run = 0; run < batchesAtOnce; run += 1) {
      const deleted = (await this.#parts.tokens.deleteExpired()) + (await this.#deleteUsed());
      if (deleted === 0) return;
    }
  }

  async #deleteUsed(): Promise<number> {
    const { database, now } = this.#parts;
    const rows = await database.select<{ id: string }>(
      `SELECT id FROM used_identity_tokens WHERE expires_at <= ? ORDER BY expires_at LIMIT ${batch}`,
      [now()],
    );
    if (rows.length === 0) return 0;
    const ids = rows.map(({ id }) => id);
    const sql = `DELETE FROM used_identity_tokens WHERE id IN (${placeholders(ids)})`;
    return database.transaction((tx) => tx.run(sql, ids), { uncached: true });
  }
}

function claimsIn(identityTokens: IdentityTokens, token: string): Claims {
  try {
    return identityTokens.read(token);
  } catch (error) {
    const { message } = error as Error;
    throw new DomainError('Invalid', message, { detail: { errors: [{ field: 'token', message }] }, cause: error });
  }
}

/** For the audit. */
function identityOf({ issuer, claims: { sub } }: VerifiedToken): Record<string, unknown> {
  return { issuer: issuer.name, subject: typeof sub === 'string' ? sub.slice(0, 500) : null };
}

/** The same for all tokens of one identity, such as a repository or a service account. */
function identityKey({ issuer, claims: { sub }, useId }: VerifiedToken): string {
  return typeof sub === 'string' && sub !== '' ? hash('sha256', JSON.stringify([issuer.issuer, sub])) : useId;
}

async function compare(
  rules: readonly Publisher[],
  issuer: TrustedIssuer | undefined,
  claims: Claims,
): Promise<Compared[]> {
  const compared: Compared[] = [];
  for await (const publisher of withPauses(rules)) {
    const missed = issuer && trusts(publisher, issuer) ? await mismatches(publisher.claims, claims) : null;
    compared.push({ publisher, missed });
  }
  return compared;
}

/** The first rule that matches and has the scopes. */
function chosen(compared: readonly Compared[], { issuer }: VerifiedToken, wanted: readonly string[] = []): Publisher {
  const matching = compared.filter(({ missed }) => missed?.length === 0).map(({ publisher }) => publisher);
  const found = matching.find(({ scopes }) => wanted.every((scope) => (scopes as string[]).includes(scope)));
  if (found) return found;
  if (matching.length > 0) {
    const all = [...new Set(matching.flatMap(({ scopes }) => scopes))].join(', ');
    throw new DomainError('ScopeMissing', `No rule gives all of these scopes to this token. Its rules give ${all}.`);
  }
  // Only the project that a rule was written for learns what the rule is.
  const near = compared.find(({ publisher, missed }) => missed && isForProject(publisher.claims, missed, issuer.kind));
  throw noMatch(near);
}

function noMatch(near?: Compared): DomainError {
  if (!near) return tokenRefused('No rule of this account matches the token.');
  const claims = near.missed!.slice(0, maxShown).map(({ claim, found }) => {
    const value = found.length === 0 ? 'missing' : `"${found.join(', ').slice(0, maxShownLength)}"`;
    return `the claim "${claim}" is ${value}`;
  });
  return tokenRefused(`The rule "${near.publisher.name}" does not match this token: ${claims.join(', ')}.`);
}
