import { z } from 'zod';
import { allow, allowToken, coversPatterns } from '../accounts/allow.ts';
import { tokenIdOf } from '../accounts/principal.ts';
import type { Token, Tokens } from '../accounts/tokens.ts';
import { operation, type Operation } from './operation.ts';
import { pageQuery, readPage } from './paging.ts';
import { listOf, newToken, timeOf, timeOrNull, token, tokenRequest } from './schemas.ts';

/**
 * `/tokens`: an administrator's, but for one thing: every token may end itself. A narrowed one creates, sees and ends
 * only tokens that are narrowed within its own patterns.
 */
export function tokenOperations(tokens: Tokens): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/tokens',
      id: 'listTokens',
      summary: 'List all API tokens, the revoked ones too; values are not included',
      action: 'admin',
      query: pageQuery,
      status: 200,
      answer: listOf(token),
      run: async ({ principal, query }) => {
        const { entries, next_cursor } = await readPage(query, {
          list: 'tokens',
          key: z.tuple([z.int(), z.string()]),
          keyOf: (each: Token) => [each.createdAt, each.id] as [number, string],
          read: (limit, after) => tokens.list(principal.accountId, limit, after),
          keep: principal.names && ((each) => coversPatterns(principal, each.patterns)),
        });
        return { items: entries.map(shown), next_cursor };
      },
    }),
    operation({
      method: 'post',
      path: '/tokens',
      id: 'createToken',
      summary: 'Create an API token; its value is in this answer only',
      action: 'admin',
      body: tokenRequest,
      status: 201,
      answer: newToken,
      run: async ({ principal, body }) => {
        const expiresAt = body.expires_at ? Date.parse(body.expires_at) : null;
        const { name, scopes, patterns = null } = body;
        allowToken(principal, scopes, patterns);
        const created = await tokens.create(principal.accountId, { name, scopes, patterns, expiresAt });
        return { ...shown(created.token), token: created.value };
      },
    }),
    operation({
      method: 'delete',
      path: '/tokens/:id',
      id: 'revokeToken',
      summary: 'Revoke an API token, at once; a token may revoke itself without the scope admin',
      action: 'any',
      params: { id: 'The id of the token, not its value' },
      status: 204,
      run: async ({ principal, params }) => {
        const id = params['id']!;
        if (id !== tokenIdOf(principal)) {
          allow(principal, 'admin');
          const found = principal.names && (await tokens.get(principal.accountId, id));
          if (found) allowToken(principal, [], found.patterns);
        }
        await tokens.revoke(principal.accountId, id);
      },
    }),
  ];
}

function list(patterns: readonly string[] | undefined): string[] {
  return [...(patterns ?? [])];
}

function shown(each: Token): z.input<typeof token> {
  return {
    id: each.id,
    name: each.name,
    token_prefix: each.tokenPrefix,
    scopes: each.scopes,
    patterns: each.patterns && { packages: list(each.patterns.packages), containers: list(each.patterns.containers) },
    created_at: timeOf(each.createdAt),
    expires_at: timeOrNull(each.expiresAt),
    last_used_at: timeOrNull(each.lastUsedAt),
    revoked_at: timeOrNull(each.revokedAt),
  };
}
