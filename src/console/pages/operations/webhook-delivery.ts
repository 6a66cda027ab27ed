import type { z } from 'zod';
import { delivery, deliveryDetails, type webhookTest } from '../../../api/webhooks/webhook-schemas.ts';
import { ago, copyable, countText, counted } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import type { Page, Redirect } from '../../framework/page.ts';
import { facts } from '../../framework/table.ts';
import { eventsText } from './event-words.ts';

type Attempt = Omit<z.input<typeof webhookTest>, 'id'>;

const states = { pending: 'warn', delivered: 'good', failed: 'bad' } as const;

/** The state of a delivery as a word. */
export function deliveryState(state: keyof typeof states): Html {
  return html`<span class="state ${states[state]}">${state === 'pending' ? 'waiting' : state}</span>`;
}

/** The request, the answer and the timing of an attempt. */
export function attemptFacts({ at, duration_ms, request_headers, status, answer, error }: Attempt, now: number): Html {
  return html`${facts(
      ['Sent', html`${ago(at, now)}, took ${countText(duration_ms)} ms`],
      ['Answer', status === null ? 'none' : `status ${status}`],
      error !== null && ['Failed', html`<span class="failure">${error}</span>`],
    )}
    <h3>Headers of the request, without the signature</h3>
    ${block(
      Object.entries(request_headers)
        .map(([name, value]) => `${name}: ${value}`)
        .join('\n'),
      'the headers of the request',
    )}
    ${
      answer !== null &&
      answer !== '' &&
      html`<h3>Beginning of the answer</h3>
        ${block(answer, 'the beginning of the answer')}`
    }`;
}

function block(text: string, label: string): Html {
  return html`<div class="lines">
    <pre tabindex="0" aria-label="${label}"><code>${text}</code></pre>
  </div>`;
}

/** One delivery: what was sent, and what was answered. */
export const deliveryPage: Page = {
  path: '/webhooks/:id/deliveries/:delivery',
  section: 'webhooks',
  action: 'admin',
  hasSecrets: true,
  show: async ({ api, params, now }) => {
    const found = await api.call('getWebhookDelivery', deliveryDetails, { params });
    const webhook = `/console/webhooks/${params['id']!}`;
    const { last_attempt: last } = found;
    const body = html`${facts(
        ['Event', eventsText([found.type])],
        ['State', html`${deliveryState(found.state)} after ${counted(found.attempts, 'attempt')}`],
        ['Made', ago(found.created_at, now)],
        found.next_attempt_at !== null && ['Next attempt', ago(found.next_attempt_at, now)],
        ['ID', copyable(found.id)],
      )}
      <form method="post"><button>Deliver again</button> <a href="${webhook}">Back to the webhook</a></form>
      <section>
        <h2>Last attempt</h2>
        ${last ? attemptFacts(last, now) : html`<p class="empty">It was not sent yet.</p>`}
      </section>
      <section>
        <h2>Body of the request</h2>
        ${block(found.request_body, 'the body of the request')}
      </section>`;
    return { title: `Delivery ${found.id}`, body, json: `/v1/webhooks/${params['id']!}/deliveries/${found.id}` };
  },
  send: async ({ api, params }): Promise<Redirect> => {
    await api.call('redeliverWebhookDelivery', delivery, { params });
    return { to: `/console/webhooks/${encodeURIComponent(params['id']!)}`, done: 'redelivered' };
  },
};
