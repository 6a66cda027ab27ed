import type { Actor } from '../runtime/caller.ts';
import type { Patterns } from './names.ts';
import { limitsIn } from './personal-limits.ts';
import type { Scope } from './principal.ts';

/** An API token, without its value. Times are in milliseconds since 1970 UTC. */
export interface Token {
  id: string;
  name: string;
  tokenPrefix: string;
  scopes: Scope[];
  /** The name patterns that limit it; null for all names. */
  patterns: Patterns | null;
  /** The rule that gave it for an identity token; null for other tokens. */
  publisherId: string | null;
  /** The person whose personal token it is, or made it; null for other tokens. */
  personId: string | null;
  /** Who made it; null for one that an older version made. */
  createdBy: Actor | null;
  createdAt: number;
  expiresAt: number | null;
  lastUsedAt: number | null;
  revokedAt: number | null;
  /** Why a personal token is refused that is neither revoked nor expired: what its person lacks. Null for all others. */
  refusedBecause: PersonLack | null;
}

/** Disabled here; not signed in for too long; without a right in the account that the token may use. */
export const personLacks = ['disabled', 'no_sign_in', 'no_rights'] as const;
export type PersonLack = (typeof personLacks)[number];

/** A row of the table `tokens`. */
export interface TokenRow {
  id: string;
  account_id: number;
  name: string;
  token_prefix: string;
  hash: string;
  scopes: string;
  patterns: string | null;
  publisher_id: string | null;
  owner_id: string | null;
  /** An `Actor` as JSON. */
  created_by: string | null;
  /** A `CiJob` as JSON. */
  job: string | null;
  created_at: number;
  expires_at: number | null;
  last_used_at: number | null;
  revoked_at: number | null;
}

/** With the limits of its account for personal tokens, as JSON. */
type LimitedToken = TokenRow & { personal_tokens: string | null };

/** With its account and its person; null for tokens that are not personal. */
export interface FoundToken extends LimitedToken {
  account_name: string;
  grants_version: number;
  person: string | null;
  disabled: string | null;
  signed_in_at: number | null;
}

export const foundColumns = 'tokens.*, account_name, grants_version, personal_tokens, person, disabled, signed_in_at';
/** The tables of `FoundToken`, so that the columns of `tokens` need no prefix. */
export const foundTokens = `tokens
  JOIN (SELECT id AS account_key, name AS account_name, grants_version, personal_tokens FROM accounts) a ON account_key = account_id
  LEFT JOIN (SELECT id AS person_key, person, disabled, signed_in_at FROM people) p ON person_key = owner_id`;

/** When a token ends: a personal one at the end of the longest life in its account at the latest. Null for never. */
export function endOfToken({ owner_id: owner, personal_tokens: limits, ...row }: LimitedToken): number | null {
  const { longest } = limitsIn(limits);
  if (owner === null || longest === null) return row.expires_at;
  return Math.min(row.expires_at ?? Infinity, row.created_at + longest);
}

/** The name patterns of a token. */
export function patternsOfRow({ patterns }: TokenRow): Patterns | null {
  return patterns === null ? null : (JSON.parse(patterns) as Patterns);
}

/** The token of a row. */
export function tokenOfRow(row: LimitedToken, refusedBecause: PersonLack | null): Token {
  return {
    id: row.id,
    name: row.name,
    tokenPrefix: row.token_prefix,
    scopes: row.scopes.split(',') as Scope[],
    patterns: patternsOfRow(row),
    publisherId: row.publisher_id,
    personId: row.owner_id,
    createdBy: row.created_by === null ? null : (JSON.parse(row.created_by) as Actor),
    createdAt: row.created_at,
    expiresAt: endOfToken(row),
    lastUsedAt: row.last_used_at,
    revokedAt: row.revoked_at,
    refusedBecause,
  };
}
