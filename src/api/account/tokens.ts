import { jsonItem } from '../../runtime/json-item.ts';
import { z } from 'zod';
import { allowedAs, allowObject, allowToken, coversPatterns, endOfMade } from '../../accounts/allow.ts';
import { tokenIdOf } from '../../accounts/principal.ts';
import { prefixLength } from '../../accounts/token-value.ts';
import type { Token } from '../../accounts/token-rows.ts';
import type { Tokens } from '../../accounts/tokens.ts';
import { DomainError } from '../../runtime/errors.ts';
import type { Rank } from '../../runtime/ranked.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { pageQuery, readPage } from '../framework/paging.ts';
import { countOf, sortedPage, totalFlag } from '../framework/sorted.ts';
import { shownPatterns } from '../framework/schemas.ts';
import { tokenList, newToken, token, tokenRequest } from '../framework/token-schemas.ts';

const tokensQuery = pageQuery.extend({
  total: totalFlag,
  sort: z
    .enum(['used'], 'expected used, or no order')
    .optional()
    .meta({ description: 'Those that were used last first; without it, those that were made last' }),
  name: z
    .string('expected one text')
    .max(200)
    .optional()
    .meta({ description: 'Only tokens whose name has this text, in any letter case' }),
});

/** The value is in the body: addresses are kept in the history of browsers and in logs. */
const findRequest = z
  .strictObject({
    token: z
      .string()
      .trim()
      .min(prefixLength, `expected a token, or at least its first ${prefixLength} characters`)
      .max(200)
      .meta({ description: 'The value of a token, or its beginning' }),
  })
  .meta({ id: 'FindTokens' });

/**
 * `/tokens`. All operations need the scope `admin`, except that every token may revoke itself. A limited token creates,
 * lists and revokes only tokens within its own patterns. A token with `operate` is revoked only with that scope.
 */
export function tokenOperations(tokens: Tokens): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/tokens',
      id: 'listTokens',
      summary:
        'List all API tokens, including revoked ones, without their values, the latest first, or by their last use',
      action: 'admin',
      query: tokensQuery,
      status: 200,
      answer: tokenList,
      run: async ({ principal, query }) => {
        const { name = '' } = query;
        const wanted = name.toLowerCase();
        const { names, accountId } = principal;
        const isVisible =
          wanted === '' && !names
            ? undefined
            : (each: Token) => coversPatterns(principal, each.patterns) && each.name.toLowerCase().includes(wanted);
        const latest = {
          name: 'tokens',
          key: z.tuple([z.int(), z.string()]),
          keyOf: (each: Token) => [each.createdAt, each.id] as [number, string],
          read: (limit: number, after?: readonly [number, string]) => tokens.list(accountId, limit, after),
          isVisible,
        };
        const ranked = (limit: number, after: Rank | undefined) => tokens.byUse(accountId, limit, after);
        const { entries, next_cursor } =
          query.sort === undefined
            ? await readPage(query, latest)
            : await sortedPage(query, 'tokens', [{ ranked }], isVisible);
        return { items: entries.map(toToken), next_cursor, ...(await countOf(query, latest)) };
      },
    }),
    operation({
      method: 'post',
      path: '/tokens',
      id: 'createToken',
      summary:
        'Create an API token. Only this answer contains its value. It expires with the token that makes it at the latest',
      action: 'admin',
      body: tokenRequest,
      status: 201,
      answer: newToken,
      run: async ({ principal, body }) => {
        const expiresAt = endOfMade(principal, body.expires_at ? Date.parse(body.expires_at) : null);
        // So that it ends with the rule or the person, too.
        const { publisherId = null, personId = null, job = null } = principal.kind === 'token' ? principal : {};
        const { name, scopes, patterns = null } = body;
        allowToken(principal, scopes, patterns);
        const created = await tokens.create(principal.accountId, {
          name,
          scopes,
          patterns,
          expiresAt,
          publisherId,
          personId,
          job,
        });
        return { ...toToken(created.token), token: created.value };
      },
    }),
    operation({
      method: 'post',
      path: '/tokens/find',
      id: 'findTokens',
      summary: 'Find an API token by its value, or tokens by the beginning of their values, also revoked ones',
      action: 'admin',
      body: findRequest,
      status: 200,
      answer: tokenList,
      run: async ({ principal, body }) => {
        const found = await tokens.find(principal.accountId, body.token);
        const items = found.filter(({ patterns }) => coversPatterns(principal, patterns)).map(toToken);
        return { items, next_cursor: null };
      },
    }),
    operation({
      method: 'get',
      path: '/tokens/:id',
      id: 'getToken',
      summary: 'Show an API token, without its value',
      action: 'admin',
      params: { id: 'The ID of the token, not its value' },
      status: 200,
      answer: token,
      run: async ({ principal, params }) => {
        const found = await tokens.get(principal.accountId, params['id']!);
        // A limited token sees the tokens within its own limits, as in the list.
        if (!found || !coversPatterns(principal, found.patterns)) {
          throw new DomainError('NotFound', 'This account has no such token.');
        }
        return toToken(found);
      },
    }),
    operation({
      method: 'delete',
      path: '/tokens/:id',
      id: 'revokeToken',
      summary: 'Revoke an API token at once. A token may revoke itself without the scope admin',
      action: 'any',
      params: { id: 'The ID of the token, not its value' },
      status: 204,
      run: async ({ principal, params }) => {
        const id = params['id']!;
        if (id !== tokenIdOf(principal)) {
          const admin = allowedAs(principal, 'admin');
          const found = await tokens.get(principal.accountId, id);
          if (found) allowObject(admin, found);
        }
        await tokens.revoke(principal.accountId, id);
      },
    }),
  ];
}

export function toToken(each: Token): z.input<typeof token> {
  return { ...jsonItem(each), patterns: shownPatterns(each.patterns) };
}
