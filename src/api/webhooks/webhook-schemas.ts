import { z } from 'zod';
import { pageQuery } from '../framework/paging.ts';
import { count, givenPatterns, givenTime, listOf, patterns, time } from '../framework/schemas.ts';
import { filterText, totalFlag } from '../framework/sorted.ts';
import { eventTypes } from '../../events/event.ts';
import { deliveryStates } from '../../webhooks/delivery.ts';
import { maxEventPatterns, maxNameLength, maxUrlLength, webhookStates } from '../../webhooks/webhook.ts';

// The requests and answers of `/v1/webhooks`.

const url = z.string().max(maxUrlLength).meta({ description: 'An http or https URL; https is recommended' });
const name = z
  .string('expected a text')
  .trim()
  .max(maxNameLength, `expected at most ${maxNameLength} characters`)
  .meta({ description: 'For people' });
const events = z
  .array(z.string().max(50))
  .min(1, 'Choose one or more types of events, or all.')
  .max(maxEventPatterns)
  .meta({ description: 'Types of events, groups such as `package.*`, or `*` for all' });
const onlyNames = {
  description:
    'Only events about packages and images with these names, and events about nothing with a name. null: all',
};
const secret = z.string().meta({
  description: 'Verifies the signatures (Standard Webhooks). Only the answers that create or rotate it contain it.',
});

export const webhook = z
  .strictObject({
    id: z.uuid(),
    name: z.string(),
    url: z.string(),
    events: z.array(z.string()),
    patterns: patterns.meta(onlyNames),
    enabled: z.boolean(),
    disabled_reason: z
      .string()
      .nullable()
      .meta({ description: 'Why the server disabled it; null if it is enabled, or if a user disabled it' }),
    failing_since: time.nullable().meta({ description: 'null if the latest attempt succeeded' }),
    operate: z.boolean().meta({
      description: 'Whether it also gets events that concern no account. True if its token had the scope operate',
    }),
    created_at: time,
  })
  .meta({ id: 'Webhook' });

export const newWebhook = webhook.extend({ secret }).meta({ id: 'NewWebhook' });

export const changedWebhook = webhook.extend({ secret: secret.optional() }).meta({ id: 'ChangedWebhook' });

export const webhookRequest = z
  .strictObject({ name: name.default(''), url, events, patterns: givenPatterns.meta(onlyNames) })
  .meta({ id: 'WebhookRequest' });

export const webhookChange = z
  .strictObject({
    name: name.optional(),
    url: url.optional(),
    events: events.optional(),
    patterns: givenPatterns.meta(onlyNames),
    enabled: z.boolean().optional(),
    rotate_secret: z.boolean().optional().meta({
      description: 'true makes a new secret. For 24 hours, requests have the signatures of the new and the old secret',
    }),
  })
  .meta({ id: 'WebhookChange' });

const attempt = {
  at: time,
  duration_ms: z.int().min(0),
  request_headers: z.record(z.string(), z.string()).meta({ description: 'Without the signature' }),
  status: z.int().nullable().meta({ description: 'The status of the answer; null without an answer' }),
  answer: z.string().nullable().meta({ description: 'The first 1024 bytes of the body of the answer' }),
  error: z.string().nullable().meta({ description: 'Why it failed; null if it succeeded' }),
};

export const webhookTest = z.strictObject({ id: z.string(), ...attempt }).meta({ id: 'WebhookTest' });

export const delivery = z
  .strictObject({
    id: z.uuid().meta({ description: 'The header webhook-id of its requests' }),
    event_id: z.string(),
    type: z.string(),
    state: z.enum(deliveryStates),
    attempts: z.int().min(0),
    created_at: time,
    next_attempt_at: time.nullable(),
    last_attempt: z.strictObject(attempt).nullable(),
  })
  .meta({ id: 'WebhookDelivery' });

export const deliveryDetails = delivery
  .extend({ request_body: z.string().meta({ description: 'A CloudEvent as JSON' }) })
  .meta({ id: 'WebhookDeliveryDetails' });

export const redeliverRequest = z
  .strictObject({
    since: givenTime.meta({ description: 'RFC 3339. Deliveries that were made at this time or later' }),
  })
  .meta({ id: 'RedeliverRequest' });

export const redelivered = z.strictObject({ deliveries: z.int().min(0) }).meta({ id: 'Redelivered' });

export const webhooksQuery = pageQuery.extend({
  q: filterText('Only webhooks whose name or URL contains this text, in any letter case'),
  state: z
    .enum(webhookStates, `expected one of ${webhookStates.join(', ')}`)
    .optional()
    .meta({
      description: 'Only webhooks that are enabled and do not fail, that are enabled and fail, or that are disabled',
    }),
  event: z
    .enum(eventTypes, 'expected a type of events')
    .optional()
    .meta({ description: 'Only webhooks that get events of this type, also by a group or `*`' }),
  sort: z.enum(['name', 'created'], 'expected name, created, or no order').optional().meta({
    description:
      'By name, of those without one by the host of the URL; or the latest first. Without it, those that were created first come first',
  }),
  total: totalFlag,
});

export const webhookList = listOf(webhook).extend({
  total: z.strictObject({ count }).optional().meta({ description: 'With `total=1`: the webhooks on all pages' }),
});
export const deliveryList = listOf(delivery);
