import { packageList } from '../../../api/framework/schemas.ts';
import { ago, countText, counted, originOf, sizeHtml } from '../../framework/format.ts';
import { html, type HtmlPart } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import { given, originChoice, packagePath, pageLinks, withQuery } from '../../framework/links.ts';
import type { Page } from '../../framework/page.ts';
import { table } from '../../framework/table.ts';
import { marksOf } from './findings.ts';

const path = '/console/packages';

/** All packages that the visitor may see, by ID. */
export const packagesPage: Page = {
  path: '/packages',
  section: 'packages',
  action: 'read',
  show: async ({ api, query: asked, now, principal }) => {
    const query = given(asked, 'origin', 'cursor');
    const { items, next_cursor: next } = await api.call('listPackages', packageList, { query });
    const body = html`<form class="filter" method="get" action="${path}">
        ${originChoice(query['origin'])} <button>Show</button>
        ${may(principal, 'write') && html`<a class="button" href="/console/upload">Upload a package</a>`}
      </form>
      ${table(
        ['Package', 'Origin', 'Newest version', 'Versions', { number: 'Size' }, { number: 'Downloads' }, 'Updated'],
        items.map((each) => [
          html`<a href="${packagePath(each.id)}">${each.id}</a> ${marksOf(each)}`,
          originOf(each),
          each.latest_version ?? html`<span class="quiet">all unlisted</span>`,
          counted(each.version_count, 'version'),
          sizeHtml(each.size_bytes),
          countText(each.download_count),
          ago(each.updated_at, now),
        ]),
        { empty: empty(query) },
      )}
      ${pageLinks(path, query, next)}`;
    return { title: 'Packages', body, json: withQuery('/v1/packages', query) };
  },
};

function empty({ origin, cursor }: Record<string, string>): HtmlPart {
  if (cursor) return 'No further packages.';
  const why =
    origin === 'mirrored'
      ? 'No package was mirrored yet. One appears here after its first download through this feed:'
      : 'No packages yet. Push one, or download one through this feed:';
  return html`${why} <a href="/console/connect">connect a client</a>.`;
}
