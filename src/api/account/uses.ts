import { z } from 'zod';
import { coversPatterns } from '../../accounts/allow.ts';
import type { Tokens } from '../../accounts/tokens.ts';
import { nameKinds } from '../../config/protocols.ts';
import { DomainError } from '../../runtime/errors.ts';
import { clientKind, type TokenUses } from '../../usage/token-uses.ts';
import { operation, type Operation } from '../framework/operation.ts';
import { count, time, timeOf } from '../framework/schemas.ts';

const kinds = [...nameKinds, clientKind];

const usesQuery = z.object({
  kind: z
    .enum(kinds, `expected one of ${kinds.join(', ')}`)
    .meta({ description: '`client` for the addresses and programs that used a token' }),
  name: z
    .string('expected one name')
    .min(1)
    .max(255)
    .optional()
    .meta({ description: 'The package ID or the image, in any letter case' }),
  token_id: z.string('expected one ID').min(1).max(36).optional().meta({ description: 'The ID of a token or a rule' }),
});

export const useList = z
  .strictObject({
    items: z.array(
      z
        .strictObject({
          kind: z.enum(kinds),
          name: z.string().meta({ description: 'Of a client its address, a space and its `User-Agent`' }),
          token_id: z.string().meta({ description: 'The token; for tokens that a rule gave, the rule' }),
          token_name: z.string().nullable().meta({ description: 'null for a rule, and for a token that is deleted' }),
          downloads: count.meta({ description: 'Since the first use; it begins again after 30 days without a use' }),
          uploads: count.meta({ description: 'As `downloads`' }),
          last_used_at: time,
        })
        .meta({ id: 'TokenUse' }),
    ),
    next_cursor: z.null(),
  })
  .meta({ id: 'TokenUses' });

/** Most uses in an answer. */
const most = 200;

/** `/uses`: with which tokens a name was used, and what a token was used for. */
export function useOperations(uses: TokenUses, tokens: Tokens): Operation[] {
  return [
    operation({
      method: 'get',
      path: '/uses',
      id: 'listUses',
      summary: `List with which token a name was used, for what a token was used, or from where, in the last 30 days: the latest ${most}. Needs \`name\` or \`token_id\``,
      action: 'admin',
      query: usesQuery,
      status: 200,
      answer: useList,
      run: async ({ principal, query: { kind, name, token_id: userId } }) => {
        if ((userId === undefined) === (name === undefined)) throw new DomainError('Invalid', 'Send name or token_id.');
        const { accountId, names } = principal;
        const found =
          userId === undefined
            ? await uses.under(accountId, kind, name!.toLowerCase(), most)
            : await uses.of(accountId, userId, kind, most);
        const ids = [...new Set(found.map((each) => each.userId))];
        const known = new Map(await Promise.all(ids.map(async (id) => [id, await tokens.get(accountId, id)] as const)));
        // A limited token sees the names that it may use, and the tokens within its own limits.
        const isVisible = ({ kind: of, name: each, userId: id }: (typeof found)[number]) => {
          const token = known.get(id);
          if (!names) return true;
          return (
            (of === clientKind || names.of(of).includes(each)) && !!token && coversPatterns(principal, token.patterns)
          );
        };
        const items = found.filter(isVisible).map(({ lastAt, userId: id, ...each }) => ({
          ...each,
          token_id: id,
          token_name: known.get(id)?.name ?? null,
          last_used_at: timeOf(lastAt),
        }));
        return { items, next_cursor: null };
      },
    }),
  ];
}
