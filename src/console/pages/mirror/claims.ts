import { claimList } from '../../../api/content/content-schemas.ts';
import { ago, short } from '../../framework/format.ts';
import { confirmForm, fieldOf } from '../../framework/form.ts';
import { html } from '../../framework/html.ts';
import { given, withQuery } from '../../framework/links.ts';
import { countLine, emptyText, filterForm, furtherPages, textField } from '../../framework/list.ts';
import type { Page, PageCall, PageView } from '../../framework/page.ts';
import { table } from '../../framework/table.ts';

const path = '/console/claims';

/** Names without content that the account still keeps from upstreams. */
export const claimsPage: Page = {
  path: '/claims',
  section: 'packages',
  action: 'admin',
  show: async ({ api, query: asked, now }) => {
    const query = given(asked, 'q', 'cursor');
    const list = { path, query };
    const found = await api.call('listClaims', claimList, { query: { ...query, total: '1' } });
    const body = html`<p>
        Names whose content was deleted. The account still claims them, so no upstream is used for them: otherwise
        clients could get a package of a stranger under a name that was yours.
      </p>
      ${filterForm(list, textField(list, 'Name contains'))} ${countLine(found.total, 'claim', 'claims')}
      ${table(
        ['Name', 'Kind', 'Claimed', 'Change'],
        found.items.map(({ kind, name, since }) => [
          short(name, 255),
          kind === 'package' ? 'package' : 'image',
          ago(since, now),
          html`<a href="${withQuery(`${path}/release`, { kind, name })}"
            >Release<span class="unseen"> ${name}</span></a
          >`,
        ]),
        { empty: emptyText(list, 'No claims without content. A name appears here when its last content is deleted.') },
      )}
      ${furtherPages(list, found.next_cursor)}`;
    return { title: 'Claims without content', body, json: '/v1/claims' };
  },
};

/** Releases a claim, after a warning. */
export const claimReleasePage: Page = {
  path: '/claims/release',
  section: 'packages',
  action: 'admin',
  show: (call) => Promise.resolve(warning(call)),
  send: async ({ api, form }) => {
    const id = form.get('kind') === 'container' ? 'releaseContainerClaim' : 'releasePackageClaim';
    await api.do(id, { params: { name: fieldOf(form, 'name') } });
    return { to: path, done: 'released' };
  },
};

function warning({ query }: PageCall): PageView {
  const { kind = 'package', name = '' } = query;
  const what = kind === 'container' ? 'image' : 'package';
  return {
    title: `Release ${what} ${short(name, 200)}`,
    body: html`<p class="warning">
        From then on, requests for the ${what} ${short(name, 255)} go to the upstreams. The owner of the name there
        decides what clients get. Release a name only if no build needs it as yours.
      </p>
      ${confirmForm(
        'Release',
        'Keep',
        path,
        [
          ['kind', kind],
          ['name', name],
        ],
        `${path}/release`,
      )}`,
  };
}
