import { z } from 'zod';
import { allowedAs } from '../../accounts/allow.ts';
import type { Tokens } from '../../accounts/tokens.ts';
import { nameKinds } from '../../config/protocols.ts';
import { jsonItem } from '../../runtime/json-item.ts';
import type { Rank } from '../../runtime/ranked.ts';
import type { FailedRequest, FailedRequests } from '../../usage/failed-requests.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { pageQuery, readPage } from '../framework/paging.ts';
import { sortedPage } from '../framework/sorted.ts';
import { count, listOf, time } from '../framework/schemas.ts';

const text = (description: string) => z.string('expected one value').min(1).max(255).optional().meta({ description });

const failuresQuery = pageQuery.extend({
  sort: z
    .enum(['count'], 'expected count, or no order')
    .optional()
    .meta({ description: 'The most frequent first; without it, the latest first' }),
  kind: z
    .enum(nameKinds, `expected one of ${nameKinds.join(', ')}`)
    .optional()
    .meta({ description: 'Only requests for this kind of names' }),
  name: text('Only requests for this package or image, in any letter case'),
  token_id: text('Only requests with this token'),
  upstream: text('Only requests that failed because of the upstream with this name'),
  code: text('Only requests with this kind of error'),
});

const failedRequest = z
  .strictObject({
    kind: z.string().meta({ description: 'What the name is: `package` or `container`' }),
    name: z.string(),
    reference: z.string().nullable().meta({ description: 'The version, tag or digest' }),
    status: z.int().meta({ description: 'The status of the answer' }),
    code: z.string().meta({ description: 'The kind of error' }),
    reason: z.string().meta({ description: 'The problem and what to do' }),
    upstream: z.string().nullable().meta({ description: 'The name of the upstream that caused it' }),
    account: z.string().nullable().meta({ description: 'The name; null if it is deleted' }),
    token_id: z.string().nullable().meta({ description: 'null: an anonymous reader, or a person in the console' }),
    token_name: z
      .string()
      .nullable()
      .meta({ description: 'null also for a deleted token, and for a reader whose token has name patterns' }),
    request_id: z.string().meta({ description: '`X-Request-Id` of the latest one' }),
    count: count.meta({ description: 'Requests that failed in the same way' }),
    first_at: time,
    last_at: time,
  })
  .meta({ id: 'FailedRequest' });
export const failedRequestList = listOf(failedRequest);

/** `/failed-requests`: why clients did not get what they asked for. */
export function failedRequestOperations(
  failures: FailedRequests,
  tokens: Pick<Tokens, 'get'>,
  nameOf: (accountId: number) => Promise<string | undefined>,
): Operation[] {
  const tokenName = async ({ accountId, tokenId }: FailedRequest) =>
    tokenId === null ? null : ((await tokens.get(accountId, tokenId))?.name ?? null);
  return [
    operation({
      method: 'get',
      path: '/failed-requests',
      id: 'listFailedRequests',
      summary:
        'List the requests for packages and images that failed in the last two days, the latest or the most frequent first; equal ones are counted together. Needs the scope admin, which shows those of the account, or operate, which shows all',
      action: 'any',
      query: failuresQuery,
      status: 200,
      answer: failedRequestList,
      run: async ({ principal, query }) => {
        const seesAll = principal.scopes.has('operate');
        const { names } = allowedAs(principal, seesAll ? 'operate' : 'admin');
        const { kind, name, token_id: tokenId, upstream, code } = query;
        const accountId = seesAll ? undefined : principal.accountId;
        const filter = {
          accountId,
          kind,
          names: name === undefined ? undefined : [name.toLowerCase()],
          tokenId,
          upstream,
          code,
        };
        const isVisible = names && ((each: FailedRequest) => names.of(each.kind).includes(each.name));
        const ranked = (limit: number, after: Rank | undefined) => failures.ranked(filter, limit, after);
        const { entries, next_cursor } =
          query.sort !== undefined
            ? await sortedPage(query, 'failed-requests', [{ ranked }], isVisible)
            : await readPage<FailedRequest, [number, string]>(query, {
                name: 'failed-requests',
                key: z.tuple([z.int(), z.string()]),
                keyOf: ({ lastAt, id }) => [lastAt, id],
                read: (limit, after) => failures.list(filter, limit, after),
                isVisible,
              });
        const items = await Promise.all(
          entries.map(async (entry) => {
            const { id: _id, accountId: account, reference, ...each } = entry;
            return {
              ...jsonItem(each),
              token_name: names ? null : await tokenName(entry),
              reference: reference || null,
              account: (await nameOf(account)) ?? null,
            };
          }),
        );
        return { items, next_cursor };
      },
    }),
  ];
}
