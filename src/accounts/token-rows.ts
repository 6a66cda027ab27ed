import type { Actor } from '../runtime/caller.ts';
import type { Patterns } from './names.ts';
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
}

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

/** The name patterns of a token. */
export function patternsOfRow({ patterns }: TokenRow): Patterns | null {
  return patterns === null ? null : (JSON.parse(patterns) as Patterns);
}

/** The token of a row. */
export function tokenOfRow(row: TokenRow): Token {
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
    expiresAt: row.expires_at,
    lastUsedAt: row.last_used_at,
    revokedAt: row.revoked_at,
  };
}
