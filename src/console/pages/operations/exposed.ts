import type { z } from 'zod';
import { exposedList } from '../../../api/server/exposed.ts';
import { DomainError } from '../../../runtime/errors.ts';
import { ago, countText, short } from '../../framework/format.ts';
import { html, type Html, type HtmlPart } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import { given, imagePath, packagePath, withQuery } from '../../framework/links.ts';
import { emptyText, filterForm, furtherPages, textField } from '../../framework/list.ts';
import type { Page, PageCall } from '../../framework/page.ts';
import { table } from '../../framework/table.ts';

type Item = z.input<typeof exposedList>['items'][number];

const path = '/console/exposed';

/** The page that tells who pulled `what`. */
export function exposedPath(what: string): string {
  return withQuery(path, { what });
}

/** Who pulled a version, an image, or what an advisory is about. */
export const exposedPage: Page = {
  path: '/exposed',
  section: 'audit',
  action: 'any',
  show: async (call) => {
    const query = given(call.query, 'what', 'since', 'cursor');
    if (/^\d{4}-\d\d-\d\d$/.test(query['since'] ?? '')) query['since'] = `${query['since']}T00:00:00Z`;
    const address = { path, query };
    const body = html`<p>
        Who pulled something from this server: each token, and each job of a CI. A client that had it in its own cache
        pulled nothing. Ask for an advisory (<code>GHSA-…</code>, <code>MAL-…</code>), a version
        (<code>Name@1.2.3</code>, <code>Name@[1.0,2.0)</code>), or an image (<code>name:tag</code>,
        <code>sha256:…</code>).
      </p>
      ${filterForm(address, [
        textField(address, 'What', 'what', 700),
        html`<div>
          <label for="since">From (UTC)</label>
          <input id="since" name="since" type="date" value="${query['since']?.slice(0, 10)}" />
        </div>`,
      ])}
      ${may(call.principal, 'admin') && html`<p><a href="${path}/bills">Bills of materials of images that jobs push</a></p>`}
      ${query['what'] ? await answer(call, query, address) : ''}`;
    return { title: 'Who pulled it', body, json: withQuery('/v1/exposed', query) };
  },
};

async function answer(
  { api, now }: PageCall,
  query: Record<string, string>,
  address: { path: string; query: Record<string, string> },
): Promise<Html> {
  const list = await api.call('listExposed', exposedList, { query }).catch((error: unknown) => {
    if (error instanceof DomainError && ['NotFound', 'Invalid'].includes(error.name)) return error.message;
    throw error;
  });
  if (typeof list === 'string') return html`<p class="warning">${list}</p>`;
  return html`${!list.is_complete && html`<p class="warning">This answer is about many versions, and lacks some. Ask for fewer.</p>`}
  ${table(
    [{ name: 'Content' }, 'Who', 'Job or person', 'First', 'Last', { number: 'Pulls' }, 'Pushed afterwards'],
    list.items.map((each) => [
      contentLink(each),
      userLink(each),
      each.job
        ? html`${[each.job.repository, each.job.ref, each.job.run ?? each.job.subject]
            .filter(Boolean)
            .map((text) => html`<div>${short(text!, 120)}</div>`)}`
        : each.user?.person,
      ago(each.first_at, now),
      ago(each.last_at, now),
      countText(each.count),
      html`${each.pushed.map((one) => html`<div>${contentLink(one)} ${ago(one.at, now)}</div>`)}`,
    ]),
    { empty: emptyText(address, 'Nobody pulled it from this server.') },
  )}
  ${furtherPages(address, list.next_cursor)}`;
}

function contentLink({ kind, name, reference }: Pick<Item, 'kind' | 'name' | 'reference'>): Html {
  const to = kind === 'image' ? imagePath(name, reference) : packagePath(name, reference);
  return html`<a href="${to}" title="${reference}">${short(name, 128)} ${short(reference, 40)}</a>`;
}

function userLink({ user, account }: Item): HtmlPart {
  if (!user) return html`<span class="quiet">unknown</span>`;
  const name = user.name ?? (user.kind === 'console' ? 'people in the console' : 'clients without a token');
  const shown = user.kind === 'token' ? html`<a href="/console/tokens/${user.id}">${name}</a>` : name;
  return html`${shown} <span class="quiet">${account}</span>`;
}
