import type { z } from 'zod';
import {
  changedWebhook,
  deliveryList,
  redelivered,
  webhook,
  webhookTest,
  delivery,
} from '../../../api/webhooks/webhook-schemas.ts';
import { changeEach } from '../../framework/change-each.ts';
import { confirmForm, Form, fieldOf } from '../../framework/form.ts';
import { ago, copyable, counted } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import type { FormCall, Page, PageCall, Redirect, RefusedForm, PageView } from '../../framework/page.ts';
import { given } from '../../framework/links.ts';
import { firstOf, list, Selection } from '../../framework/selection.ts';
import { limitedTo } from '../../framework/rights.ts';
import { facts, table } from '../../framework/table.ts';
import { eventsText } from './event-words.ts';
import { attemptFacts, deliveryState } from './webhook-delivery.ts';
import {
  secretView,
  webhookBody,
  webhookErrors,
  webhookFields,
  webhookName,
  webhookState,
  type ShownWebhook,
} from './webhooks.ts';

/** Most deliveries that are repeated together by their boxes. */
const maxTogether = 200;

/** One webhook: its fields, a test, and its deliveries. */
export const webhookPage: Page = {
  path: '/webhooks/:id',
  section: 'webhooks',
  action: 'admin',
  hasSecrets: true,
  show: (call) => webhookView(call),
  send: async (call): Promise<PageView | Redirect | RefusedForm> => {
    const act = fieldOf(call.form, 'act');
    const handle = Object.hasOwn(acts, act) ? acts[act] : undefined;
    return handle ? handle(call) : webhookView(call);
  },
};

function paramsOf({ params }: PageCall): { id: string } {
  return { id: params['id']! };
}

function pathOf(call: PageCall): string {
  return `/console/webhooks/${encodeURIComponent(call.params['id']!)}`;
}

const acts: Readonly<Record<string, (call: FormCall) => Promise<PageView | Redirect | RefusedForm>>> = {
  async change(call) {
    const { form, api } = call;
    const body = webhookBody(form);
    try {
      await api.call('changeWebhook', changedWebhook, { params: paramsOf(call), body });
    } catch (error) {
      return { refused: new Form(form, webhookErrors(error)) };
    }
    return { to: pathOf(call), done: 'webhook-changed' };
  },
  enable: (call) => setEnabled(call, true),
  disable: (call) => setEnabled(call, false),
  async test(call) {
    const attempt = await call.api.call('testWebhook', webhookTest, { params: paramsOf(call) });
    const result = html`<section class="panel" role="status">
      <h2>Result of the test: ${attempt.error === null ? 'the receiver accepted it' : 'it failed'}</h2>
      ${attemptFacts(attempt, call.now)}
    </section>`;
    return webhookView(call, result);
  },
  async redeliver(call) {
    const { chosen } = firstOf(call.form.getAll('delivery'), maxTogether);
    if (chosen.length === 0) return { refused: new Form({}, { delivery: 'Select at least one delivery.' }) };
    const changes = chosen.map((each) => {
      const params = { ...paramsOf(call), delivery: each };
      return [each, () => call.api.call('redeliverWebhookDelivery', delivery, { params })] as const;
    });
    return (await changeEach(changes, pathOf(call))) ?? { to: pathOf(call), done: 'redelivered' };
  },
  async since(call) {
    const text = fieldOf(call.form, 'since');
    // The field of a browser has neither seconds nor a zone.
    const since = /^\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?$/.test(text) ? `${text.padEnd(19, ':00')}Z` : text;
    try {
      await call.api.call('redeliverWebhook', redelivered, { params: paramsOf(call), body: { since } });
    } catch (error) {
      return { refused: new Form(call.form, webhookErrors(error)) };
    }
    return { to: pathOf(call), done: 'redelivered' };
  },
};

async function setEnabled(call: FormCall, enabled: boolean): Promise<Redirect> {
  await call.api.call('changeWebhook', changedWebhook, { params: paramsOf(call), body: { enabled } });
  return { to: pathOf(call), done: enabled ? 'webhook-enabled' : 'webhook-disabled' };
}

/** With the result of a test, if there was one. */
async function webhookView(call: PageCall, result?: Html): Promise<PageView> {
  const form = call.refused ?? new Form();
  const params = paramsOf(call);
  const found = await call.api.call('getWebhook', webhook, { params });
  const query = given(call.query, 'cursor');
  const latest = await call.api.call('listWebhookDeliveries', deliveryList, { params, query });
  const path = pathOf(call);
  const fields =
    form.values.get('act') === 'change'
      ? form
      : new Form(
          new URLSearchParams([
            ['name', found.name],
            ['url', found.url],
            ...found.events.map((each): [string, string] => ['event', each]),
            ...Object.entries(found.patterns ?? {}).map(([plural, some]): [string, string] => [plural, some.join(' ')]),
          ]),
          form.errors,
        );
  const body = html`${factsOf(found, call.now)} ${result}
    <section>
      <h2>Deliveries of the last 14 days</h2>
      ${waitingLine(latest.items)} ${deliveries(call, latest, query, form)}
      ${
        latest.items.length > 0 &&
        html`<form method="post" class="filter" action="${path}">
          <div>
            ${form.input('since', 'Deliver again all since (UTC)', { attributes: html`type="datetime-local" required` })}
          </div>
          <button name="act" value="since">Deliver again</button>
        </form>`
      }
    </section>
    <section>
      <h2>Change it</h2>
      <form method="post" class="panel narrow" action="${path}">
        ${webhookFields(fields)}
        <button class="primary" name="act" value="change">Save</button>
      </form>
    </section>`;
  return form.view(`Webhook ${webhookName(found)}`, body, `/v1/webhooks/${params.id}`);
}

