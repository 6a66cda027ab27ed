import type { z } from 'zod';
import { promotionItem, promotionList } from '../../../api/promotions/promotions.ts';
import { promotionRules } from '../../../api/promotions/rules.ts';
import { fieldErrors, Form, trimmedField, fieldWords } from '../../framework/form.ts';
import { ago, short } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import { choice, given, withQuery } from '../../framework/links.ts';
import { byTime, countLine, emptyText, endOfTime, filterForm, furtherPages, textField } from '../../framework/list.ts';
import type { Page, PageCall, PageView, Redirect, RefusedForm } from '../../framework/page.ts';
import { byText, contentFields } from '../../framework/requests.ts';
import { facts, table } from '../../framework/table.ts';

type Promotion = z.input<typeof promotionItem>;

/** Errors that no field has. */
const errorsOfForm = [
  'NotFound',
  'AlreadyExists',
  'Denied',
  'NameDenied',
  'QuotaExceeded',
  'TooLarge',
  'NameInvalid',
] as const;
const path = '/console/promotions';
const states = { '': 'all', requested: 'requested', done: 'done', rejected: 'rejected' } as const;
const marks = { requested: 'warn', done: 'good', rejected: 'bad' } as const;

/** What appeared, or shall appear, in another account or under another name. */
export const promotionsPage: Page = {
  path: '/promotions',
  section: 'packages',
  action: 'account',
  show: async ({ api, principal, query: asked, now }) => {
    const query = given(asked, 'q', 'state', 'sort', 'cursor');
    const list = { path, query, reverse: endOfTime(query) };
    const found = await api.call('listPromotions', promotionList, { query: { ...query, total: '1' } });
    const body = html`<p>
        A promotion shows a version or an image in another account, or an image under another name, with the same bytes
        and without a push.
      </p>
      <p>
        ${may(principal, 'promote') && html`<a class="button" href="${path}/new">Promote</a>`}
        ${may(principal, 'admin') && html`<a class="button" href="${path}/rules">Rules of this account</a>`}
      </p>
      ${filterForm(list, [textField(list, 'Name contains'), choice('state', 'State', states, asked['state'])])}
      ${countLine(found.total, 'promotion', 'promotions')}
      ${table(
        [{ name: 'Promotion' }, 'What', 'From', 'To', 'State', { text: 'Asked', ...byTime }],
        found.items.map((each) => [
          html`<a href="${path}/${each.id}">${each.id}</a>`,
          short(`${each.name} ${each.reference}`, 120),
          each.from_account,
          targetOf(each),
          stateMark(each),
          ago(each.requested_at, now),
        ]),
        { empty: emptyText(list, 'There are no promotions.', found.next_cursor), list },
      )}
      ${furtherPages(list, found.next_cursor)}`;
    return { title: 'Promotions', body, json: withQuery('/v1/promotions', query) };
  },
};

/** The form that asks for a promotion. */
export const newPromotionPage: Page = {
  path: '/promotions/new',
  section: 'packages',
  action: 'promote',
  show: ({ refused, query, principal: { accountName } }) => {
    const asked = { kind: 'package', to_account: accountName, ...given(query, 'kind', 'name', 'reference') };
    return Promise.resolve(newView(refused ?? new Form(asked)));
  },
  send: async ({ api, form }): Promise<Redirect | RefusedForm> => {
    const text = (name: string) => trimmedField(form, name);
    const toName = text('to_name');
    const body = {
      kind: text('kind'),
      name: text('name'),
      reference: text('reference'),
      to_account: text('to_account'),
      ...(toName !== '' && { to_name: toName }),
      reason: text('reason'),
    };
    try {
      const { id, state } = await api.call('promote', promotionItem, { body });
      return { to: `${path}/${id}`, done: state === 'done' ? 'promoted' : 'promotion-requested' };
    } catch (error) {
      return { refused: new Form(form, fieldErrors(error, errorsOfForm)) };
    }
  },
};

function newView(form: Form): PageView {
  const body = html`<form method="post" action="${path}/new" class="panel narrow">
    ${form.error('form')} ${contentFields(form)}
    ${form.input('reference', 'Version, tag or digest', {
      attributes: html`maxlength="255" required`,
      hint: 'The digest that it has now is promoted, also if the tag moves before the approval.',
    })}
    ${form.input('to_account', 'To the account', { attributes: html`maxlength="100" required` })}
    ${form.input('to_name', 'Under the name', {
      attributes: html`maxlength="255"`,
      hint: 'The same name if this is empty. A package keeps its ID.',
    })}
    ${form.input('reason', 'Why', { attributes: html`maxlength="500"` })}
    <button class="primary">Promote</button>
    <a href="${path}">Back</a>
  </form>`;
  return form.view('Promote', body);
}

