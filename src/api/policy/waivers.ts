import { z } from 'zod';
import { allow, allowedAs } from '../../accounts/allow.ts';
import type { Principal } from '../../accounts/principal.ts';
import { requesterOf } from '../../accounts/requester.ts';
import { kindOfWord, protocolWords } from '../../config/protocols.ts';
import type { NameStory } from '../../mirror/policy/upstream-policy.ts';
import { stateAt, waiverStates, type Waiver } from '../../policy/waiver.ts';
import { liftable, liftedPattern, maxReason, maxWaiverReferences } from '../../policy/waiver-request.ts';
import type { Waivers } from '../../policy/waivers.ts';
import { DomainError } from '../../runtime/errors.ts';
import { operation, type Operation, type OperationCall } from '../framework/operation.ts';
import { actor, givenTime, listOf, time, timeOf, timeOrNull } from '../framework/schemas.ts';
import { filterText, timedPage, timedQuery, countedTotal } from '../framework/sorted.ts';

const words = protocolWords.map(({ word }) => word);
const kind = z.enum(words, `expected ${words.join(' or ')}`);

export const waiverItem = z
  .strictObject({
    id: z.int().meta({ description: 'Its number' }),
    state: z.enum(waiverStates),
    account: z.string().nullable().meta({ description: 'The account for which it holds' }),
    layer: z
      .enum(['account', 'all'])
      .nullable()
      .meta({ description: 'The policy of which it lifts something for the account; null before it was approved' }),
    kind,
    name: z.string(),
    references: z
      .array(z.string())
      .meta({ description: 'Versions, ranges of versions, tags, and the digests that tags had when it was requested' }),
    lifts: z.string(),
    reason: z.string(),
    requested_by: actor.nullable().meta({ description: 'null without the scope admin' }),
    requested_at: time,
    decided_by: actor.nullable().meta({ description: 'Who approved or rejected it; null without the scope admin' }),
    decided_at: time.nullable(),
    expires_at: time,
    ended_at: time.nullable(),
    is_own: z.boolean().meta({ description: 'Whether the sender requested it, and so cannot decide it' }),
  })
  .meta({ id: 'Waiver' });
export const waiverList = listOf(waiverItem).extend({ total: countedTotal });

const waiverBody = z
  .strictObject({
    kind,
    name: z.string().trim().min(1, 'expected a name').max(255),
    references: z
      .array(z.string().trim().min(1, 'expected a version, a tag or a digest').max(255))
      .min(1, 'name a version, a tag or a digest')
      .max(maxWaiverReferences)
      .meta({
        description:
          'Versions, bounded ranges of versions such as `[2.0.0, 2.1.0)`, tags and digests. A tag means the digest that it has now',
      }),
    lifts: z.string().trim().regex(liftedPattern, `expected ${liftable}`).meta({
      description:
        '`age`, `withdrawn`, `republished`, the name of a rule, or the ID of an advisory or of an entry of a list',
    }),
    reason: z.string().trim().min(1, 'say why it is needed').max(maxReason),
    expires_at: givenTime.meta({ description: 'RFC 3339, at most the setting `waivers.longest` from now' }),
  })
  .meta({ id: 'WaiverRequest' });

const layerQuery = z.object({
  layer: z.enum(['account', 'all'], 'expected account or all').default('account').meta({
    description:
      '`all` concerns the policy of all accounts and the waivers of all accounts, and needs the scope `operate`',
  }),
});

const idParameter = { id: 'The number of the waiver' };

export interface WaiverOperationParts {
  waivers: Waivers;
  protocols: readonly { kind: string; explain(accountId: number, name: string): Promise<NameStory> }[];
  accountName: (accountId: number) => Promise<string | undefined>;
  now: () => number;
}

type Call = Pick<OperationCall<z.output<typeof layerQuery>, unknown>, 'principal' | 'params' | 'query'>;

/**
 * `/waivers`: what is let through although a policy refuses it. Who may read a name can request one; another person, rule or
 * token decides it, for the policy of the account with `admin`, and for that of all accounts with `operate`.
 */
