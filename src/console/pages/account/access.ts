import type { z } from 'zod';
import { accessAnswer, entitledList, grantItem, grantList } from '../../../api/account/grants.ts';
import { pluralOf, protocolWords } from '../../../config/protocols.ts';
import { fieldErrors, Form, type Errors, trimmedField } from '../../framework/form.ts';
import { ago, short } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import { given, pageLinks } from '../../framework/links.ts';
import { countLine } from '../../framework/list.ts';
import type { Page, PageCall, PageView, Redirect, RefusedForm } from '../../framework/page.ts';
import { byText } from '../../framework/requests.ts';
import { limitedTo, patternFields, patternsOf, verbFields } from '../../framework/rights.ts';
import { facts, table } from '../../framework/table.ts';

type Grant = z.input<typeof grantItem>;

/** Errors that no field has. */
const errorsOfForm = ['QuotaExceeded', 'NameDenied', 'ScopeMissing'] as const;
const path = '/console/access';
const fields = protocolWords.map(({ word, plural }) => ({ plural, field: pluralOf(word) }));

/** Who may do what with which names: the grants of the account, and those of others to it. */
export const accessPage: Page = {
  path: '/access',
  section: 'tokens',
  action: 'admin',
  show: async ({ api, principal, query: asked, now }) => {
    const query = given(asked, 'cursor');
    const found = await api.call('listGrants', grantList, { query: { ...query, total: '1' } });
    const body = html`<p>
        A grant lets a person, a group, a token or another account do something with names of this account, beside the
        rules of the settings. It acts with the next request.
      </p>
      <p>
        <a class="button" href="${path}/new">Add a grant</a>
        <a class="button" href="${path}/explain">Who may do what?</a>
      </p>
      ${countLine(found.total, 'grant', 'grants')}
      ${table(
        [{ name: 'Who' }, 'May', 'Names', 'Of', 'State', 'Added'],
        found.items.map((each) => [
          html`<a href="${path}/${each.id}">${whoText(each)}</a>`,
          each.verbs.join(', '),
          namesOf(each),
          each.account === principal.accountName ? 'this account' : each.account,
          stateMark(each),
          ago(each.created_at, now),
        ]),
        { empty: 'There are no grants.' },
      )}
      ${pageLinks(path, query, found.next_cursor)}`;
    return { title: 'Access', body, json: '/v1/grants' };
  },
};

/** Whether somebody may do something, and why. */
export const explainAccessPage: Page = {
  path: '/access/explain',
  section: 'tokens',
  action: 'admin',
  show: async ({ api, query: asked }) => {
    const query = given(asked, 'who', 'id', 'verb', 'kind', 'name');
    const form = new Form({ who: 'person', verb: 'read', ...query });
    let answer: Html | undefined;
    if (query['name'] && !query['id']) {
      const { who: _who, id: _id, ...about } = query;
      try {
        answer = entitledRows(await api.call('listEntitled', entitledList, { query: about }));
      } catch (error) {
        return explainView(new Form(query, fieldErrors(error, ['ScopeMissing', 'NameDenied'])));
      }
    }
    if (query['id'] && query['name']) {
      try {
        const { allowed, because, grants } = await api.call('explainAccess', accessAnswer, { query });
        answer = html`<p role="status">
          <strong>${allowed ? 'Yes' : 'No'}</strong>: ${because}.
          ${grants.map(({ id }) => html`<a href="${path}/${id}">the grant</a> `)}
        </p>`;
      } catch (error) {
        return explainView(new Form(query, fieldErrors(error, ['NotFound', 'ScopeMissing', 'NameDenied'])));
      }
    }
    return explainView(form, answer);
  },
};

const choice = (options: readonly string[]) => options.map((each) => [each, each] as const);

function explainView(form: Form, answer?: Html): PageView {
  const { kind } = grantItem.shape.subject.shape;
  const body = html`<form method="get" action="${path}/explain" class="panel narrow">
      ${form.error('form')} ${form.select('who', 'May this', choice(kind.options))}
      ${form.input('id', 'ID', {
        attributes: html`maxlength="255"`,
        hint: html`The ID or subject of a person, a value of the claim <code>groups</code>, the ID of a token, or the
          name of an account. Leave it empty for all who may.`,
      })}
      ${form.select('verb', 'do this', choice(grantItem.shape.verbs.element.options))}
      ${form.select('kind', 'with this', choice(protocolWords.map(({ word }) => word)))}
      ${form.input('name', 'Name', { attributes: html`maxlength="255" required` })}
      <button class="primary">Explain</button>
      <a href="${path}">All grants</a>
    </form>
    ${answer}`;
  return form.view('Who may do what', body);
}

function entitledRows({ items, is_complete: isComplete }: z.input<typeof entitledList>): Html {
  return html`${table(
    [{ name: 'Who' }, 'Name', 'Because'],
    items.map(({ who, id, name, because }) => [
      who === 'token' ? html`<a href="/console/tokens/${id}">token ${short(id, 36)}</a>` : `${who} ${short(id, 100)}`,
      name,
      because,
    ]),
    { label: 'Who has this right', empty: 'No rule, group, person, token or account has this right.' },
  )}
  ${!isComplete && html`<p class="warning">There are more people or tokens than are examined. Some may be missing here.</p>`}`;
}

