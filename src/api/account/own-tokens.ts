import { z } from 'zod';
import { allow } from '../../accounts/allow.ts';
import type { People } from '../../accounts/people.ts';
import type { PersonalTokenLimits } from '../../accounts/personal-limits.ts';
import type { PersonPrincipal, Principal } from '../../accounts/principal.ts';
import type { Token } from '../../accounts/token-rows.ts';
import type { Tokens } from '../../accounts/tokens.ts';
import { DomainError } from '../../runtime/errors.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { pageQuery, readPage } from '../framework/paging.ts';
import { newToken, tokenList, tokenRequest } from '../framework/token-schemas.ts';
import { toToken } from './tokens.ts';

/** The life of a personal token for which no end is wanted; milliseconds. */
const defaultLife = 90 * 86_400_000;

/**
 * `/me/tokens`: what a person who is signed in makes for own clients. Such a token can do at most what the person can, and ends
 * when the person loses the rights, or does not sign in for `signIn.tokens.idle`. No token can use these operations: the browser
 * sends the session of the console.
 */
export function ownTokenOperations(
  tokens: Tokens,
  { tokenTimes }: People,
  limits: PersonalTokenLimits,
  now: () => number,
): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/me/tokens',
      id: 'listOwnTokens',
      summary: 'List the personal tokens of the person who is signed in, in the account in use, the latest first',
      action: 'any',
      session: true,
      query: pageQuery,
      status: 200,
      answer: tokenList,
      run: async ({ principal, query }) => {
        const { accountId, personId } = personIn(principal);
        const { entries, next_cursor } = await readPage(query, {
          name: 'me/tokens',
          key: z.tuple([z.int(), z.string()]),
          keyOf: (each: Token) => [each.createdAt, each.id] as [number, string],
          read: (limit, after) => tokens.list(accountId, limit, after, personId),
        });
        return { items: entries.map(toToken), next_cursor };
      },
    }),
    operation({
      method: 'post',
      path: '/me/tokens',
      id: 'createOwnToken',
      summary:
        'Create a personal token with at most the own rights, and within the limits of the account. Only this answer contains its value. It expires after 90 days, or when `expires_at` says',
      action: 'any',
      session: true,
      body: tokenRequest,
      status: 201,
      answer: newToken,
      run: async ({ principal, body }) => {
        const { accountId, personId } = personIn(principal);
        const { name, scopes, patterns = null } = body;
        // With names beyond those of its person, it can do what the person can.
        for (const scope of scopes) allow(principal, scope);
        const { scopes: allowed, longest } = await limits.of(accountId);
        const refused = scopes.filter((each) => allowed?.includes(each) === false);
        if (refused.length > 0)
          throw invalid('scopes', `Personal tokens of this account have at most ${allowed!.join(', ') || 'no scope'}.`);
        const expiresAt = endOf(body.expires_at ?? null, longest);
        const created = await tokens.create(accountId, { name, scopes, patterns, expiresAt, personId });
        return { ...toToken(created.token), token: created.value };
      },
    }),
    operation({
      method: 'delete',
      path: '/me/tokens/:id',
      id: 'revokeOwnToken',
      summary: 'Revoke a personal token at once',
      action: 'any',
      session: true,
      params: { id: 'The ID of the token, not its value' },
      status: 204,
      run: async ({ principal, params }) => {
        const { accountId, personId } = personIn(principal);
        const found = await tokens.get(accountId, params['id']!);
        if (found?.personId !== personId) throw new DomainError('NotFound', 'You have no such token in this account.');
        await tokens.revoke(accountId, found.id);
      },
    }),
  ];

  function endOf(wanted: string | null, longest: number | null): number {
    const life = Math.min(tokenTimes.absolute, longest ?? Infinity);
    const latest = now() + life;
    if (wanted === null) return Math.min(latest, now() + defaultLife);
    if (Date.parse(wanted) <= latest) return Date.parse(wanted);
    const why = life === longest ? 'an administrator of this account set that' : 'signIn.tokens.absolute';
    throw invalid('expires_at', `A personal token expires after ${life / 86_400_000} days at the latest (${why}).`);
  }
}

function invalid(field: string, message: string): DomainError {
  return new DomainError('Invalid', message, { detail: { errors: [{ field, message }] } });
}

function personIn(principal: Principal): PersonPrincipal {
  if (principal.kind === 'person') return principal;
  const message =
    'Personal tokens belong to people: sign in to the console with your provider. A token uses /v1/tokens.';
  throw new DomainError('Denied', message);
}
