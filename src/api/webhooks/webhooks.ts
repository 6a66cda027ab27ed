import { z } from 'zod';
import { allowedAs, forAction } from '../../accounts/allow.ts';
import type { Principal } from '../../accounts/principal.ts';
import { matchesType } from '../../events/event.ts';
import { attemptItem, deliveryItem, type DeliveryRow } from '../../webhooks/delivery.ts';
import type { OpenWebhooks } from '../../webhooks/open.ts';
import { firstRanked, type Rank } from '../../runtime/ranked.ts';
import { maxNameLength, maxWebhooks, stateOfWebhook, webhookItem, type Webhook } from '../../webhooks/webhook.ts';
import { operation, type OperationCall, type Operation } from '../framework/operation.ts';
import { pageQuery, readPage } from '../framework/paging.ts';
import { shownPatterns } from '../framework/schemas.ts';
import { sortedPage } from '../framework/sorted.ts';
import {
  deliveryList,
  webhookList,
  changedWebhook,
  delivery,
  deliveryDetails,
  newWebhook,
  redelivered,
  redeliverRequest,
  webhook,
  webhookChange,
  webhookRequest,
  webhooksQuery,
  webhookTest,
} from './webhook-schemas.ts';

const action = 'admin';
const allNames = 'A token with name patterns cannot use webhooks, because events have all names.';
const idParameter = { id: 'The ID of the webhook' };

/** The place of a webhook in each order. Names may be the same; the start of a host is enough, because a cursor has a bound. */
const ranks: Readonly<Record<'name' | 'created', (webhook: Webhook) => Rank>> = {
  name: ({ name, url, id }) => [null, `${(name || new URL(url).host.slice(0, maxNameLength)).toLowerCase()} ${id}`],
  created: ({ createdAt, id }) => [createdAt, id],
};

/**
 * `/webhooks`. All operations need the scope `admin` and a token without name patterns, because events have all names. A
 * webhook that gets events of no account needs the scope `operate`, too, and is listed only with it.
 */
