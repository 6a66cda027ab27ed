import { DomainError } from '../errors.ts';
import type { Principal, Scope } from './principal.ts';

/**
 * What a request does: a scope that it takes; or `account`, reading what concerns the account itself, and `any`, for which
 * every token is enough. The last two are not open to anonymous readers.
 */
export type Action = Scope | 'account' | 'any';

/** The scope that an action takes; undefined where a valid token is enough. */
export function scopeFor(action: Action): Scope | undefined {
  if (action === 'any') return undefined;
  return action === 'account' ? 'read' : action;
}

/**
 * Decides whether `principal` may do `action`. Throws `Unauthorized` where a token could help, so that an anonymous reader
 * is asked for one, and `ScopeMissing`, naming the scope, for a token that lacks it.
 */
export function allow(principal: Principal, action: Action): void {
  const scope = scopeFor(action);
  const hasScope = scope === undefined || principal.scopes.has(scope);
  if (principal.kind === 'anonymous' && (!hasScope || action !== scope)) {
    const which = scope === undefined ? '' : ` that has the scope "${scope}"`;
    throw new DomainError('Unauthorized', `Authenticate with an API token${which}.`);
  }
  if (!hasScope) throw new DomainError('ScopeMissing', `This token lacks the scope "${scope}".`, { detail: { scope } });
}
