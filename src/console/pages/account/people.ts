import type { z } from 'zod';
import { knownPeopleList, knownPerson, personalLimits } from '../../../api/account/people.ts';
import { fieldErrors, Form, fieldOf, trimmedField } from '../../framework/form.ts';
import { ago, short } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import { choice, given, withQuery } from '../../framework/links.ts';
import { countLine, emptyText, filterForm, furtherPages, textField } from '../../framework/list.ts';
import type { Page, PageCall, PageView, Redirect, RefusedForm } from '../../framework/page.ts';
import { byText } from '../../framework/requests.ts';
import { layerOf, scopeFields } from '../../framework/rights.ts';
import { facts, table } from '../../framework/table.ts';

type KnownPerson = z.input<typeof knownPerson>;

const path = '/console/people';
const layers = { account: 'of this account', all: 'of all accounts' } as const;

/** Who signed in with the provider, and who is disabled. */
export const peoplePage: Page = {
  path: '/people',
  section: 'tokens',
  action: 'admin',
  show: async (call) => {
    const layer = layerIn(call);
    const query = { ...given(call.query, 'q', 'cursor'), ...layer };
    const list = { path, query };
    const found = await call.api.call('listPeople', knownPeopleList, { query: { ...query, total: '1' } });
    const body = html`<p>
        People who signed in with the provider within the time in the setting signIn.tokens.idle. When a person is
        disabled, the sessions and personal tokens of the person end at once.
      </p>
      <p><a class="button" href="${path}/limits">Limits of personal tokens</a></p>
      ${filterForm(list, [
        textField(list, 'Name or subject contains'),
        may(call.principal, 'operate') && choice('layer', 'People', layers, layer.layer ?? 'account'),
      ])}
      ${countLine(found.total, 'person', 'people')}
      ${table(
        [{ name: 'Person' }, 'Subject', 'State', 'Accounts', 'Signed in'],
        found.items.map((each) => [
          html`<a href="${addressOf(each, layer)}">${short(each.name, 100)}</a>`,
          short(each.subject, 60),
          stateMark(each),
          each.accounts.join(', '),
          ago(each.signed_in_at, call.now),
        ]),
        { empty: emptyText(list, 'No person has signed in with the provider.', found.next_cursor) },
      )}
      ${furtherPages(list, found.next_cursor)}`;
    return { title: 'People', body, json: withQuery('/v1/people', query) };
  },
};

/** A person, with the form that disables or enables it. */
export const personPage: Page = {
  path: '/people/:id',
  section: 'tokens',
  action: 'admin',
  show: async (call) => {
    const layer = layerIn(call);
    const person = await call.api.call('getPerson', knownPerson, { params: { id: call.params['id']! }, query: layer });
    return personView(call, person, layer, call.refused ?? new Form({}));
  },
  send: async (call): Promise<Redirect | RefusedForm> => {
    const { api, form, params } = call;
    const layer = layerIn(call);
    const args = { params: { id: params['id']! }, query: layer };
    try {
      if (form.get('act') === 'enable') {
        const enabled = await api.call('enablePerson', knownPerson, args);
        return { to: addressOf(enabled, layer), done: 'person-enabled' };
      }
      const body = { reason: fieldOf(form, 'reason') };
      const disabled = await api.call('disablePerson', knownPerson, { ...args, body });
      return { to: addressOf(disabled, layer), done: 'person-disabled' };
    } catch (error) {
      return { refused: new Form(form, fieldErrors(error)) };
    }
  },
};

