import type { z } from 'zod';
import { useList } from '../../../api/account/uses.ts';
import { sessionList } from '../../../api/account/sessions.ts';
import { newToken, token, tokenList } from '../../../api/framework/token-schemas.ts';
import { nameKinds } from '../../../config/protocols.ts';
import { DomainError } from '../../../runtime/errors.ts';
import { changeEach } from '../../framework/change-each.ts';
import { confirmForm, fieldErrors, Form, fieldOf } from '../../framework/form.ts';
import { ago, copyable, counted, endAfter, lines } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import type { FormCall, Page, PageCall, Redirect, PageView } from '../../framework/page.ts';
import { given, withValues } from '../../framework/links.ts';
import {
  byTime,
  countLine,
  emptyText,
  endOfTime,
  filterForm,
  furtherPages,
  textField,
  type ListAddress,
} from '../../framework/list.ts';
import { limitedTo, patternFields, patternsOf, scopeFields } from '../../framework/rights.ts';
import { firstOf, list, Selection } from '../../framework/selection.ts';
import { type Cells, table } from '../../framework/table.ts';

type Token = z.input<typeof token>;

const path = '/console/tokens';

const sessionsPath = '/console/sessions';
/** Sessions on the page of the tokens, the latest. */
const shownSessions = '20';
/** Most tokens that are revoked together. */
const maxTogether = 200;
/** Tokens whose uses a confirmation adds up. */
const maxSummed = 20;

/** The tokens of the account, and who is signed in with them. */
export const tokensPage: Page = {
  path: '/tokens',
  section: 'tokens',
  action: 'admin',
  show: async (call) => {
    const query = given(call.query, 'name', 'sort', 'cursor');
    const address = { path, query };
    const found = await call.api.call('listTokens', tokenList, { query: { ...query, total: '1' } });
    const selection = new Selection(call, 'id');
    const sessions = await call.api.call('listSessions', sessionList, { query: { limit: shownSessions } });
    const body = html`<p>
        <a class="button" href="/console/tokens/new">Create a token</a>
        <a class="button" href="/console/tokens/find">Find a token by its value</a>
      </p>
      ${countLine(found.total, 'token', 'tokens')}
      ${list({
        ...address,
        filter: textField(address, 'Name contains', 'name', 200),
        rows: table(
          [
            { unseen: 'Select' },
            { name: 'Name' },
            'Begins with',
            'Scopes',
            'Limited to',
            { text: 'Made', sort: '' },
            { text: 'Last used', sort: 'used' },
            'Expires',
            'State',
          ],
          found.items.map((each) => tokenRow(each, selection, call.now)),
          { empty: emptyText(address, 'There are no tokens.'), list: { ...address, isForm: true } },
        ),
        next: found.next_cursor,
        selection,
        actions: html`<p><button class="danger" formaction="${path}/revoke">Revoke the selected tokens…</button></p>`,
      })}
      <section>
        <h2>Sessions of the console</h2>
        ${sessionRows(sessions, call)}
        ${sessions.next_cursor !== null && html`<p><a href="${sessionsPath}">All sessions</a></p>`}
      </section>`;
    return { title: 'Tokens', body, json: '/v1/tokens' };
  },
};

function tokenRow(each: Token, selection: Selection, now: number): Cells {
  const { id, name, token_prefix: prefix, patterns, revoked_at: revoked, expires_at: expires } = each;
  return [
    revoked === null ? selection.box(id, name) : '',
    html`<a href="/console/tokens/${id}">${name}</a
      >${each.publisher_id !== null && html` <span class="quiet">by a rule</span>`}${each.person_id !== null && html` <span class="quiet">personal</span>`}`,
    prefix !== '' && html`<code>${prefix}…</code>`,
    each.scopes.join(', '),
    limitedTo(patterns),
    html`${makerOf(each)} ${ago(each.created_at, now)}`,
    ago(each.last_used_at, now),
    ago(expires, now),
    tokenState(each, now),
  ];
}

/** Who made a token. */
export function makerOf({ created_by: maker }: Token): Html | string {
  if (!maker) return html`<span class="quiet">unknown</span>`;
  return maker.name ?? html`<span class="quiet">${maker.kind}</span>`;
}

/** Whether a token is valid, in words. */
export function tokenState({ revoked_at: revoked, expires_at: expires, ...each }: Token, now: number): Html {
  if (revoked !== null) return html`<span class="state bad">revoked</span>`;
  if (expires !== null && Date.parse(expires) <= now) return html`<span class="state warn">expired</span>`;
  return each.refused_because === null
    ? html`<span class="state good">valid</span>`
    : html`<span class="state bad">${lacks[each.refused_because]}</span>`;
}

/** Why a personal token is refused. */
const lacks = {
  disabled: 'its person is disabled',
  no_sign_in: 'its person has not signed in',
  no_rights: 'its person has no rights',
} as const;

