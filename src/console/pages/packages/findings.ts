import { findingList } from '../../../api/content/content-schemas.ts';
import { ago, countText, counted, originOf, short } from '../../framework/format.ts';
import { html } from '../../framework/html.ts';
import { choice, given, originChoice, packagePath, withQuery } from '../../framework/links.ts';
import { emptyText, filterForm, furtherPages, textField } from '../../framework/list.ts';
import { may } from '../../framework/layout.ts';
import type { Page } from '../../framework/page.ts';
import { table } from '../../framework/table.ts';
import { userOf } from '../account/token.ts';
import { exposedPath } from '../operations/exposed.ts';
import { marksOf } from './marks.ts';
import { external } from './package-version.ts';

const path = '/console/risks';
const kinds = { '': 'Vulnerable and deprecated', vulnerable: 'Vulnerable', deprecated: 'Deprecated' };

/** The versions with known vulnerabilities, and the deprecated ones, the worst first. */
export const findingsPage: Page = {
  path: '/risks',
  section: 'packages',
  action: 'read',
  show: async ({ api, query: asked, now, principal }) => {
    const query = given(asked, 'q', 'kind', 'origin', 'cursor');
    const address = { path, query };
    const list = await api.call('listFindings', findingList, { query });
    const mayAsk = may(principal, 'admin');
    const body = html`<p>
        ${counted(list.vulnerable_count, 'version')} with a known vulnerability, ${countText(list.deprecated_count)}
        deprecated. They come from the advisories and deprecations of this server, from the vulnerability data of the
        feeds, and from what the stored documents of the feeds say.
      </p>
      ${!list.is_complete && html`<p class="warning">This list may lack some: a feed did not send its vulnerability data, or its stored documents are still being read. See the <a href="/console/mirror">mirror</a>.</p>`}
      ${filterForm(address, [
        textField(address, 'ID contains'),
        choice('kind', 'Kind', kinds, query['kind']),
        originChoice(query['origin']),
      ])}
      ${table(
        [{ name: 'Version' }, 'Origin', 'Warning', 'Advisories', { number: 'Downloads in 30 days' }, 'Last used'],
        list.items.map((each) => [
          html`<a href="${packagePath(each.id, each.version)}">${each.id} ${each.version}</a>`,
          originOf(each),
          marksOf(each),
          each.advisories
            .slice(0, 5)
            .map(({ url }) => html`<div>${external(url, short(url.replace(/^https?:\/\//, ''), 60))}</div>`),
          html`<a href="${packagePath(each.id)}?show=used">${countText(each.downloads_30_days)}</a>`,
          html`${ago(each.last_used_at, now)} ${each.last_used_by && html`<div>by ${userOf(each.last_used_by)}</div>`}
          ${mayAsk && html`<div><a href="${exposedPath(`${each.id}@${each.version}`)}">Who pulled it</a></div>`}`,
        ]),
        { empty: emptyText(address, 'No hosted or stored version is known to be vulnerable, and none is deprecated.') },
      )}
      ${furtherPages(address, list.next_cursor)}`;
    return { title: 'Vulnerable and deprecated', body, json: withQuery('/v1/findings', query) };
  },
};
