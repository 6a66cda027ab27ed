import { jsonItem } from '../../runtime/json-item.ts';
import { z } from 'zod';
import { allowObject, allowToken, coversPatterns } from '../../accounts/allow.ts';
import type { Principal } from '../../accounts/principal.ts';
import type { TokenExchange } from '../../identity/exchange.ts';
import type { Publisher } from '../../identity/publisher.ts';
import type { TokenUses } from '../../usage/token-uses.ts';
import type { Publishers } from '../../identity/publishers.ts';
import { operation, type Operation } from '../framework/operation.ts';
import {
  explainRequest,
  explanation,
  publisher,
  publisherList,
  publisherRequest,
  trustedIssuerList,
} from './publisher-schemas.ts';
import { shownPatterns, timeOrNull } from '../framework/schemas.ts';
import { filterText } from '../framework/sorted.ts';

export interface PublisherParts {
  publishers: Publishers;
  exchange: TokenExchange;
  uses: TokenUses;
}

/**
 * `/publishers`: the rules for the exchange of identity tokens. All operations need the scope `admin`. A limited token sees
 * and changes only rules within its own patterns, and no rule gives more than its author may give.
 * A rule that gives `operate` is changed and deleted only with that scope.
 */
export function publisherOperations({ publishers, exchange, uses }: PublisherParts): Operation[] {
  const shownAll = async (some: readonly Publisher[]) => {
    const last = await uses.lastOf(some.map((each) => each.id));
    return some.map((each) => toPublisher(each, publishers, last.get(each.id)));
  };
  const shown = async (each: Publisher) => (await shownAll([each]))[0]!;
  const id = { id: 'The ID of the rule' };
  return [
    operation({
      method: 'get',
      path: '/publishers',
      id: 'listPublishers',
      summary: 'List the rules by which identity tokens are exchanged; an account has at most 400',
      action: 'admin',
      query: z.object({ q: filterText('Only rules whose names contain this text, in any letter case') }),
      status: 200,
      answer: publisherList,
      run: async ({ principal, query }) => {
        const all = await publishers.list(principal.accountId);
        return {
          items: await shownAll(
            all.filter((each) => sees(principal, each) && each.name.toLowerCase().includes(query.q)),
          ),
          next_cursor: null,
        };
      },
    }),
    operation({
      method: 'post',
      path: '/publishers',
      id: 'createPublisher',
      summary:
        'Create a rule: identity tokens with these claims are exchanged for tokens that are valid for 15 minutes',
      action: 'admin',
      lasting: true,
      body: publisherRequest,
      status: 201,
      answer: publisher,
      run: async ({ principal, body }) => {
        allowToken(principal, body.scopes, body.patterns ?? null);
        return shown(await publishers.create(principal.accountId, body));
      },
    }),
    operation({
      method: 'post',
      path: '/publishers/explain',
      id: 'explainPublishers',
      summary:
        'Compare an identity token with the rules of the account. It is not exchanged, and can be used afterwards',
      action: 'admin',
      body: explainRequest,
      status: 200,
      answer: explanation,
      run: async ({ principal, body }) => {
        const { rules, claims, ...rest } = await exchange.explain(principal.accountId, body.token.trim());
        const visible = rules.filter((each) => sees(principal, each.publisher));
        return {
          ...rest,
          claims: { ...claims },
          rules: visible.map(({ publisher: { id: ruleId, name, issuer }, missed }) => ({
            id: ruleId,
            name,
            issuer,
            matches: rest.problem === null && missed?.length === 0,
            mismatches: missed && missed.map((each) => ({ ...each, wanted: [...each.wanted], found: [...each.found] })),
          })),
        };
      },
    }),
    operation({
      method: 'get',
      path: '/publishers/:id',
      id: 'getPublisher',
      summary: 'Get one rule',
      action: 'admin',
      params: id,
      status: 200,
      answer: publisher,
      run: async ({ principal, params }) => {
        const found = await publishers.get(principal.accountId, params['id']!);
        allowToken(principal, [], found.patterns);
        return shown(found);
      },
    }),
    operation({
      method: 'put',
      path: '/publishers/:id',
      id: 'updatePublisher',
      summary: 'Replace a rule, and revoke the tokens that it gave',
      action: 'admin',
      lasting: true,
      params: id,
      body: publisherRequest,
      status: 200,
      answer: publisher,
      run: async ({ principal, params, body }) => {
        allowToken(principal, body.scopes, body.patterns ?? null);
        // With other claims, the scopes that it had would be given to others.
        const allowed = (before: Publisher) => allowToken(principal, before.scopes, before.patterns);
        return shown(await publishers.update(principal.accountId, params['id']!, body, allowed));
      },
    }),
    operation({
      method: 'delete',
      path: '/publishers/:id',
      id: 'deletePublisher',
      summary: 'Delete a rule, and revoke the tokens that it gave',
      action: 'admin',
      params: id,
      status: 204,
      run: ({ principal, params }) =>
        publishers.delete(principal.accountId, params['id']!, (before) => allowObject(principal, before)),
    }),
    operation({
      method: 'get',
      path: '/trusted-issuers',
      id: 'listTrustedIssuers',
      summary: 'List the issuers of the setting trustedIssuers',
      action: 'admin',
      status: 200,
      answer: trustedIssuerList,
      run: () => {
        const items = publishers.issuers.map(({ name, issuer, audience, kind }) => ({ name, issuer, audience, kind }));
        return Promise.resolve({ items, next_cursor: null });
      },
    }),
  ];
}

function sees(principal: Principal, { patterns }: Publisher): boolean {
  return !principal.names || coversPatterns(principal, patterns);
}

function toPublisher(
  each: Publisher,
  publishers: Publishers,
  lastUsedAt: number | undefined,
): z.input<typeof publisher> {
  const { accountId: _accountId, claims, ...rest } = each;
  return {
    ...jsonItem(rest),
    claims: Object.fromEntries(Object.entries(claims).map(([claim, values]) => [claim, [...values]])),
    patterns: shownPatterns(each.patterns),
    last_used_at: timeOrNull(lastUsedAt ?? null),
    warnings: publishers.warningsOf(each),
  };
}
