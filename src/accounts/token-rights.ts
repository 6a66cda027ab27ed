import type { Grants } from './grants.ts';
import { Names } from './names.ts';
import { personOfRow, type People } from './people.ts';
import { limitsIn } from './personal-limits.ts';
import type { Scope, TokenPrincipal } from './principal.ts';
import { combined, rightOf, type Right } from './rights.ts';
import { patternsOfRow, type FoundToken } from './token-rows.ts';

/**
 * What a token may do: what it was made for, and what grants give it. A personal one may do of what it was made for what its
 * person may do now, and what its account allows personal tokens.
 */
export async function rightsOfToken(
  row: FoundToken,
  given: { people: People; grants: Grants } | undefined,
): Promise<Pick<TokenPrincipal, 'scopes' | 'names' | 'namesByScope' | 'shared'>> {
  const own: Right = { scopes: row.scopes.split(',') as Scope[], patterns: patternsOfRow(row) };
  const { account_id: id, account_name: name, grants_version: version } = row;
  const grants = await given?.grants.of(id, version);
  const shared = grants?.shared;
  if (row.owner_id !== null) {
    const person = personOfRow({ ...row, person: row.person! });
    const present = await given!.people.rightsIn(person, { id, name, version });
    const { scopes: allowed } = limitsIn(row.personal_tokens);
    const scopes = own.scopes.filter((each) => allowed?.includes(each) ?? true);
    const limit = { scopes, names: own.patterns ? new Names(own.patterns) : undefined };
    return { ...combined(present, limit), shared };
  }
  const more = grants?.to({ kind: 'token', issuer: null, id: row.id }) ?? [];
  return { ...combined([own, ...more.map(rightOf)]), shared };
}