/** The rules of the account for promotions to it. */
export const promotionRulesPage: Page = {
  path: '/promotions/rules',
  section: 'packages',
  action: 'admin',
  show: async ({ api, refused }) => {
    const { promote_only, approval, from } = await api.call('getPromotionRules', promotionRules);
    const stored = {
      from: (from ?? []).join('\n'),
      ...(approval === 'another' && { approval }),
      ...(promote_only && { promote_only: 'yes' }),
    };
    const form = refused ?? new Form(stored);
    const body = html`<form method="post" action="${path}/rules" class="panel narrow">
      ${form.error('form')}
      ${form.area('from', 'Accounts that may ask, one a line', {
        attributes: html`rows="4"`,
        hint: 'For all others, this account does not exist.',
      })}
      ${form.choices('Rules', 'approval', [
        ['another', 'Another person than the requester approves', 'also inside this account'],
      ])}
      ${form.choice('promote_only', ['yes', 'No pushes', 'packages and images come by promotion only'])}
      <button class="primary">Save</button>
      <a href="${path}">Back</a>
    </form>`;
    return form.view('Rules for promotions', body, '/v1/account/promotion');
  },
  send: async ({ api, form }): Promise<Redirect | RefusedForm> => {
    const body = {
      promote_only: form.get('promote_only') === 'yes',
      approval: form.get('approval') === 'another' ? 'another' : 'none',
      from: fieldWords(form, 'from'),
    };
    try {
      await api.call('putPromotionRules', promotionRules, { body });
      return { to: path, done: 'promotion-rules' };
    } catch (error) {
      return { refused: new Form(form, fieldErrors(error, errorsOfForm)) };
    }
  },
};

/** One promotion, with the forms that decide it. */
export const promotionPage: Page = {
  path: '/promotions/:id',
  section: 'packages',
  action: 'account',
  show: promotionView,
  send: async (call): Promise<Redirect | RefusedForm> => {
    const id = call.params['id']!;
    const isApproval = call.form.get('act') === 'approve';
    try {
      await call.api.call(isApproval ? 'approvePromotion' : 'rejectPromotion', promotionItem, { params: { id } });
      return { to: `${path}/${encodeURIComponent(id)}`, done: isApproval ? 'promoted' : 'promotion-rejected' };
    } catch (error) {
      return { refused: new Form({}, fieldErrors(error, errorsOfForm)) };
    }
  },
};

async function promotionView(call: PageCall): Promise<PageView> {
  const { api, params, now } = call;
  const promotion = await api.call('getPromotion', promotionItem, { params: { id: params['id']! } });
  const form = call.refused ?? new Form({});
  const body = html`${form.error('form')}
    ${facts(
      ['State', stateMark(promotion)],
      ['What', `${promotion.kind} ${promotion.name} ${promotion.reference}`],
      ['Digest', html`<code>${promotion.digest}</code>`],
      ['From the account', promotion.from_account],
      ['To', targetOf(promotion)],
      promotion.reason !== '' && ['Reason', promotion.reason],
      ['Asked', html`${ago(promotion.requested_at, now)} ${byText(promotion.requested_by)}`],
      promotion.decided_at !== null && [
        'Decided',
        html`${ago(promotion.decided_at, now)} ${byText(promotion.decided_by)}`,
      ],
    )}
    ${actions(call, promotion)}
    <p><a href="${path}">All promotions</a></p>`;
  return form.view(`Promotion ${promotion.id}`, body, `/v1/promotions/${promotion.id}`);
}

/** Buttons for what the visitor may do with a promotion that nobody has decided. */
function actions({ principal }: PageCall, promotion: Promotion): Html | undefined {
  if (promotion.state !== 'requested' || !may(principal, 'promote')) return undefined;
  const isTarget = promotion.to_account === principal.accountName;
  return html`<form method="post" action="${path}/${promotion.id}" class="panel narrow">
    <p class="hint">
      ${
        isTarget
          ? 'Approved, exactly this digest appears in this account.'
          : 'Somebody of the other account approves or rejects it.'
      }
    </p>
    ${isTarget && html`<button class="primary" name="act" value="approve">Approve</button>`}
    <button class="danger" name="act" value="reject">${isTarget ? 'Reject' : 'Withdraw'}</button>
  </form>`;
}

function targetOf({ name, to_account: account, to_name: toName }: Promotion): string {
  return toName === name ? (account ?? '') : `${account} as ${short(toName, 100)}`;
}

function stateMark({ state }: Promotion): Html {
  return html`<span class="state ${marks[state]}">${state}</span>`;
}

/** A link to the form, for a hosted version or image, and a visitor who may promote it. */
export function promoteLink(
  { principal }: PageCall,
  kind: string,
  { name, reference, origin }: { name: string; reference: string; origin: string },
): Html | undefined {
  if (origin !== 'hosted' || !may(principal, 'promote')) return undefined;
  return html`<p><a href="${withQuery(`${path}/new`, { kind, name, reference })}">Promote…</a></p>`;
}
