import type { z } from 'zod';
import { newWebhook, webhookList, type webhook } from '../../../api/webhooks/webhook-schemas.ts';
import { eventTexts } from '../../../events/event.ts';
import { fieldErrors, Form, type Errors, fieldOf, trimmedField } from '../../framework/form.ts';
import { ago, copyable, counted } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import type { Page, PageCall, PageView } from '../../framework/page.ts';
import { choice, given } from '../../framework/links.ts';
import { emptyText, filterForm, furtherPages, textField, type ListAddress } from '../../framework/list.ts';
import { patternFields, patternsOf } from '../../framework/rights.ts';
import { table } from '../../framework/table.ts';
import { eventFields, eventsText } from './event-words.ts';

export type ShownWebhook = z.input<typeof webhook>;

const path = '/console/webhooks';
const stateChoices = { '': 'All', enabled: 'Enabled', failing: 'Failing', disabled: 'Disabled' };

/** The webhooks of the account. */
export const webhooksPage: Page = {
  path: '/webhooks',
  section: 'webhooks',
  action: 'admin',
  hasSecrets: true,
  show: async (call) => {
    const query = given(call.query, 'q', 'state', 'event', 'sort', 'cursor');
    const list = { path, query };
    const found = await call.api.call('listWebhooks', webhookList, { query: { ...query, total: '1' } });
    const fields = html`${textField(list, 'Name or address contains')}
    ${choice('state', 'State', stateChoices, query['state'])}
    ${choice('event', 'Gets', { '': 'Any event', ...eventTexts }, query['event'])}`;
    const count = found.total?.count ?? 0;
    const body = html`<p>
        A webhook sends events of the account to an address. Each request is signed (Standard Webhooks).
      </p>
      <p><a class="button" href="${path}/new">Create a webhook</a></p>
      ${filterForm(list, fields)} ${count > 0 && html`<p class="quiet">${counted(count, 'webhook')}</p>`}
      ${webhookTable(found.items, list, call.now)} ${furtherPages(list, found.next_cursor)}`;
    return { title: 'Webhooks', body, json: '/v1/webhooks' };
  },
};

function webhookTable(items: readonly ShownWebhook[], list: ListAddress, now: number): Html {
  const none = 'There are no webhooks. Create one to send events to a chat, a build or a catalog.';
  return table(
    [{ name: 'Name', sort: 'name' }, 'Address', 'Events', 'State', { text: 'Created', sort: 'created', reverse: '' }],
    items.map((each) => [
      html`<a href="${path}/${each.id}">${webhookName(each)}</a>`,
      each.url,
      eventsText(each.events),
      webhookState(each, now),
      ago(each.created_at, now),
    ]),
    { empty: emptyText(list, none), list },
  );
}

/** The name; without one, the host of its address, which has no secret. */
export function webhookName({ name, url, id }: ShownWebhook): string {
  return name || `${new URL(url).host} ${id.slice(0, 8)}`;
}

/** Whether the webhook is enabled and its receiver accepts the events, as words. */
export function webhookState(
  { enabled, disabled_reason: reason, failing_since: since }: ShownWebhook,
  now: number,
): Html {
  if (enabled && since !== null) {
    return html`<span class="state bad">failing</span> the receiver has accepted nothing since ${ago(since, now)}`;
  }
  if (enabled) return html`<span class="state good">enabled</span>`;
  return html`<span class="state ${reason === null ? 'warn' : 'bad'}">disabled</span>
    ${reason !== null && `by the server: ${reason}`}`;
}

/** The form that creates a webhook. Its secret is shown once, in the answer. */
export const newWebhookPage: Page = {
  path: '/webhooks/new',
  section: 'webhooks',
  action: 'admin',
  hasSecrets: true,
  show: (call) => Promise.resolve(newView(call, call.refused ?? new Form({ event: '*' }))),
  send: async (call) => {
    const { form, api } = call;
    try {
      const { id, secret } = await api.call('createWebhook', newWebhook, { body: webhookBody(form) });
      return secretView('The webhook is created', id, secret, 201);
    } catch (error) {
      return { refused: new Form(form, webhookErrors(error)) };
    }
  },
};

function newView({ principal }: PageCall, form: Form): PageView {
  const body = html`<form method="post" class="panel narrow">
    ${webhookFields(form)}
    ${may(principal, 'operate') && html`<p class="hint">You have the scope operate, so it also gets events that concern no account.</p>`}
    <button class="primary">Create</button>
  </form>`;
  return form.view('Create a webhook', body);
}

/** The values of the fields. */
export function webhookBody(form: URLSearchParams) {
  const patterns = patternsOf(form) ?? null;
  return { name: fieldOf(form, 'name'), url: trimmedField(form, 'url'), events: form.getAll('event'), patterns };
}

/** The fields of an address and of events. */
export function webhookFields(form: Form): Html {
  const address = {
    attributes: html`type="url" required maxlength="2000"`,
    hint: html`An <code>https</code> address. Private addresses must be allowed in the settings.`,
  };
  const name = { attributes: html`maxlength="100"`, hint: 'What it is for, such as: chat of the team.' };
  return html`${form.error('form')} ${form.input('name', 'Name', name)} ${form.input('url', 'Address', address)}
  ${eventFields(form)} ${patternFields(form)}`;
}

/** The errors of the fields; other errors are thrown again. */
export function webhookErrors(error: unknown): Errors {
  return fieldErrors(error, ['QuotaExceeded']);
}

/** Shows a secret, which no other page shows again. */
export function secretView(title: string, id: string, secret: string, status = 200): PageView {
  const body = html`<p class="warning" role="status">This is the only time that the secret is shown. Copy it now.</p>
    <p>${copyable(secret)}</p>
    <p>The receiver verifies the signature of each request with it.</p>
    <p><a href="/console/webhooks/${id}">Go to the webhook</a></p>`;
  return { title, body, status };
}
