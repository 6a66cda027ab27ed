import type { z } from 'zod';
import { useList } from '../../../api/account/uses.ts';
import { sessionList } from '../../../api/account/sessions.ts';
import { eventList } from '../../../api/framework/schemas.ts';
import { token, tokenList } from '../../../api/framework/token-schemas.ts';
import { nameKinds, protocolWords } from '../../../config/protocols.ts';
import { fieldErrors, Form, fieldOf } from '../../framework/form.ts';
import { ago, countText, short } from '../../framework/format.ts';
import { html, type Html, type HtmlPart } from '../../framework/html.ts';
import { imagePath, packagePath, withQuery } from '../../framework/links.ts';
import type { Page, PageCall, PageView, Redirect, RefusedForm } from '../../framework/page.ts';
import { limitedTo } from '../../framework/rights.ts';
import { facts, table } from '../../framework/table.ts';
import { eventRows } from '../operations/event-rows.ts';
import { isOwnToken, makerOf, sessionRows, tokenState } from './tokens.ts';

type Use = z.input<typeof useList>['items'][number];

/** A token: who made it, from where it is used, what it read and pushed, and what it did. */
export const tokenPage: Page = {
  path: '/tokens/:id',
  section: 'tokens',
  action: 'admin',
  show: async (call): Promise<PageView> => {
    const id = call.params['id']!;
    const { api } = call;
    const found = await api.call('getToken', token, { params: { id } });
    const owner = found.publisher_id ?? id;
    const usesOf = async (kind: string) =>
      (await api.call('listUses', useList, { query: { token_id: owner, kind } })).items;
    const eventsBy = async (filter: Record<string, string>) =>
      (await api.call('listEvents', eventList, { query: { ...filter, limit: '20' } })).items;
    const [names, clients, did, about, sessions] = await Promise.all([
      Promise.all(nameKinds.map(usesOf)),
      usesOf('client'),
      eventsBy({ actor: owner }),
      eventsBy({ subject: found.name, type: 'token.*' }),
      api.call('listSessions', sessionList, { query: { token_id: id } }),
    ]);
    return view(call, found, { names: names.flat(), clients, did, about, sessions });
  },
};

type Events = z.input<typeof eventList>['items'];

interface Parts {
  names: readonly Use[];
  clients: readonly Use[];
  did: Events;
  about: Events;
  sessions: z.input<typeof sessionList>;
}

function view(call: PageCall, found: z.input<typeof token>, parts: Parts): PageView {
  const { now } = call;
  const { id, name, revoked_at: revoked, publisher_id: rule } = found;
  // Several tokens can have a name.
  const about = parts.about.filter(({ details }) => details['token_id'] === id);
  const body = html`${isOwnToken(call, id) && html`<p class="warning">This is the token that you use now.</p>`}
  ${facts(
    ['State', tokenState(found, now)],
    found.token_prefix !== '' && ['Begins with', html`<code>${found.token_prefix}…</code>`],
    ['Scopes', found.scopes.join(', ')],
    ['Limited to', limitedTo(found.patterns)],
    ['Made by', html`${makerOf(found)}, ${ago(found.created_at, now)}`],
    rule !== null && [
      'Rule',
      html`<a href="/console/publishers/${rule}">${rule}</a>; what follows is of all of its tokens`,
    ],
    ['Expires', ago(found.expires_at, now)],
    revoked !== null && ['Revoked', ago(revoked, now)],
    ['Last used', ago(found.last_used_at, now)],
  )}
  ${revoked === null && html`<p><a class="button danger" href="/console/tokens/revoke?id=${id}">Revoke…</a></p>`}
  ${section(
    'From where, in the last 30 days',
    table(
      ['Address', 'Program', 'Last'],
      parts.clients.map(({ name: client, last_used_at: at }) => [
        client.slice(0, client.indexOf(' ')),
        short(client.slice(client.indexOf(' ') + 1), 120),
        ago(at, now),
      ]),
      { label: 'the clients of this token', empty: 'It was not used.' },
    ),
  )}
  ${section('What it read and pushed, in the last 30 days', useTable(parts.names, now))}
  ${section(
    'What it changed',
    html`${eventRows(parts.did, now, { details: true, empty: 'It changed nothing.' })}
      <p><a href="${withQuery('/console/audit', { actor: rule ?? id })}">All in the audit</a></p>`,
  )}
  ${section('What happened to it', eventRows(about, now, { details: true, empty: 'The record has nothing about it any more.' }))}
  ${section('Who is signed in to the console with it', sessionRows(parts.sessions, call))}
  ${section('Failed requests', html`<p><a href="${withQuery('/console/failures', { token_id: id })}">Its failed requests</a></p>`)}`;
  return { title: `Token ${name}`, body, json: `/v1/tokens/${id}` };
}