/** Open sessions of the console, with links that end them. */
export function sessionRows(
  { items, next_cursor: next }: Pick<z.input<typeof sessionList>, 'items' | 'next_cursor'>,
  { session, now }: PageCall,
  list?: ListAddress,
): Html {
  return table(
    ['Who', 'Browser', 'Address', { text: 'Began', ...byTime }, 'Last used', { unseen: 'Action' }],
    items.map(
      ({
        id,
        person,
        token_id: tokenId,
        token_name: tokenName,
        agent,
        address,
        created_at: began,
        last_used_at: used,
      }) => [
        person ? person.name : html`<a href="/console/tokens/${tokenId}">${tokenName}</a>`,
        html`${agent.slice(0, 120)} ${id === session && html`<strong>(this one)</strong>`}`,
        address,
        ago(began, now),
        ago(used, now),
        html`<a href="/console/sessions/${id}">End…<span class="unseen"> the session of ${address}</span></a>`,
      ],
    ),
    { empty: next === null ? 'Nobody is signed in.' : 'Nothing on this page.', ...(list && { list }) },
  );
}

/** All sessions of the console, the latest first. */
export const sessionsPage: Page = {
  path: '/sessions',
  section: 'tokens',
  action: 'admin',
  show: async (call) => {
    const query = given(call.query, 'q', 'sort', 'cursor');
    const address = { path: sessionsPath, query, reverse: endOfTime(query) };
    const found = await call.api.call('listSessions', sessionList, { query: { ...query, total: '1' } });
    const body = html`<p>Who is signed in to this console now. A session ends after a time without a request.</p>
      ${filterForm(address, textField(address, 'Token or person contains'))}
      ${countLine(found.total, 'session', 'sessions')}
      ${found.items.length === 0 ? emptyText(address, '', found.next_cursor) : sessionRows(found, call, address)}
      ${furtherPages(address, found.next_cursor)}`;
    return { title: 'Sessions of the console', body, json: '/v1/sessions' };
  },
};

const lifetimes: readonly (readonly [days: number, text: string])[] = [
  [7, '7 days'],
  [30, '30 days'],
  [90, '90 days'],
  [365, '1 year'],
  [0, 'never'],
];

/** The form that creates a token. Its value is shown once, in the answer. */
export const newTokenPage: Page = {
  path: '/tokens/new',
  section: 'tokens',
  action: 'admin',
  show: (call) => Promise.resolve(formView(call, call.refused ?? new Form({ scope: 'read', days: '90' }))),
  send: async (call) => {
    const { form, api, now } = call;
    const days = form.get('days') ?? '90';
    const patterns = patternsOf(form);
    try {
      const made = await api.call('createToken', newToken, {
        body: {
          name: fieldOf(form, 'name'),
          scopes: form.getAll('scope'),
          ...(patterns && { patterns }),
          ...(days !== '0' && { expires_at: endAfter(now, days) }),
        },
      });
      return madeView(call, made.token);
    } catch (error) {
      return { refused: new Form(form, fieldErrors(error)) };
    }
  },
};

function formView({ principal }: PageCall, form: Form): PageView {
  const body = html`<form method="post" class="panel narrow">
    ${form.error('form')}
    ${form.input('name', 'Name', {
      attributes: html`required maxlength="200"`,
      hint: html`What it is for, such as <code>ci of web</code>. The audit shows it.`,
    })}
    ${scopeFields(principal, form)} ${form.select('days', 'Expires after', lifetimes, { errorOf: 'expires_at' })}
    ${
      principal.kind === 'token' &&
      principal.expiresAt !== null &&
      html`<p class="hint">
        Your own token expires at ${new Date(principal.expiresAt).toISOString()}. The new one expires then at the
        latest.
      </p>`
    }
    ${patternFields(form)}
    <button class="primary">Create</button>
  </form>`;
  return form.view('Create a token', body);
}

function madeView({ urls }: FormCall, value: string): PageView {
  const host = new URL(urls.registry).host;
  const body = html`<p class="warning" role="status">This is the only time that the token is shown. Copy it now.</p>
    <p>${copyable(value)}</p>
    ${lines(`echo ${value} | docker login ${host} --username api --password-stdin`, 'the line that signs docker in')}
    <p><a href="/console/tokens">Back to the tokens</a></p>`;
  return { title: 'The token is created', body, status: 201 };
}