function factsOf(found: ShownWebhook, now: number): Html {
  const path = `/console/webhooks/${found.id}`;
  return html`${facts(
      ['Address', copyable(found.url)],
      ['Events', html`${eventsText(found.events)}${found.operate && 'Also those that concern no account'}`],
      ['About', limitedTo(found.patterns)],
      ['State', webhookState(found, now)],
      ['Created', ago(found.created_at, now)],
    )}
    <form method="post" class="filter" action="${path}">
      <button name="act" value="test">Send a test</button>
      ${
        found.enabled
          ? html`<button name="act" value="disable">Disable</button>`
          : html`<button name="act" value="enable">Enable</button>`
      }
      <a href="${path}/secret">Rotate the secret…</a>
      <a href="${path}/delete">Delete…</a>
    </form>`;
}

/** Says that deliveries wait, on a page that is loaded again when one was attempted. */
function waitingLine(items: z.input<typeof deliveryList>['items']): Html | undefined {
  const waiting = items.filter(({ state }) => state === 'pending');
  if (waiting.length === 0) return undefined;
  const attempts = items.reduce((sum, each) => sum + each.attempts, 0);
  return html`<p class="waiting" role="status" data-refresh="5000" data-version="${waiting.length}/${attempts}">
    ${counted(waiting.length, 'delivery waits', 'deliveries wait')}. <a href="">Look again</a>
  </p>`;
}

function deliveries(
  call: PageCall,
  { items, next_cursor: next }: z.input<typeof deliveryList>,
  query: Readonly<Record<string, string>>,
  form: Form,
): Html {
  const path = pathOf(call);
  const selection = new Selection(call, 'delivery');
  if (items.length === 0) {
    return html`<p class="empty">
      Nothing was delivered yet. Send a test, or push a package: its event appears here within seconds.
    </p>`;
  }
  const rows = table(
    [
      { unseen: 'Select' },
      'When',
      { name: 'Event' },
      'State',
      'Attempts',
      'Last answer',
      'Next attempt',
      { unseen: 'Details' },
    ],
    items.map((each) => {
      const { id, created_at: at } = each;
      return [
        selection.box(id, `${each.type} of ${at}`),
        ago(at, call.now),
        eventsText([each.type]),
        deliveryState(each.state),
        each.attempts,
        answerOf(each.last_attempt),
        each.next_attempt_at === null ? '' : ago(each.next_attempt_at, call.now),
        html`<a href="${path}/deliveries/${id}">Show<span class="unseen"> ${each.type} of ${at}</span></a>`,
      ];
    }),
  );
  const actions = html`${form.error('delivery')}
    <p><button formmethod="post" name="act" value="redeliver">Deliver the selected ones again</button></p>`;
  return list({ path, query, rows, next, selection, actions });
}

function answerOf(attempt: z.input<typeof delivery>['last_attempt']): string {
  if (!attempt) return '';
  const status = attempt.status === null ? 'no answer' : String(attempt.status);
  return `${status} after ${counted(attempt.duration_ms, 'ms', 'ms')}${attempt.error === null ? '' : `: ${attempt.error}`}`;
}

/** Confirms the rotation of the secret, and shows the new one. */
export const secretPage: Page = {
  path: '/webhooks/:id/secret',
  section: 'webhooks',
  action: 'admin',
  hasSecrets: true,
  show: async (call) => {
    const { id, url } = await call.api.call('getWebhook', webhook, { params: paramsOf(call) });
    const body = html`<p>
        Requests to <strong>${url}</strong> get the signatures of the new and the old secret for 24 hours, and then only
        of the new one. Give the receiver the new secret in that time, or it will refuse the events.
      </p>
      ${confirmForm('Make a new secret', 'Keep the secret', `/console/webhooks/${id}`)}`;
    return { title: 'Rotate the secret', body };
  },
  send: async (call) => {
    const body = { rotate_secret: true };
    const { id, secret } = await call.api.call('changeWebhook', changedWebhook, { params: paramsOf(call), body });
    return secretView('The secret is rotated', id, secret!);
  },
};

/** Confirms the deletion of a webhook. */
export const deleteWebhookPage: Page = {
  path: '/webhooks/:id/delete',
  section: 'webhooks',
  action: 'admin',
  hasSecrets: true,
  show: async (call) => {
    const params = paramsOf(call);
    const { id, url, events } = await call.api.call('getWebhook', webhook, { params });
    const { items } = await call.api.call('listWebhookDeliveries', deliveryList, { params, query: { limit: '200' } });
    const waiting = items.filter(({ state }) => state === 'pending').length;
    const body = html`<p>
        <strong>${url}</strong> gets no more events (${events.join(', ')}). Its deliveries are deleted, and its secret
        is lost. This cannot be undone.
      </p>
      ${waiting > 0 && html`<p class="warning">Of its latest 200 deliveries, ${waiting} wait to be sent. They will not be sent.</p>`}
      ${confirmForm('Delete the webhook', 'Keep it', `/console/webhooks/${id}`)}`;
    return { title: 'Delete a webhook', body };
  },
  send: async (call): Promise<Redirect> => {
    await call.api.do('deleteWebhook', { params: paramsOf(call) });
    return { to: '/console/webhooks', done: 'webhook-deleted' };
  },
};
