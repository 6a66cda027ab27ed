import { z } from 'zod';
import { allow, isAllowed } from '../../accounts/allow.ts';
import type { People } from '../../accounts/people.ts';
import type { Principal } from '../../accounts/principal.ts';
import { requesterOf } from '../../accounts/requester.ts';
import { kindOfWord, protocolWords } from '../../config/protocols.ts';
import { maxPromotionReason, promotionStates, type Promotion } from '../../promotion/promotion.ts';
import type { Promotions } from '../../promotion/promotions.ts';
import { DomainError } from '../../runtime/errors.ts';
import { operation, type Operation, type OperationCall } from '../framework/operation.ts';
import { actor, listOf, time, timeOf, timeOrNull } from '../framework/schemas.ts';
import { filterText, timedPage, timedQuery, countedTotal } from '../framework/sorted.ts';

const words = protocolWords.map(({ word }) => word);
const kind = z.enum(words, `expected ${words.join(' or ')}`);

export const promotionItem = z
  .strictObject({
    id: z.int().meta({ description: 'Its number' }),
    state: z.enum(promotionStates),
    kind,
    from_account: z.string().nullable(),
    name: z.string().meta({ description: 'The name of what is promoted, where it comes from' }),
    reference: z.string().meta({ description: 'The version, tag or digest that was named' }),
    digest: z.string().meta({
      description:
        'What it meant when it was asked for, and what is promoted: the digest of the manifest or of the nupkg',
    }),
    to_account: z.string().nullable(),
    to_name: z.string(),
    reason: z.string(),
    requested_by: actor.nullable().meta({ description: 'null without the scope promote or admin' }),
    requested_at: time,
    decided_by: actor.nullable().meta({ description: 'null without the scope promote or admin' }),
    decided_at: time.nullable(),
    is_own: z.boolean().meta({ description: 'Whether the sender asked for it' }),
  })
  .meta({ id: 'Promotion' });
export const promotionList = listOf(promotionItem).extend({ total: countedTotal });

const promotionBody = z
  .strictObject({
    kind,
    name: z.string().trim().min(1, 'expected a name').max(255),
    reference: z.string().trim().min(1, 'expected a version, a tag or a digest').max(255),
    to_account: z
      .string()
      .trim()
      .min(1, 'expected the name of an account')
      .max(100)
      .optional()
      .meta({ description: 'The own account by default' }),
    to_name: z
      .string()
      .trim()
      .min(1, 'expected a name')
      .max(255)
      .optional()
      .meta({ description: 'The same name by default. A package keeps its ID' }),
    reason: z.string().trim().max(maxPromotionReason).default(''),
  })
  .meta({ id: 'PromotionRequest' });

const idParameter = { id: 'The number of the promotion' };

export interface PromotionOperationParts {
  promotions: Promotions;
  people: People;
  accountName: (accountId: number) => Promise<string | undefined>;
}

type Call = Pick<OperationCall<unknown, unknown>, 'principal' | 'params'>;

