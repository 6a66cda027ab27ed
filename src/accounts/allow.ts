import { DomainError } from '../errors.ts';
import type { NameKind, Patterns } from './names.ts';
import type { Principal, Scope } from './principal.ts';

/**
 * What a request does: a scope that it takes; or `account`, reading what concerns the account itself, and `any`, for
 * which every token is enough. The last two are not open to anonymous readers.
 */
export type Action = Scope | 'account' | 'any';

/** The scope that an action takes; undefined where a valid token is enough. */
export function scopeFor(action: Action): Scope | undefined {
  if (action === 'any') return undefined;
  return action === 'account' ? 'read' : action;
}

/**
 * Decides whether `principal` may do `action`, with something of `kind` that is called `name`. A name is in lower case
 * and the one under which the thing is stored; where it has several, one of them has to match. Without a name, the
 * principal must be narrowed to some name of the kind; without a kind, the action concerns no name, or a list that is
 * filtered.
 *
 * Throws `Unauthorized` where a token could help, so that an anonymous reader is asked for one; `ScopeMissing`, naming
 * the scope, for a token that lacks it; and `NameDenied` for a token that is narrowed to other names.
 */
export function allow(principal: Principal, action: Action, kind?: NameKind, name?: string | readonly string[]): void {
  const scope = scopeFor(action);
  const hasScope = scope === undefined || principal.scopes.has(scope);
  if (principal.kind === 'anonymous' && (!hasScope || action !== scope)) {
    const which = scope === undefined ? '' : ` that has the scope "${scope}"`;
    throw new DomainError('Unauthorized', `Authenticate with an API token${which}.`);
  }
  if (!hasScope) throw new DomainError('ScopeMissing', `This token lacks the scope "${scope}".`, { detail: { scope } });
  const names = kind && principal.names?.[kind];
  if (!names) return;
  const matches = typeof name === 'string' ? names.includes(name) : name?.some((each) => names.includes(each));
  if (matches ?? !names.isEmpty) return;
  const which = (typeof name === 'string' ? name : name?.[0])?.slice(0, 260);
  const message = `This token is narrowed by name patterns, and none of them matches ${which === undefined ? `any ${kind}` : `the ${kind} "${which}"`}.`;
  throw new DomainError('NameDenied', message, { detail: { kind, ...(which !== undefined && { name: which }) } });
}

/** Whether all that a token with these patterns may do concerns names that `principal` is narrowed to. */
export function coversPatterns({ names }: Principal, patterns: Patterns | null): boolean {
  if (!names) return true;
  if (!patterns) return false;
  return names.package.covers(patterns.packages ?? []) && names.container.covers(patterns.containers ?? []);
}

/** Lets a narrowed principal create no token that may do more than itself; `ScopeMissing` or `NameDenied`. */
export function allowToken(principal: Principal, scopes: readonly Scope[], patterns: Patterns | null): void {
  if (!principal.names) return;
  for (const scope of scopes) allow(principal, scope);
  if (coversPatterns(principal, patterns)) return;
  throw new DomainError(
    'NameDenied',
    'This token is narrowed by name patterns: give the new token patterns that lie within them.',
  );
}