function personView(call: PageCall, person: KnownPerson, layer: LayerQuery, form: Form): PageView {
  const { now } = call;
  const isAll = layer.layer === 'all';
  const here = person.disabled.find(({ account }) => (account === null) === isAll);
  const where = isAll ? 'everywhere' : 'in this account';
  const body = html`${form.error('form')}
    ${facts(
      ['State', stateMark(person)],
      ['Subject', short(person.subject, 255)],
      ['Provider', person.issuer],
      ['Accounts', person.accounts.join(', ')],
      ['Signed in', ago(person.signed_in_at, now)],
      ...person.disabled.map(
        ({ account, by, at, reason }) =>
          [
            `Disabled ${account === null ? 'everywhere' : `in ${account}`}`,
            html`${ago(at, now)} ${by && byText(by)}: ${reason}`,
          ] as const,
      ),
    )}
    <form method="post" class="panel narrow">
      ${
        here
          ? html`<p class="hint">
                Sessions do not come back: the person signs in again. Tokens that were not revoked work again.
              </p>
              <button class="primary" name="act" value="enable">Enable ${where}</button>`
          : html`${form.input('reason', 'Why', { attributes: html`maxlength="200" required` })}
              <p class="hint">Sessions and personal tokens of the person are refused ${where} at once.</p>
              <button class="danger" name="act" value="disable">Disable ${where}</button>`
      }
      <a href="${withQuery(path, layer)}">All people</a>
    </form>`;
  return form.view(person.name, body, withQuery(`/v1/people/${person.id}`, layer));
}

/** The form with what personal tokens may have. */
export const personalLimitsPage: Page = {
  path: '/people/limits',
  section: 'tokens',
  action: 'admin',
  show: async (call) => {
    if (call.refused) return limitsView(call, call.refused);
    const { scopes, longest_days: days } = await call.api.call('getPersonalTokenLimits', personalLimits);
    const form = new URLSearchParams({ days: String(days ?? ''), limited: scopes ? 'yes' : 'no' });
    for (const each of scopes ?? []) form.append('scope', each);
    return limitsView(call, new Form(form));
  },
  send: async ({ api, form }): Promise<Redirect | RefusedForm> => {
    const days = trimmedField(form, 'days');
    const body = {
      scopes: form.get('limited') === 'yes' ? form.getAll('scope') : null,
      longest_days: days === '' ? null : Number(days),
    };
    try {
      await api.call('putPersonalTokenLimits', personalLimits, { body });
      return { to: `${path}/limits`, done: 'personal-limits-set' };
    } catch (error) {
      return { refused: new Form(form, fieldErrors(error)) };
    }
  },
};

function limitsView({ principal }: PageCall, form: Form): PageView {
  const body = html`<form method="post" action="${path}/limits" class="panel narrow">
    ${form.error('form')}
    <p class="hint">They hold for tokens that people make for themselves, also for those that exist.</p>
    ${form.select('limited', 'A personal token may have', [
      ['no', 'every scope that its person has'],
      ['yes', 'of these only the ones that its person has'],
    ])}
    ${scopeFields(principal, form)}
    ${form.input('days', 'Longest life in days', {
      attributes: html`inputmode="numeric" maxlength="4"`,
      errorOf: 'longest_days',
      hint: 'Empty: the setting signIn.tokens.absolute.',
    })}
    <button class="primary">Set</button>
    <a href="${path}">All people</a>
  </form>`;
  return form.view('Limits of personal tokens', body, '/v1/account/personal-tokens');
}

type LayerQuery = { layer?: 'all' };

/** Whose people the visitor looks at, as a query; that of the account is left out. */
function layerIn(call: PageCall): LayerQuery {
  return layerOf(call) === 'all' ? { layer: 'all' } : {};
}

function addressOf({ id }: KnownPerson, layer: LayerQuery): string {
  return withQuery(`${path}/${encodeURIComponent(id)}`, layer);
}

function stateMark({ disabled }: KnownPerson): Html {
  if (disabled.length === 0) return html`<span class="state good">enabled</span>`;
  const everywhere = disabled.some(({ account }) => account === null);
  const names = disabled.map(({ account }) => account).join(', ');
  return html`<span class="state bad">disabled ${everywhere ? 'everywhere' : `in ${names}`}</span>`;
}
