import { scopeFor, type Action } from './allow.ts';
import type { NameKind } from './names.ts';
import type { Principal } from './principal.ts';

/**
 * The account that owns a name for a principal: its own; to read, another one that shares the name. All routes and operations
 * about a name ask here.
 */
export function ownerOf(
  { accountId, shared }: Principal,
  kind: NameKind,
  name: string,
  action: Action = 'read',
): number | Promise<number> {
  return shared && scopeFor(action) === 'read' ? shared.ownerOf(accountId, kind, name) : accountId;
}
