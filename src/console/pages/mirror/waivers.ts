import type { z } from 'zod';
import { waiverItem, waiverList } from '../../../api/policy/waivers.ts';
import { fieldErrors, Form, trimmedField } from '../../framework/form.ts';
import { ago, counted, endAfter, short } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import { choice, given, withQuery } from '../../framework/links.ts';
import { byTime, countLine, emptyText, endOfTime, filterForm, furtherPages, textField } from '../../framework/list.ts';
import type { Page, PageCall, PageView, Redirect, RefusedForm } from '../../framework/page.ts';
import { byText, contentFields } from '../../framework/requests.ts';
import { layerOf, type ShownLayer } from '../../framework/rights.ts';
import { facts, table } from '../../framework/table.ts';

type Waiver = z.input<typeof waiverItem>;

/** Errors that no field has. */
const errorsOfForm = ['QuotaExceeded', 'Denied'] as const;
const path = '/console/waivers';
const states = {
  '': 'all',
  requested: 'requested',
  approved: 'approved',
  rejected: 'rejected',
  ended: 'ended',
} as const;
const layers = { account: 'of this account', all: 'of all accounts' } as const;
const marks = { requested: 'warn', approved: 'good', rejected: 'bad', ended: 'quiet' } as const;
const lives = [1, 3, 7, 14, 30, 60, 90];

/** What was requested to be let through although a policy refuses it. */
export const waiversPage: Page = {
  path: '/waivers',
  section: 'packages',
  action: 'account',
  show: async (call) => {
    const { api, principal, now } = call;
    const layer = layerOf(call);
    const query = { ...given(call.query, 'q', 'state', 'sort', 'cursor'), ...(layer === 'all' && { layer }) };
    const list = { path, query, reverse: endOfTime(query) };
    const found = await api.call('listWaivers', waiverList, { query: { ...query, total: '1' } });
    const body = html`<p>
        A waiver opens versions, tags or digests that a <a href="/console/policy">policy</a> refuses, until a time.
        Another person than the requester approves it.
      </p>
      <p><a class="button" href="${path}/new">Request a waiver</a></p>
      ${filterForm(list, [
        textField(list, 'Name contains'),
        choice('state', 'State', states, call.query['state']),
        may(principal, 'operate') && choice('layer', 'Waivers', layers, layer),
      ])}
      ${countLine(found.total, 'waiver', 'waivers')}
      ${table(
        [{ name: 'Waiver', ...byTime }, 'For', 'Lifts', 'State', 'Ends', layer === 'all' && 'Account'],
        found.items.map((each) => [
          html`<a href="${addressOf(each, layer)}">${each.id}</a>`,
          short(`${each.name} ${each.references.join(', ')}`, 120),
          each.lifts,
          stateMark(each),
          ago(each.expires_at, now),
          each.account,
        ]),
        { empty: emptyText(list, 'There are no waivers.', found.next_cursor), list },
      )}
      ${furtherPages(list, found.next_cursor)}`;
    return { title: 'Waivers', body, json: withQuery('/v1/waivers', query) };
  },
};

/** The form that requests a waiver. */
export const newWaiverPage: Page = {
  path: '/waivers/new',
  section: 'packages',
  action: 'account',
  show: (call) => {
    const asked = given(call.query, 'kind', 'name', 'references', 'lifts');
    return Promise.resolve(newView(call.refused ?? new Form({ kind: 'package', lifts: 'age', days: '14', ...asked })));
  },
  send: async ({ api, form, now }): Promise<Redirect | RefusedForm> => {
    const text = (name: string) => trimmedField(form, name);
    const body = {
      kind: text('kind'),
      name: text('name'),
      references: text('references')
        .split('\n')
        .filter((each) => each.trim() !== ''),
      lifts: text('lifts'),
      reason: text('reason'),
      expires_at: endAfter(now, text('days')),
    };
    try {
      const { id } = await api.call('requestWaiver', waiverItem, { body });
      return { to: `${path}/${id}`, done: 'waiver-requested' };
    } catch (error) {
      return { refused: new Form(form, fieldErrors(error, errorsOfForm)) };
    }
  },
};