/** `/promotions`: content that appears in another account or under another name, without a push. */
export function promotionOperations({ promotions, people, accountName }: PromotionOperationParts): Operation[] {
  const item = async (promotion: Promotion, principal: Principal): Promise<z.input<typeof promotionItem>> => {
    const { from, to } = promotion;
    const isOwn = promotion.requester === requesterOf(principal);
    const seesPeople = principal.scopes.has('promote') || principal.scopes.has('admin');
    return {
      id: promotion.id,
      state: promotion.state,
      kind: protocolWords.find((each) => each.kind === promotion.kind)!.word,
      from_account: (await accountName(from.accountId)) ?? null,
      name: from.name,
      reference: promotion.reference,
      digest: promotion.digest,
      to_account: (await accountName(to.accountId)) ?? null,
      to_name: to.name,
      reason: promotion.reason,
      requested_by: seesPeople || isOwn ? promotion.requestedBy : null,
      requested_at: timeOf(promotion.requestedAt),
      decided_by: seesPeople ? promotion.decidedBy : null,
      decided_at: timeOrNull(promotion.decidedAt),
      is_own: isOwn,
    };
  };
  /** The promotion that a request names, which its sender may see. */
  const named = async ({ principal, params }: Call) => {
    const found = await promotions.get(principal.accountId, numberOf(params['id']!));
    if (sees(principal, found)) return found;
    throw new DomainError('NotFound', `There is no promotion ${found.id} in this account.`);
  };
  return [
    operation({
      method: 'get',
      path: '/promotions',
      id: 'listPromotions',
      summary: 'List the promotions from the account and to it, the latest first',
      action: 'account',
      query: timedQuery.extend({
        q: filterText('Only names that contain this text, in any letter case'),
        state: z
          .enum(promotionStates, `expected one of ${promotionStates.join(', ')}`)
          .optional()
          .meta({ description: 'Only promotions in this state' }),
      }),
      status: 200,
      answer: promotionList,
      run: async ({ principal, query }) => {
        const { entries, ...page } = await timedPage(query, {
          name: 'promotions',
          key: z.tuple([z.int()]),
          keyOf: ({ id }: Promotion) => [id] as [number],
          read: (limit, after, isOldest) =>
            promotions.list(principal.accountId, query.state, limit, { after: after?.[0], isOldest }),
          isVisible: (each) =>
            sees(principal, each) && [each.from, each.to].some(({ name }) => name.toLowerCase().includes(query.q)),
        });
        return { items: await Promise.all(entries.map((each) => item(each, principal))), ...page };
      },
    }),
    operation({
      method: 'post',
      path: '/promotions',
      id: 'promote',
      summary:
        'Promote a version, a tag or a digest of the account to another account or name: at once, or, where somebody has to approve it, as a request',
      action: 'promote',
      body: promotionBody,
      status: 201,
      answer: promotionItem,
      run: async ({ principal, body }) => {
        const nameKind = kindOfWord(body.kind)!;
        const permit = (name: string) => allow(principal, 'promote', nameKind, name.toLowerCase());
        permit(body.name);
        const { accountId: id, accountName: name } = principal;
        const made = await promotions.request({
          kind: nameKind,
          account: { id, name },
          name: body.name,
          reference: body.reference,
          toAccount: body.to_account ?? name,
          toName: body.to_name,
          reason: body.reason,
          requester: requesterOf(principal),
          mayPromoteIn: async (account) => {
            const there =
              principal.kind === 'person' ? await people.principalOfId(principal.personId, account) : undefined;
            return (
              there !== undefined && isAllowed(there, 'promote', nameKind, (body.to_name ?? body.name).toLowerCase())
            );
          },
          permit,
        });
        return item(made, principal);
      },
    }),
    operation({
      method: 'get',
      path: '/promotions/:id',
      id: 'getPromotion',
      summary: 'Show a promotion from the account or to it',
      action: 'account',
      params: idParameter,
      status: 200,
      answer: promotionItem,
      run: async (call) => item(await named(call), call.principal),
    }),
    operation({
      method: 'post',
      path: '/promotions/:id/approve',
      id: 'approvePromotion',
      summary:
        'Approve a promotion to the account: what was asked for, its digest, appears there at once. One that is done stays as it is',
      action: 'promote',
      params: idParameter,
      status: 200,
      answer: promotionItem,
      run: async (call) => {
        const { principal } = call;
        const { id, kind: nameKind, to } = await named(call);
        if (to.accountId !== principal.accountId)
          throw new DomainError('Denied', `The promotion ${id} goes to another account, which approves or rejects it.`);
        allow(principal, 'promote', nameKind, to.name.toLowerCase());
        return item(await promotions.approve(id, requesterOf(principal)), principal);
      },
    }),
    operation({
      method: 'post',
      path: '/promotions/:id/reject',
      id: 'rejectPromotion',
      summary: 'Reject a promotion to the account, or withdraw one from it',
      action: 'promote',
      params: idParameter,
      status: 200,
      answer: promotionItem,
      run: async (call) => {
        const { principal } = call;
        const { id, kind: nameKind, from, to } = await named(call);
        const side = to.accountId === principal.accountId ? to : from;
        allow(principal, 'promote', nameKind, side.name.toLowerCase());
        return item(await promotions.reject(id, principal.accountId), principal);
      },
    }),
  ];
}

/** Whether the name patterns of a principal show it a promotion: by the name on the side of its account. */
function sees(principal: Principal, { kind: nameKind, from, to }: Promotion): boolean {
  const names = principal.names?.of(nameKind);
  const own = [from, to].filter(({ accountId }) => accountId === principal.accountId);
  return names === undefined || own.some(({ name }) => names.includes(name.toLowerCase()));
}

function numberOf(text: string): number {
  return /^\d{1,15}$/.test(text) ? Number(text) : 0;
}