export function webhookOperations(open: OpenWebhooks): Operation[] {
  const { webhooks } = open;
  /** The webhook that a request names. All operations load it here, so that each checks the right to it. */
  const named = async ({ principal, params }: Pick<OperationCall<unknown, unknown>, 'principal' | 'params'>) => {
    const found = await webhooks.get(principal.accountId, params['id']!);
    if (!sees(principal, found)) allowedAs(principal, 'operate', allNames);
    return found;
  };
  return [
    operation({
      method: 'get',
      path: '/webhooks',
      id: 'listWebhooks',
      summary:
        'List the webhooks of the account, without their secrets, by their creation, their name, or the latest first',
      action,
      allNames,
      query: webhooksQuery,
      status: 200,
      answer: webhookList,
      run: async ({ principal, query }) => {
        const { q, state, event, sort } = query;
        const { accountId } = principal;
        const isVisible = (each: Webhook) =>
          sees(principal, each) &&
          (state === undefined || stateOfWebhook(each) === state) &&
          (event === undefined || each.events.some((pattern) => matchesType(pattern, event))) &&
          (each.name.toLowerCase().includes(q) || each.url.toLowerCase().includes(q));
        const all = () => webhooks.list(accountId, maxWebhooks);
        const total = query.total === '1' && { total: { count: (await all()).filter(isVisible).length } };
        if (sort !== undefined) {
          const ranked = async (limit: number, after: Rank | undefined) =>
            firstRanked(await all(), { rankOf: ranks[sort], isShown: () => true, after, limit });
          const { entries, next_cursor } = await sortedPage(query, 'webhooks', [{ ranked }], isVisible);
          return { items: entries.map(shownWebhook), next_cursor, ...total };
        }
        const { entries, next_cursor } = await readPage(query, {
          name: 'webhooks',
          key: z.tuple([z.int(), z.string()]),
          keyOf: (each: Webhook) => [each.createdAt, each.id] as [number, string],
          read: (limit, after) => webhooks.list(accountId, limit, after),
          isVisible,
        });
        return { items: entries.map(shownWebhook), next_cursor, ...total };
      },
    }),
    operation({
      method: 'post',
      path: '/webhooks',
      id: 'createWebhook',
      summary: 'Create a webhook, which sends events of the account to a URL. Only this answer contains its secret',
      action,
      allNames,
      lasting: true,
      body: webhookRequest,
      status: 201,
      answer: newWebhook,
      run: async ({ principal, body }) => {
        const operate = hasOperate(principal);
        const created = await webhooks.create(principal.accountId, { ...body, operate });
        return { ...shownWebhook(created.webhook), secret: created.secret };
      },
    }),
    operation({
      method: 'get',
      path: '/webhooks/:id',
      id: 'getWebhook',
      summary: 'Show a webhook, without its secret',
      action,
      allNames,
      params: idParameter,
      status: 200,
      answer: webhook,
      run: async (call) => shownWebhook(await named(call)),
    }),
    operation({
      method: 'patch',
      path: '/webhooks/:id',
      id: 'changeWebhook',
      summary:
        'Change a webhook, or rotate its secret, which the answer then contains. One that gets events of no account needs the scope operate, too',
      action,
      allNames,
      lasting: true,
      params: idParameter,
      body: webhookChange,
      status: 200,
      answer: changedWebhook,
      run: async (call) => {
        const { id, accountId } = await named(call);
        const { rotate_secret: rotateSecret, ...change } = call.body;
        const { webhook: changed, secret } = await webhooks.change(accountId, id, { ...change, rotateSecret });
        return { ...shownWebhook(changed), ...(secret !== undefined && { secret }) };
      },
    }),
    operation({
      method: 'delete',
      path: '/webhooks/:id',
      id: 'deleteWebhook',
      summary: 'Delete a webhook and its deliveries',
      action,
      allNames,
      params: idParameter,
      status: 204,
      run: async (call) => {
        const { id, accountId } = await named(call);
        await webhooks.delete(accountId, id);
      },
    }),
    operation({
      method: 'post',
      path: '/webhooks/:id/test',
      id: 'testWebhook',
      summary: 'Send an event of type entrepot.webhook.test once, and show the result',
      action,
      allNames,
      params: idParameter,
      status: 200,
      answer: webhookTest,
      run: async (call) => {
        const { id, accountId } = await named(call);
        const { id: message, attempt } = await open.test(accountId, call.principal.accountName, id);
        return { id: message, ...attemptItem(message, attempt) };
      },
    }),
    operation({
      method: 'get',
      path: '/webhooks/:id/deliveries',
      id: 'listWebhookDeliveries',
      summary: 'List the deliveries of the last 14 days with their last attempts, the latest first',
      action,
      allNames,
      params: idParameter,
      query: pageQuery,
      status: 200,
      answer: deliveryList,
      run: async (call) => {
        const { id, accountId } = await named(call);
        const { entries, next_cursor } = await readPage(call.query, {
          name: `webhooks/${id}`,
          key: z.tuple([z.int()]),
          keyOf: ({ number }: DeliveryRow) => [number] as [number],
          read: (limit, after) => webhooks.deliveries(accountId, id, limit, after?.[0]),
        });
        return { items: entries.map(deliveryItem), next_cursor };
      },
    }),
    operation({
      method: 'get',
      path: '/webhooks/:id/deliveries/:delivery',
      id: 'getWebhookDelivery',
      summary: 'Show a delivery with its last attempt and the body of its requests',
      action,
      allNames,
      params: { ...idParameter, delivery: 'The ID of the delivery' },
      status: 200,
      answer: deliveryDetails,
      run: async (call) => {
        const { id, accountId } = await named(call);
        const row = await webhooks.delivery(accountId, id, call.params['delivery']!);
        return { ...deliveryItem(row), request_body: row.body };
      },
    }),
    operation({
      method: 'post',
      path: '/webhooks/:id/deliveries/:delivery/redeliver',
      id: 'redeliverWebhookDelivery',
      summary: 'Send a delivery again, with all attempts',
      action,
      allNames,
      params: { ...idParameter, delivery: 'The ID of the delivery' },
      status: 200,
      answer: delivery,
      run: async (call) => {
        const { id, accountId } = await named(call);
        return deliveryItem(await webhooks.redeliver(accountId, id, call.params['delivery']!));
      },
    }),
    operation({
      method: 'post',
      path: '/webhooks/:id/redeliver',
      id: 'redeliverWebhook',
      summary: 'Send all deliveries since a time again, with all attempts',
      action,
      allNames,
      params: idParameter,
      body: redeliverRequest,
      status: 200,
      answer: redelivered,
      run: async (call) => {
        const { id, accountId } = await named(call);
        return { deliveries: await webhooks.redeliverSince(accountId, id, Date.parse(call.body.since)) };
      },
    }),
  ];
}

/** Whether the principal has the right to a webhook: one that gets events of no account needs the scope `operate`. */
function sees(principal: Principal, { operate }: Webhook): boolean {
  return !operate || hasOperate(principal);
}

/** Whether it has the scope `operate` for all names. */
function hasOperate(principal: Principal): boolean {
  return principal.scopes.has('operate') && forAction(principal, 'operate').names === undefined;
}

function shownWebhook(each: Webhook) {
  return { ...webhookItem(each), patterns: shownPatterns(each.patterns) };
}
