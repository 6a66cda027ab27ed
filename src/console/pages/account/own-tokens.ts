import { tokenList } from '../../../api/framework/token-schemas.ts';
import { DomainError } from '../../../runtime/errors.ts';
import { confirmForm } from '../../framework/form.ts';
import { ago } from '../../framework/format.ts';
import { html } from '../../framework/html.ts';
import { given, pageLinks } from '../../framework/links.ts';
import type { Page, Redirect } from '../../framework/page.ts';
import { table } from '../../framework/table.ts';
import { makerOf, tokenState } from './tokens.ts';

const path = '/console/my-tokens';

/** The personal tokens of the person who is signed in. */
export const ownTokensPage: Page = {
  path: '/my-tokens',
  section: 'connect',
  action: 'any',
  show: async (call) => {
    const { api, query, now, principal } = call;
    const list = await api.call('listOwnTokens', tokenList, { query: given(query, 'cursor') });
    const body = html`<p>
        They can do at most what you can in the account ${principal.accountName}, and end when you lose the rights.
        <a href="/console/connect">Create one</a>
      </p>
      ${table(
        [{ name: 'Name' }, 'Begins with', 'Scopes', 'Made', 'Last used', 'Expires', 'State'],
        list.items.map((each) => [
          each.name,
          html`<code>${each.token_prefix}…</code>`,
          each.scopes.join(', '),
          html`${makerOf(each)} ${ago(each.created_at, now)}`,
          ago(each.last_used_at, now),
          ago(each.expires_at, now),
          html`${tokenState(each, now)}
          ${
            each.revoked_at === null &&
            html`<a href="${path}/${each.id}">Revoke…<span class="unseen"> ${each.name}</span></a>`
          }`,
        ]),
        { empty: 'You have no tokens. Create one on the page Connect.' },
      )}
      ${pageLinks(path, query, list.next_cursor)}`;
    return { title: 'Your tokens', body, json: '/v1/me/tokens' };
  },
};

/** Confirms the revocation of a personal token. */
export const ownTokenPage: Page = {
  path: '/my-tokens/:id',
  section: 'connect',
  action: 'any',
  show: async ({ api, params, now }) => {
    const { items } = await api.call('listOwnTokens', tokenList, { query: { limit: '200' } });
    const found = items.find(({ id }) => id === params['id']);
    if (!found) throw new DomainError('NotFound', 'You have no such token in this account.');
    const body = html`<p>
        Clients that use <strong>${found.name}</strong>, last used ${ago(found.last_used_at, now)}, are refused at once.
      </p>
      ${confirmForm('Revoke the token', 'Keep it', path)}`;
    return { title: 'Revoke a token', body };
  },
  send: async ({ params, api }): Promise<Redirect> => {
    await api.do('revokeOwnToken', { params: { id: params['id']! } });
    return { to: path, done: 'tokens-revoked' };
  },
};