export function waiverOperations({ waivers, protocols, accountName, now }: WaiverOperationParts): Operation[] {
  const item = async (waiver: Waiver, principal: Principal): Promise<z.input<typeof waiverItem>> => {
    const isOwn = waiver.requester === requesterOf(principal);
    const seesPeople = principal.scopes.has('admin') || principal.scopes.has('operate');
    return {
      id: waiver.id,
      state: stateAt(waiver, now()),
      account: (await accountName(waiver.accountId)) ?? null,
      layer: waiver.layer,
      kind: waiver.kind,
      name: waiver.name,
      references: [...waiver.references],
      lifts: waiver.lifts,
      reason: waiver.reason,
      requested_by: seesPeople || isOwn ? waiver.requestedBy : null,
      requested_at: timeOf(waiver.requestedAt),
      decided_by: seesPeople ? waiver.decidedBy : null,
      decided_at: timeOrNull(waiver.decidedAt),
      expires_at: timeOf(waiver.expiresAt),
      ended_at: timeOrNull(waiver.endedAt),
      is_own: isOwn,
    };
  };
  /** The waiver that a request names, which its sender may see. All operations load it here. */
  const named = async ({ principal, params, query: { layer } }: Call, decides = false) => {
    const by = viewer(principal, layer, decides);
    const found = await waivers.get(layer === 'all' ? undefined : principal.accountId, numberOf(params['id']!));
    if (!sees(by, found)) throw new DomainError('NotFound', `There is no waiver ${found.id} in this account.`);
    return found;
  };
  const decide = async (call: Call, state: 'approved' | 'rejected') => {
    const {
      principal,
      query: { layer },
    } = call;
    const { id, accountId, key, kind: word } = await named(call, true);
    allow(principal, layer === 'all' ? 'operate' : 'admin', kindOfWord(word), key);
    const decision = state === 'approved' ? { state, layer } : { state };
    return item(await waivers.decide(accountId, id, decision, requesterOf(principal)), principal);
  };
  return [
    operation({
      method: 'get',
      path: '/waivers',
      id: 'listWaivers',
      summary: 'List the waivers of the account, or with `layer=all` of all accounts, the latest first',
      action: 'account',
      query: timedQuery.extend({
        ...layerQuery.shape,
        q: filterText('Only names that contain this text, in any letter case'),
        state: z
          .enum(waiverStates, `expected one of ${waiverStates.join(', ')}`)
          .optional()
          .meta({ description: 'Only waivers in this state' }),
      }),
      status: 200,
      answer: waiverList,
      run: async ({ principal, query }) => {
        const { layer, state } = query;
        const by = viewer(principal, layer);
        const accountId = layer === 'all' ? undefined : principal.accountId;
        const { entries, ...page } = await timedPage(query, {
          name: 'waivers',
          key: z.tuple([z.int()]),
          keyOf: ({ id }: Waiver) => [id] as [number],
          read: (limit, after, isOldest) => waivers.list(accountId, state, limit, { after: after?.[0], isOldest }),
          isVisible: (each) => sees(by, each) && each.name.toLowerCase().includes(query.q),
        });
        return { items: await Promise.all(entries.map((each) => item(each, principal))), ...page };
      },
    }),
    operation({
      method: 'post',
      path: '/waivers',
      id: 'requestWaiver',
      summary:
        'Request a waiver for versions, tags or digests that a policy refuses. Another person approves or rejects it',
      action: 'account',
      body: waiverBody,
      status: 201,
      answer: waiverItem,
      run: async ({ principal, body }) => {
        const nameKind = kindOfWord(body.kind)!;
        allow(principal, 'read', nameKind, body.name.toLowerCase());
        const { accountId } = principal;
        const story = await protocols.find((each) => each.kind === nameKind)!.explain(accountId, body.name);
        const resolved = await waivers.resolve(story, body.name, body.references);
        const made = await waivers.request({
          ...resolved,
          accountId,
          kind: body.kind as Waiver['kind'],
          lifts: body.lifts,
          reason: body.reason,
          requester: requesterOf(principal),
          expiresAt: Date.parse(body.expires_at),
        });
        return item(made, principal);
      },
    }),
    operation({
      method: 'get',
      path: '/waivers/:id',
      id: 'getWaiver',
      summary: 'Show a waiver',
      action: 'account',
      params: idParameter,
      query: layerQuery,
      status: 200,
      answer: waiverItem,
      run: async (call) => item(await named(call), call.principal),
    }),
    operation({
      method: 'post',
      path: '/waivers/:id/approve',
      id: 'approveWaiver',
      summary:
        'Approve the request of another person. For the policy of the account, this needs the scope admin; with `layer=all`, for the policy of all accounts, the scope operate',
      action: 'any',
      params: idParameter,
      query: layerQuery,
      status: 200,
      answer: waiverItem,
      run: (call) => decide(call, 'approved'),
    }),
    operation({
      method: 'post',
      path: '/waivers/:id/reject',
      id: 'rejectWaiver',
      summary: 'Reject the request of another person. This needs the same scopes as to approve it',
      action: 'any',
      params: idParameter,
      query: layerQuery,
      status: 200,
      answer: waiverItem,
      run: (call) => decide(call, 'rejected'),
    }),
    operation({
      method: 'delete',
      path: '/waivers/:id',
      id: 'endWaiver',
      summary: 'End a waiver now: an own one, or any with the scope admin, or with `layer=all` and the scope operate',
      action: 'account',
      params: idParameter,
      query: layerQuery,
      status: 204,
      run: async (call) => {
        const {
          principal,
          query: { layer },
        } = call;
        const { id, accountId, requester, kind: word, key } = await named(call, principal.scopes.has('admin'));
        if (layer === 'account' && requester !== requesterOf(principal))
          allow(principal, 'admin', kindOfWord(word), key);
        await waivers.end(accountId, id);
      },
    }),
  ];
}

/** Who looks at waivers, with the names that show them: of `operate` for all accounts, else of `admin` to decide, or of `read`. */
function viewer(principal: Principal, layer: 'account' | 'all', decides = false): Principal {
  if (layer === 'all') return allowedAs(principal, 'operate');
  return decides ? allowedAs(principal, 'admin') : principal;
}

/** Whether the name patterns of a principal show it a waiver. */
function sees(principal: Principal, waiver: Waiver): boolean {
  const names = principal.names?.of(kindOfWord(waiver.kind)!);
  return names === undefined || names.includes(waiver.key) || waiver.requester === requesterOf(principal);
}

function numberOf(text: string): number {
  return /^\d{1,15}$/.test(text) ? Number(text) : 0;
}
