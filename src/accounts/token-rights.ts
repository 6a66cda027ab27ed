import type { Grants } from './grants.ts';
import { Names } from './names.ts';
import type { People, Person } from './people.ts';
import type { Scope, TokenPrincipal } from './principal.ts';
import { combined, type Right } from './rights.ts';
import { patternsOfRow, type TokenRow } from './token-rows.ts';

/** With what `people` says about its person; null for other tokens. */
export type PrincipalRow = TokenRow & {
  account_name: string;
  grants_version: number;
  person: string | null;
  signed_in_at: number | null;
};

/**
 * What a token may do: what it was made for, and what grants give it. A personal one may do of what it was made for what its
 * person may do now.
 */
export async function rightsOfToken(
  row: PrincipalRow,
  given: { people: People; grants: Grants } | undefined,
): Promise<Pick<TokenPrincipal, 'scopes' | 'names' | 'namesByScope' | 'shared'>> {
  const own: Right = { scopes: row.scopes.split(',') as Scope[], patterns: patternsOfRow(row) };
  const { account_id: id, account_name: name, grants_version: version } = row;
  const grants = await given?.grants.of(id, version);
  const shared = grants?.shared;
  if (row.owner_id !== null) {
    const present = await given!.people.rightsIn(JSON.parse(row.person!) as Person, { id, name, version });
    const limit = { scopes: own.scopes, names: own.patterns ? new Names(own.patterns) : undefined };
    return { ...combined(present, limit), shared };
  }
  const more = grants?.to({ kind: 'token', issuer: null, id: row.id }) ?? [];
  return { ...combined([own, ...more.map(({ verbs, patterns }) => ({ scopes: verbs, patterns }))]), shared };
}
