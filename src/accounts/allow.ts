import { DomainError } from '../runtime/errors.ts';
import type { NameKind, Names, Patterns } from './names.ts';
import type { Principal, Scope } from './principal.ts';

/**
 * What a request does: the scope that it needs; or `account`, to read about the account itself; or `any`, which every
 * token may do; or `sign-in`, to check the credentials, which every principal may do. Anonymous readers may do neither
 * `account` nor `any`.
 */
export type Action = Scope | 'account' | 'any' | 'sign-in';

/** The scope that an action needs; undefined if a valid token is enough. */
export function scopeFor(action: Action): Scope | undefined {
  if (action === 'any' || action === 'sign-in') return undefined;
  return action === 'account' ? 'read' : action;
}

/** The names with which `principal` may do `action`, if it may do it at all; undefined for all names. */
function namesFor(principal: Principal, action: Action): Names | undefined {
  const scope = scopeFor(action);
  return scope === undefined || !principal.namesByScope ? principal.names : principal.namesByScope.get(scope);
}

/** `principal` with the names of `action` alone: lists are filtered by these, and limits follow from them. */
export function forAction(principal: Principal, action: Action): Principal {
  return principal.namesByScope ? { ...principal, names: namesFor(principal, action) } : principal;
}

/**
 * Checks that `principal` may do `action` with the content of `kind` named `name`. A name is in lower case and is the
 * name under which the content is stored. If the content has several names, one of them must match. With a kind but no
 * name, the principal must be allowed some name of the kind. Without a kind, the action has no name, or it is a list
 * that is filtered.
 *
 * Throws `Unauthorized` for an anonymous reader that could do this with a token; `ScopeMissing`, which names the scope,
 * for a principal without it; and `NameDenied` for one that is limited to other names.
 */
export function allow(principal: Principal, action: Action, kind?: NameKind, name?: string | readonly string[]): void {
  if (action === 'sign-in') return;
  const scope = scopeFor(action);
  const hasScope = scope === undefined || principal.scopes.has(scope);
  if (principal.kind === 'anonymous' && (!hasScope || action !== scope)) {
    const which = scope === undefined ? '' : ` with the scope "${scope}"`;
    throw new DomainError('Unauthorized', `Authenticate with an API token${which}.`);
  }
  if (!hasScope) {
    const message =
      principal.kind === 'person'
        ? `You do not have the right "${scope}" in the account ${principal.accountName}. Ask its administrators, or those of this server.`
        : `This token lacks the scope "${scope}".`;
    throw new DomainError('ScopeMissing', message, { detail: { scope } });
  }
  const names = kind === undefined ? undefined : namesFor(principal, action)?.of(kind);
  if (!names) return;
  const matches = typeof name === 'string' ? names.includes(name) : name?.some((each) => names.includes(each));
  if (matches ?? !names.isEmpty) return;
  const which = (typeof name === 'string' ? name : name?.[0])?.slice(0, 260);
  const what = which === undefined ? `any ${kind}` : `the ${kind} "${which}"`;
  const message =
    principal.kind === 'person' || principal.namesByScope || isPersonal(principal)
      ? `The right "${scope ?? 'read'}" in the account ${principal.accountName} is limited to names that do not match ${what}.`
      : `The name patterns of this token do not match ${what}.`;
  throw new DomainError('NameDenied', message, { detail: { kind, ...(which !== undefined && { name: which }) } });
}

/**
 * `principal` with the names of `scope` alone, for an action that checks by itself which scope it needs. Throws as `allow`; with
 * `allNames`, `NameDenied` with this message for one that is limited to some names.
 */
export function allowedAs(principal: Principal, scope: Action, allNames?: string): Principal {
  allow(principal, scope);
  const limited = forAction(principal, scope);
  if (allNames !== undefined && limited.names) throw new DomainError('NameDenied', allNames);
  return limited;
}

/** Whether grants to a person can limit a token. */
function isPersonal(principal: Principal): boolean {
  return principal.kind === 'token' && principal.personId !== null;
}

/** Whether `allow` lets `principal` do what `scope` permits with `name`. */
export function isAllowed(principal: Principal, scope: Scope, kind: NameKind, name: string): boolean {
  return principal.scopes.has(scope) && (namesFor(principal, scope)?.of(kind).includes(name) ?? true);
}

/** `Unauthorized`, for a request without a credential that needs one. */
export function credentialMissing(reason = ''): DomainError {
  const advice = 'Authenticate with an API token, as Bearer or as Basic with user name "api".';
  return new DomainError('Unauthorized', `${reason} ${advice}`.trimStart());
}

/** Whether a token with these patterns is limited to names that `principal` may use. */
export function coversPatterns({ names }: Principal, patterns: Patterns | null): boolean {
  if (!names) return true;
  if (!patterns) return false;
  return names.covers(patterns);
}

/** What an object of an account may do: a token, a rule, or a session. */
interface ObjectRights {
  scopes: Iterable<Scope>;
  patterns: Patterns | null;
}

/**
 * Checks that a principal gives the scope `operate`, which concerns all accounts, only if it has that scope, and that a
 * limited principal creates only tokens within its own limits, with each scope only for names for which it has that scope. Throws
 * `ScopeMissing` or `NameDenied`.
 */
export function allowToken(principal: Principal, scopes: readonly Scope[], patterns: Patterns | null): void {
  if (principal.names) for (const scope of scopes) requireCovered(allowedAs(principal, scope), patterns);
  allowObject(principal, { scopes, patterns });
}

/**
 * When a token that `principal` makes ends: at the wanted time, or with the token of the principal if none is wanted. Null for
 * never. Throws `Invalid` for a time after the end of the
 * principal's token: it would not end its holder's access otherwise.
 */
export function endOfMade(principal: Principal, wanted: number | null): number | null {
  const latest = principal.kind === 'token' ? principal.expiresAt : null;
  if (latest === null || (wanted !== null && wanted <= latest)) return wanted;
  if (wanted === null) return latest;
  const message = `Your own token expires at ${new Date(latest).toISOString()}, so the new one cannot expire later.`;
  throw new DomainError('Invalid', message, { detail: { errors: [{ field: 'expires_at', message }] } });
}

/** Checks that `principal` may make what has no end. Throws `ScopeMissing` for a short-lived token. */
export function allowLasting(principal: Principal, action: Action): void {
  if (principal.kind !== 'token' || !principal.isShortLived) return;
  throw new DomainError('ScopeMissing', 'This token ends soon, and what you make or change here would outlive it.', {
    detail: { scope: scopeFor(action) },
  });
}

/**
 * Checks the right to end an object of the own account: one that has the scope `operate`, which concerns all accounts, needs
 * that scope, and a limited principal ends only what is within its own limits. Throws `ScopeMissing` or `NameDenied`.
 */
export function allowObject(principal: Principal, { scopes, patterns }: ObjectRights): void {
  if ([...scopes].includes('operate')) requireCovered(allowedAs(principal, 'operate'), patterns);
  requireCovered(principal, patterns);
}

function requireCovered(principal: Principal, patterns: Patterns | null): void {
  if (coversPatterns(principal, patterns)) return;
  throw new DomainError(
    'NameDenied',
    'This token is limited by name patterns. Give the other token patterns within these limits.',
  );
}