/** The form that adds a grant. */
export const newGrantPage: Page = {
  path: '/access/new',
  section: 'tokens',
  action: 'admin',
  show: ({ refused, query }) =>
    Promise.resolve(newView(refused ?? new Form({ kind: 'group', verb: 'read', ...given(query, 'kind', 'id') }))),
  send: async ({ api, form }): Promise<Redirect | RefusedForm> => {
    const text = (name: string) => trimmedField(form, name);
    const patterns = patternsOf(form);
    const issuer = text('issuer');
    const body = {
      subject: { kind: text('kind'), id: text('id'), ...(issuer !== '' && { issuer }) },
      verbs: form.getAll('verb'),
      ...(patterns && Object.fromEntries(fields.map(({ plural, field }) => [field, patterns[plural] ?? []]))),
    };
    try {
      const { id } = await api.call('addGrant', grantItem, { body });
      return { to: `${path}/${id}`, done: 'grant-added' };
    } catch (error) {
      return { refused: new Form(form, errorsOf(error)) };
    }
  },
};

function newView(form: Form): PageView {
  const kinds = grantItem.shape.subject.shape.kind.options.map((each) => [each, each] as const);
  const body = html`<form method="post" action="${path}/new" class="panel narrow">
    ${form.error('form')} ${form.select('kind', 'Who', kinds)}
    ${form.input('id', 'ID', {
      attributes: html`maxlength="255" required`,
      errorOf: 'subject',
      hint: html`The subject of a person, a value of the claim <code>groups</code>, the ID of a token, or the name of an
        account.`,
    })}
    ${form.input('issuer', 'Provider of the person or group', {
      attributes: html`maxlength="255"`,
      hint: 'The one that people sign in with if this is empty.',
    })}
    ${verbFields(form)} ${patternFields(form)}
    <p class="hint">Another account can only read names that you list, once it has accepted the grant.</p>
    <button class="primary">Add</button>
    <a href="${path}">Back</a>
  </form>`;
  return form.view('Add a grant', body);
}

/** One grant, with the forms that accept or remove it. */
export const grantPage: Page = {
  path: '/access/:id',
  section: 'tokens',
  action: 'admin',
  show: (call) => grantView(call),
  send: async (call): Promise<PageView | Redirect> => {
    const args = { params: { id: call.params['id']! } };
    try {
      if (call.form.get('act') !== 'accept') {
        await call.api.do('removeGrant', args);
        return { to: path, done: 'grant-removed' };
      }
      await call.api.call('acceptGrant', grantItem, args);
      return { to: `${path}/${encodeURIComponent(args.params.id)}`, done: 'grant-accepted' };
    } catch (error) {
      return grantView(call, fieldErrors(error, errorsOfForm));
    }
  },
};

async function grantView(call: PageCall, errors: Errors = {}): Promise<PageView> {
  const { api, params, principal, now } = call;
  const grant = await api.call('getGrant', grantItem, { params: { id: params['id']! } });
  const isOwn = grant.account === principal.accountName;
  const form = new Form({}, errors);
  const body = html`${form.error('form')}
    ${facts(
      ['State', stateMark(grant)],
      ['Who', whoText(grant, 255)],
      grant.subject.issuer !== null && ['Provider', grant.subject.issuer],
      ['May', grant.verbs.join(', ')],
      ['Names', namesOf(grant)],
      ['Of the account', grant.account],
      ['Added', html`${ago(grant.created_at, now)} ${byText(grant.created_by)}`],
      grant.accepted_at !== null && ['Accepted', ago(grant.accepted_at, now)],
    )}
    <form method="post" action="${path}/${grant.id}" class="panel narrow">
      <p class="hint">${hintOf(grant, isOwn)}</p>
      ${!isOwn && grant.state === 'pending' && html`<button class="primary" name="act" value="accept">Accept</button>`}
      <button class="danger" name="act" value="remove">Remove</button>
    </form>
    <p><a href="${path}">All grants</a></p>`;
  return form.view('Grant', body, `/v1/grants/${grant.id}`);
}

function hintOf({ state, account }: Grant, isOwn: boolean): string {
  if (state === 'pending')
    return isOwn
      ? 'It counts when an administrator of the other account has accepted it.'
      : `Accepted, clients of this account read these names of ${account} under the addresses that they use now.`;
  return 'Removed, it ends with the next request.';
}

function whoText({ subject: { kind, id } }: Grant, length = 100): string {
  return `${kind} ${short(id, length)}`;
}

/** The names that a grant concerns. */
function namesOf(grant: Grant): Html {
  const patterns = Object.fromEntries(
    fields.map(({ field }) => [field, (grant as Readonly<Record<string, unknown>>)[field] as string[]]),
  );
  return limitedTo(Object.values(patterns).flat().length === 0 ? null : patterns);
}

function stateMark({ state }: Grant): Html {
  return html`<span class="state ${state === 'active' ? 'good' : 'warn'}">${state}</span>`;
}

/** An error of one list of patterns is one of the field for all. */
function errorsOf(error: unknown): Errors {
  const errors = fieldErrors(error, errorsOfForm);
  const ofPatterns = fields.map(({ field }) => errors[field]).find((each) => each !== undefined);
  return ofPatterns === undefined ? errors : { ...errors, patterns: ofPatterns };
}
