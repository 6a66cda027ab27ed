import { DomainError } from '../errors.ts';
import type { Names } from './names.ts';

export const scopes = ['read', 'write', 'delete', 'admin'] as const;
export type Scope = (typeof scopes)[number];

interface Rights {
  accountId: number;
  accountName: string;
  scopes: ReadonlySet<Scope>;
  /** The names that it is narrowed to; undefined for all. */
  names: Names | undefined;
}

/** The bearer of an API token. */
export interface TokenPrincipal extends Rights {
  kind: 'token';
  tokenId: string;
}

/** A reader without a credential. */
export interface AnonymousPrincipal extends Rights {
  kind: 'anonymous';
}

/** Who sends a request. */
export type Principal = TokenPrincipal | AnonymousPrincipal;

/** Checks one kind of credential. */
export interface Verifier {
  /** The principal that presents `value`; undefined when it is no valid credential of this kind. */
  verify(value: string): Promise<Principal | undefined>;
}

/** The id of the token that `principal` presented; undefined for other principals. */
export function tokenIdOf(principal: Principal | undefined): string | undefined {
  return principal?.kind === 'token' ? principal.tokenId : undefined;
}

/** The scopes in `read,write` or `["read","write"]`; `Invalid` names one that does not exist. */
export function parseScopes(list: readonly string[]): Scope[] {
  const wanted = new Set(list.map((each) => each.trim()).filter(Boolean));
  for (const each of wanted) {
    if (!(scopes as readonly string[]).includes(each)) {
      throw new DomainError('Invalid', `There is no scope "${each}"; there are ${scopes.join(', ')}.`);
    }
  }
  if (wanted.size === 0) throw new DomainError('Invalid', `Name at least one scope of ${scopes.join(', ')}.`);
  return scopes.filter((each) => wanted.has(each));
}
