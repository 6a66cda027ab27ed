import { z } from 'zod';
import { approvals, maxSources, type PromotionRules } from '../../promotion/rules.ts';
import { operation, type Operation } from '../framework/operation.ts';

export const promotionRules = z
  .strictObject({
    promote_only: z.boolean().default(false).meta({
      description: 'Whether the account takes no pushes of packages and images, only promotions',
    }),
    approval: z
      .enum(approvals, `expected ${approvals.join(' or ')}`)
      .default('none')
      .meta({
        description:
          '`another`: another person than the requester approves each promotion. `none`: only requests of other accounts need approval, by a token or person with the scope promote',
      }),
    from: z
      .array(z.string().trim().min(1).max(100))
      .max(maxSources)
      .default([])
      .meta({ description: 'The names of the accounts that may ask. For all others, this account does not exist' }),
  })
  .meta({ id: 'PromotionRules' });

const allNames = 'A token with name patterns cannot use the rules for promotions, because they concern all names.';

/** `/account/promotion`: what an account says about promotions to it. */
export function promotionRuleOperations(rules: PromotionRules): Operation[] {
  const shown = async (accountId: number): Promise<z.input<typeof promotionRules>> => {
    const { promoteOnly, approval, from } = await rules.of(accountId);
    return { promote_only: promoteOnly, approval, from: [...from] };
  };
  return [
    operation({
      method: 'get',
      path: '/account/promotion',
      id: 'getPromotionRules',
      summary: 'Get the rules of the account for promotions to it',
      action: 'account',
      status: 200,
      answer: promotionRules,
      run: ({ principal }) => shown(principal.accountId),
    }),
    operation({
      method: 'put',
      path: '/account/promotion',
      id: 'putPromotionRules',
      summary:
        'Replace the rules of the account for promotions to it: who may ask, who approves, and whether it takes pushes',
      action: 'admin',
      allNames,
      lasting: true,
      body: promotionRules,
      status: 200,
      answer: promotionRules,
      run: async ({ principal: { accountId, accountName }, body }) => {
        const { promote_only: promoteOnly, approval, from } = body;
        await rules.put(accountId, accountName, { promoteOnly, approval, from });
        return shown(accountId);
      },
    }),
  ];
}