/** Confirms the revocation of the selected tokens. */
export const revokePage: Page = {
  path: '/tokens/revoke',
  section: 'tokens',
  action: 'admin',
  show: async (call) => {
    const { chosen, note } = firstOf(call.values('id'), maxTogether);
    if (chosen.length === 0) {
      const body = html`<p>No token is selected. <a href="/console/tokens">Select some</a>, and try again.</p>`;
      return { title: 'Revoke tokens', body };
    }
    const found = await findTokens(call, chosen);
    const body = html`<p>
        Clients that use these tokens are refused at once, and sessions of the console that began with them end. This
        cannot be undone.
      </p>
      ${note}
      <ul>
        ${await Promise.all(found.map((each, index) => revokedItem(call, each, index < maxSummed)))}
      </ul>
      ${found.some(({ id }) => isOwnToken(call, id)) && html`<p class="warning">One of them is the token that you use now: you will be signed out.</p>`}
      ${!(await hasOtherAdmin(call, new Set(chosen))) && html`<p class="warning">No other token of this account has the scope admin. Without one, only a command on the server makes tokens.</p>`}
      ${confirmForm(
        `Revoke ${found.length === 1 ? 'the token' : `${found.length} tokens`}`,
        'Keep them',
        withValues(path, 'id', chosen),
        found.map(({ id }) => ['id', id]),
      )}`;
    return { title: 'Revoke tokens', body };
  },
  send: async (call): Promise<PageView | Redirect> => {
    const found = await findTokens(call, firstOf(call.form.getAll('id'), maxTogether).chosen);
    const changes = found.map(({ id, name }) => [name, () => call.api.do('revokeToken', { params: { id } })] as const);
    return (await changeEach(changes, path)) ?? { to: path, done: 'tokens-revoked' };
  },
};

/** A token that is going to be revoked, with what its clients did. */
async function revokedItem({ api, now }: PageCall, { id, name, ...each }: Token, isSummed: boolean): Promise<Html> {
  const usesOf = async (kind: string) =>
    (await api.call('listUses', useList, { query: { token_id: each.publisher_id ?? id, kind } })).items;
  const uses = isSummed ? (await Promise.all(nameKinds.map(usesOf))).flat() : [];
  const sum = (read: (use: (typeof uses)[number]) => number) => uses.reduce((all, use) => all + read(use), 0);
  const [downloads, uploads] = [sum((use) => use.downloads), sum((use) => use.uploads)];
  return html`<li>
    <a href="/console/tokens/${id}"><strong>${name}</strong></a
    >, last used
    ${ago(each.last_used_at, now)}${
      uses.length > 0 &&
      `; ${counted(downloads, 'download')} and ${counted(uploads, 'upload')} so far, of ${counted(uses.length, 'name')} used in the last 30 days`
    }
  </li>`;
}

/** Whether the visitor has signed in with the token. */
export function isOwnToken({ principal }: PageCall, id: string): boolean {
  return principal.kind === 'token' && principal.tokenId === id;
}

/** Whether the account has a valid token with `admin` for all names besides these. One that a rule gave ends too soon to count. */
async function hasOtherAdmin({ api, now }: PageCall, ids: ReadonlySet<string>): Promise<boolean> {
  for (let cursor: string | null | undefined; cursor !== null;) {
    const query = { limit: '200', ...(cursor !== undefined && { cursor }) };
    const { items, next_cursor } = await api.call('listTokens', tokenList, { query });
    const isOther = ({ id, scopes, patterns, revoked_at: revoked, expires_at: end, ...each }: Token) =>
      !ids.has(id) &&
      scopes.includes('admin') &&
      !patterns &&
      revoked === null &&
      each.refused_because === null &&
      each.publisher_id === null &&
      (end === null || Date.parse(end) > now);
    if (items.some(isOther)) return true;
    cursor = next_cursor;
  }
  return false;
}

/** The tokens of the account with these IDs that are not revoked. */
async function findTokens({ api }: PageCall, ids: readonly string[]): Promise<Token[]> {
  const found: Token[] = [];
  for (const id of ids) {
    const each = await api.call('getToken', token, { params: { id } }).catch(unlessMissing);
    if (each?.revoked_at === null) found.push(each);
  }
  return found;
}

function unlessMissing(error: unknown): undefined {
  if (!(error instanceof DomainError && error.name === 'NotFound')) throw error;
}

/** Confirms the end of a session. */
export const sessionPage: Page = {
  path: '/sessions/:id',
  section: 'tokens',
  action: 'admin',
  show: ({ params, session }) => {
    const isOwn = params['id'] === session;
    const body = html`<p>
        ${isOwn ? 'This is the session that you use now: you will have to sign in again.' : 'Its browser has to sign in again.'}
        A token that it began with stays valid.
      </p>
      ${confirmForm('End the session', 'Keep it', '/console/tokens')}`;
    return Promise.resolve({ title: 'End a session', body });
  },
  send: async ({ params, api }): Promise<Redirect> => {
    await api.do('endSession', { params: { id: params['id']! } });
    return { to: '/console/tokens', done: 'session-ended' };
  },
};
