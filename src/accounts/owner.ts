import { scopeFor, type Action } from './allow.ts';
import type { NameKind } from './names.ts';
import type { Principal } from './principal.ts';
import type { AccountList } from './shared-names.ts';

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

/** Whose names of a kind a principal sees in lists, and which: those of its own account first, then those that others share. */
export function listsOf({ accountId, names, shared }: Principal, kind: NameKind): [AccountList, ...AccountList[]] {
  return [{ accountId, only: names?.of(kind) }, ...(shared?.lists(accountId, kind, names) ?? [])];
}
