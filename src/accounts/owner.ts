import type { NameKind } from './names.ts';
import type { Principal } from './principal.ts';

/**
 * The account that owns a name for a principal. A principal has one account, which owns all its names. All routes and operations
 * about a name ask here.
 */
export function ownerOf(principal: Principal, _kind: NameKind, _name: string): number {
  return principal.accountId;
}
