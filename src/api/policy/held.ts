import { z } from 'zod';
import { allow } from '../../accounts/allow.ts';
import { nameKinds } from '../../config/protocols.ts';
import { heldItem } from '../../policy/decision-item.ts';
import type { HeldPlace, HeldReferences } from '../../policy/held.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { cursorOf, pageQuery, readCursor } from '../framework/paging.ts';
import { count, listOf, time } from '../framework/schemas.ts';
import { filterText, sortedPage } from '../framework/sorted.ts';
import type { Tokens } from '../../accounts/tokens.ts';
import { refusalCode } from '../../policy/held.ts';
import { jsonItem } from '../../runtime/json-item.ts';
import type { Rank } from '../../runtime/ranked.ts';
import type { FailedRequests } from '../../usage/failed-requests.ts';
import { decisionShape } from '../upstreams/explain.ts';

const heldSchema = z
  .strictObject({
    kind: z.enum(nameKinds),
    name: z.string(),
    reference: z.string().meta({ description: 'A version, or a tag' }),
    upstream: z.string().meta({ description: 'The name of the upstream that offers it' }),
    ...decisionShape,
    below_visible: z.boolean().nullable().meta({
      description: 'Whether clients get a higher version of the package, and so maybe that one; null of an image',
    }),
  })
  .meta({ id: 'HeldReference' });
export const heldList = listOf(heldSchema);

const list = { name: 'held', key: z.tuple([z.int().nullable(), z.string(), z.string(), z.string()]) };

const refusalItem = z
  .strictObject({
    token_id: z.string().nullable().meta({ description: 'null: anonymous readers, and people in the console' }),
    token_name: z.string().nullable().meta({ description: 'null also for a deleted token' }),
    count: count.meta({ description: 'Requests that policies refused in the last two days' }),
    names: count.meta({ description: 'The packages and images that they were for' }),
    last_at: time,
  })
  .meta({ id: 'TokenRefusals' });
const refusalList = listOf(refusalItem);

/** `/held`: what policies refuse the account now, and whose requests they have refused. */
export function heldOperations(
  held: HeldReferences,
  failures: Pick<FailedRequests, 'byToken'>,
  tokens: Pick<Tokens, 'get'>,
): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/held',
      id: 'listHeld',
      summary:
        'List the mirrored versions and tags that policies hold or deny for the account, those first whose list of versions, or whose tag, changed last. No upstream is asked: a package is in the list when clients have asked for it. A page can have few items although there is a next one',
      action: 'operate',
      query: pageQuery.extend({
        kind: z
          .enum(nameKinds, `expected one of ${nameKinds.join(', ')}`)
          .optional()
          .meta({ description: 'Only this kind of names' }),
        q: filterText('Only names that contain this text, in any letter case'),
      }),
      status: 200,
      answer: heldList,
      run: async ({ principal, query: { limit, cursor, kind, q } }) => {
        allow(principal, 'read');
        const { accountId, names } = principal;
        const { items, next } = await held.list(accountId, {
          limit,
          after: placeIn(readCursor(cursor, list)),
          kind,
          isWanted: (of, name) => name.includes(q) && (names?.of(of).includes(name) ?? true),
        });
        return {
          items: items.map(heldItem),
          next_cursor: next ? cursorOf(list.name, keyOf(next)) : null,
        };
      },
    }),
    operation({
      method: 'get',
      path: '/held/refusals',
      id: 'listRefusals',
      summary:
        'List the tokens of the account whose requests policies refused in the last two days, the most frequent first. `/failed-requests?code=Denied` lists the requests. A held package that lists hide causes no refused request',
      action: 'admin',
      allNames: 'This token is limited by name patterns, and the numbers of this list are about all names.',
      query: pageQuery,
      status: 200,
      answer: refusalList,
      run: async ({ principal: { accountId }, query }) => {
        const ranked = (limit: number, after: Rank | undefined) =>
          failures.byToken({ accountId, code: refusalCode }, limit, after);
        const { entries, next_cursor } = await sortedPage(query, 'refusals', [{ ranked }]);
        const items = entries.map(async (each) => ({
          ...jsonItem(each),
          token_name: each.tokenId === null ? null : ((await tokens.get(accountId, each.tokenId))?.name ?? null),
        }));
        return { items: await Promise.all(items), next_cursor };
      },
    }),
  ];
}

function keyOf({ done, entry, reference }: HeldPlace): z.output<typeof list.key> {
  return [done?.[0] ?? null, done?.[1] ?? '', entry, reference];
}

function placeIn(key: z.output<typeof list.key> | undefined): HeldPlace | undefined {
  if (!key) return undefined;
  const [storedAt, id, entry, reference] = key;
  return { done: storedAt === null ? undefined : [storedAt, id], entry, reference };
}