function newView(form: Form): PageView {
  const body = html`<form method="post" action="${path}/new" class="panel narrow">
    ${form.error('form')} ${contentFields(form)}
    ${form.area('references', 'Versions, tags or digests, one a line', {
      attributes: html`rows="3" required`,
      hint: html`Also ranges with a first and a last version, such as <code>[2.0.0, 2.1.0)</code>. A tag means the
        digest that it has now.`,
    })}
    ${form.input('lifts', 'What it lifts', {
      attributes: html`maxlength="100" required`,
      hint: html`<code>age</code>, <code>withdrawn</code>, <code>republished</code>, the name of a rule, or the ID of an
        advisory or of an entry of a list.`,
    })}
    ${form.input('reason', 'Why it is needed', { attributes: html`maxlength="500" required` })}
    ${form.select(
      'days',
      'For',
      lives.map((days) => [days, counted(days, 'day')] as const),
      { errorOf: 'expires_at' },
    )}
    <button class="primary">Request</button>
    <a href="${path}">Back</a>
  </form>`;
  return form.view('Request a waiver', body);
}

/** One waiver, with the forms that decide or end it. */
export const waiverPage: Page = {
  path: '/waivers/:id',
  section: 'packages',
  action: 'account',
  show: waiverView,
  send: async (call): Promise<Redirect | RefusedForm> => {
    const { api, form, params } = call;
    const args = { params: { id: params['id']! }, query: { layer: form.get('layer') ?? 'account' } };
    const back = withQuery(`${path}/${encodeURIComponent(args.params.id)}`, given(call.query, 'layer'));
    const act = form.get('act');
    try {
      if (act === 'end') await api.do('endWaiver', args);
      else await api.call(act === 'approve' ? 'approveWaiver' : 'rejectWaiver', waiverItem, args);
      return { to: back, done: { approve: 'waiver-approved', end: 'waiver-ended' }[act ?? ''] ?? 'waiver-rejected' };
    } catch (error) {
      return { refused: new Form({}, fieldErrors(error, errorsOfForm)), at: back };
    }
  },
};

async function waiverView(call: PageCall): Promise<PageView> {
  const { api, params, now } = call;
  const layer = layerOf(call);
  const id = params['id']!;
  const waiver = await api.call('getWaiver', waiverItem, { params: { id }, query: { layer } });
  const form = call.refused ?? new Form({});
  const body = html`${form.error('form')}
    ${facts(
      ['State', stateMark(waiver)],
      ['For', `${waiver.kind} ${waiver.name}`],
      ['References', html`<code>${waiver.references.join(', ')}</code>`],
      ['Lifts', waiver.lifts],
      ['Reason', waiver.reason],
      ['Requested', html`${ago(waiver.requested_at, now)} ${byText(waiver.requested_by)}`],
      waiver.decided_at !== null && ['Decided', html`${ago(waiver.decided_at, now)} ${byText(waiver.decided_by)}`],
      waiver.layer !== null && ['In the policy', layers[waiver.layer]],
      layer === 'all' && ['Account', waiver.account],
      ['Ends', ago(waiver.ended_at ?? waiver.expires_at, now)],
    )}
    ${actions(call, waiver, layer)}
    <p><a href="${withQuery(path, { layer: layer === 'all' ? layer : null })}">All waivers</a></p>`;
  return form.view(`Waiver ${waiver.id}`, body, withQuery(`/v1/waivers/${waiver.id}`, given(call.query, 'layer')));
}

/** Buttons for what the visitor may do with a waiver that has not ended. */
function actions({ principal, query }: PageCall, waiver: Waiver, layer: ShownLayer): Html | undefined {
  const { id, state, is_own: isOwn } = waiver;
  if (state !== 'requested' && state !== 'approved') return undefined;
  const address = withQuery(`${path}/${id}`, given(query, 'layer'));
  const button = (act: string, of: keyof typeof layers, text: string, mark: string) =>
    html`<form method="post" action="${address}">
      <input type="hidden" name="layer" value="${of}" />
      <button class="${mark}" name="act" value="${act}">${text}</button>
    </form>`;
  const decides = state === 'requested' && !isOwn;
  const ofAccount = layer === 'account' && may(principal, 'admin');
  const ofAll = may(principal, 'operate');
  return html`<div class="panel narrow">
    ${state === 'requested' && isOwn && html`<p class="hint">Somebody else approves or rejects your request.</p>`}
    ${decides && ofAccount && button('approve', 'account', 'Approve in the policy of this account', 'primary')}
    ${decides && ofAll && button('approve', 'all', 'Approve in the policy of all accounts', 'primary')}
    ${decides && (ofAccount || ofAll) && button('reject', layer, 'Reject', '')}
    ${(isOwn || ofAccount || ofAll) && button('end', isOwn || ofAccount ? layer : 'all', 'End it now', 'danger')}
  </div>`;
}

function addressOf({ id }: Waiver, layer: ShownLayer): string {
  return withQuery(`${path}/${id}`, { layer: layer === 'all' ? layer : null });
}

function stateMark({ state }: Waiver): Html {
  return html`<span class="state ${marks[state]}">${state}</span>`;
}