function section(title: string, content: Html): Html {
  return html`<section>
    <h2>${title}</h2>
    ${content}
  </section>`;
}

/** Names with what was done under each. With `byToken`, the tokens that did it under one name. */
function useTable(uses: readonly Use[], now: number): Html {
  return table(
    [{ name: 'Name' }, { number: 'Downloads so far' }, { number: 'Uploads so far' }, 'Last'],
    uses.map((each) => [
      html`<a href="${nameAddress(each)}">${each.name}</a>
        <span class="quiet">${protocolWords.find(({ kind }) => kind === each.kind)?.word}</span>`,
      countText(each.downloads),
      countText(each.uploads),
      ago(each.last_used_at, now),
    ]),
    { empty: 'It read and pushed nothing.' },
  );
}

function nameAddress({ kind, name }: Use): string {
  return kind === 'package' ? packagePath(name) : imagePath(name);
}

/** The token of a use, or who had it. */
export function userOf({ token_id: id, token_name: name }: Pick<Use, 'token_id' | 'token_name'>): HtmlPart {
  return name === null
    ? html`<span class="quiet">a rule, or a deleted token, ${id}</span>`
    : html`<a href="/console/tokens/${id}">${name}</a>`;
}

/** With which tokens a package or an image was downloaded and pushed; undefined for a visitor who may not know. */
export async function userSection(
  { api, now, principal }: PageCall,
  kind: string,
  name: string,
): Promise<Html | undefined> {
  if (!principal.scopes.has('admin')) return undefined;
  const { items } = await api.call('listUses', useList, { query: { kind, name } });
  return section(
    'Who uses it, in the last 30 days',
    table(
      [{ name: 'Token' }, { number: 'Downloads so far' }, { number: 'Uploads so far' }, 'Last'],
      items
        .slice(0, 20)
        .map((each) => [userOf(each), countText(each.downloads), countText(each.uploads), ago(each.last_used_at, now)]),
      { empty: 'Nobody with a token.' },
    ),
  );
}

/** Finds a token by its value or the beginning of it. The form is sent in a body, so that no address has the value. */
export const findTokenPage: Page = {
  path: '/tokens/find',
  section: 'tokens',
  action: 'admin',
  show: ({ refused }) => Promise.resolve(findView(refused ?? new Form())),
  send: async ({ form, api }): Promise<PageView | Redirect | RefusedForm> => {
    try {
      const { items } = await api.call('findTokens', tokenList, { body: { token: fieldOf(form, 'token') } });
      const [only] = items;
      if (only && items.length === 1) return { to: `/console/tokens/${only.id}` };
      const message = 'No token of this account has this value or this beginning.';
      if (!only) return { refused: new Form({}, { token: message }) };
      const list = html`<ul>
        ${items.map(({ id, name }) => html`<li><a href="/console/tokens/${id}">${name}</a></li>`)}
      </ul>`;
      return { title: 'Find a token', body: list };
    } catch (error) {
      return { refused: new Form({}, fieldErrors(error)) };
    }
  },
};

function findView(form: Form): PageView {
  return form.view(
    'Find a token',
    html`<form method="post" action="/console/tokens/find" class="panel narrow">
      ${form.input('token', 'A token, or its beginning', {
        attributes: html`required maxlength="200" autocomplete="off" spellcheck="false"`,
        hint: html`At least the first eight characters, such as <code>ent_t5qC</code>. The value is not kept.`,
      })}
      <button class="primary">Find</button>
    </form>`,
  );
}
