import { z } from 'zod';
import { allow } from '../accounts/allow.ts';
import type { Principal } from '../accounts/principal.ts';
import { DomainError } from '../errors.ts';
import { attemptItem, deliveryItem, type DeliveryRow } from '../webhooks/delivery.ts';
import type { OpenWebhooks } from '../webhooks/open.ts';
import { webhookItem, type Webhook } from '../webhooks/webhook.ts';
import { operation, type Operation } from './operation.ts';
import { pageQuery, readPage } from './paging.ts';
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
  webhookTest,
} from './webhook-schemas.ts';

const action = 'admin';
const idParameter = { id: 'The ID of the webhook' };

/** `/webhooks`. All operations need the scope `admin` and a token without name patterns, because events have all names. */
export function webhookOperations(open: OpenWebhooks): Operation[] {
  const { webhooks } = open;
  return [
    operation({
      method: 'get',
      path: '/webhooks',
      id: 'listWebhooks',
      summary: 'List the webhooks of the account, without their secrets',
      action,
      query: pageQuery,
      status: 200,
      answer: webhookList,
      run: async ({ principal, query }) => {
        const account = accountOf(principal);
        const { entries, next_cursor } = await readPage(query, {
          name: 'webhooks',
          key: z.tuple([z.int(), z.string()]),
          keyOf: (each: Webhook) => [each.createdAt, each.id] as [number, string],
          read: (limit, after) => webhooks.list(account, limit, after),
        });
        return { items: entries.map(webhookItem), next_cursor };
      },
    }),
    operation({
      method: 'post',
      path: '/webhooks',
      id: 'createWebhook',
      summary: 'Create a webhook, which sends events of the account to a URL. Only this answer contains its secret',
      action,
      body: webhookRequest,
      status: 201,
      answer: newWebhook,
      run: async ({ principal, body }) => {
        const operate = principal.scopes.has('operate');
        const created = await webhooks.create(accountOf(principal), { ...body, operate });
        return { ...webhookItem(created.webhook), secret: created.secret };
      },
    }),
    operation({
      method: 'get',
      path: '/webhooks/:id',
      id: 'getWebhook',
      summary: 'Show a webhook, without its secret',
      action,
      params: idParameter,
      status: 200,
      answer: webhook,
      run: async ({ principal, params }) => webhookItem(await webhooks.get(accountOf(principal), params['id']!)),
    }),
    operation({
      method: 'patch',
      path: '/webhooks/:id',
      id: 'changeWebhook',
      summary:
        'Change a webhook, or rotate its secret, which the answer then contains. One that gets events of no account needs the scope operate, too',
      action,
      params: idParameter,
      body: webhookChange,
      status: 200,
      answer: changedWebhook,
      run: async ({ principal, params, body }) => {
        const account = accountOf(principal);
        const id = params['id']!;
        // Otherwise an administrator of the account could send events of no account to another address.
        if ((await webhooks.get(account, id)).operate) allow(principal, 'operate');
        const { rotate_secret: rotateSecret, ...change } = body;
        const { webhook: changed, secret } = await webhooks.change(account, id, { ...change, rotateSecret });
        return { ...webhookItem(changed), ...(secret !== undefined && { secret }) };
      },
    }),
    operation({
      method: 'delete',
      path: '/webhooks/:id',
      id: 'deleteWebhook',
      summary: 'Delete a webhook and its deliveries',
      action,
      params: idParameter,
      status: 204,
      run: ({ principal, params }) => webhooks.delete(accountOf(principal), params['id']!),
    }),
    operation({
      method: 'post',
      path: '/webhooks/:id/test',
      id: 'testWebhook',
      summary: 'Send an event of type entrepot.webhook.test once, and show the result',
      action,
      params: idParameter,
      status: 200,
      answer: webhookTest,
      run: async ({ principal, params }) => {
        const { id, attempt } = await open.test(accountOf(principal), principal.accountName, params['id']!);
        return { id, ...attemptItem(id, attempt) };
      },
    }),
    operation({
      method: 'get',
      path: '/webhooks/:id/deliveries',
      id: 'listWebhookDeliveries',
      summary: 'List the deliveries of the last 14 days with their last attempts, the latest first',
      action,
      params: idParameter,
      query: pageQuery,
      status: 200,
      answer: deliveryList,
      run: async ({ principal, params, query }) => {
        const account = accountOf(principal);
        const id = params['id']!;
        const { entries, next_cursor } = await readPage(query, {
          name: `webhooks/${id}`,
          key: z.tuple([z.int()]),
          keyOf: ({ number }: DeliveryRow) => [number] as [number],
          read: (limit, after) => webhooks.deliveries(account, id, limit, after?.[0]),
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
      params: { ...idParameter, delivery: 'The ID of the delivery' },
      status: 200,
      answer: deliveryDetails,
      run: async ({ principal, params }) => {
        const row = await webhooks.delivery(accountOf(principal), params['id']!, params['delivery']!);
        return { ...deliveryItem(row), request_body: row.body };
      },
    }),
    operation({
      method: 'post',
      path: '/webhooks/:id/deliveries/:delivery/redeliver',
      id: 'redeliverWebhookDelivery',
      summary: 'Send a delivery again, with all attempts',
      action,
      params: { ...idParameter, delivery: 'The ID of the delivery' },
      status: 200,
      answer: delivery,
      run: async ({ principal, params }) =>
        deliveryItem(await webhooks.redeliver(accountOf(principal), params['id']!, params['delivery']!)),
    }),
    operation({
      method: 'post',
      path: '/webhooks/:id/redeliver',
      id: 'redeliverWebhook',
      summary: 'Send all deliveries since a time again, with all attempts',
      action,
      params: idParameter,
      body: redeliverRequest,
      status: 200,
      answer: redelivered,
      run: async ({ principal, params, body }) => ({
        deliveries: await webhooks.redeliverSince(accountOf(principal), params['id']!, Date.parse(body.since)),
      }),
    }),
  ];
}

/** Throws `NameDenied` for a token that is limited to names. */
function accountOf({ accountId, names }: Principal): number {
  if (!names) return accountId;
  throw new DomainError('NameDenied', 'A token with name patterns cannot use webhooks, because events have all names.');
}
