import { packageList } from '../../../api/framework/schemas.ts';
import { ago, countText, counted, originOf, sizeHtml } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import { given, originChoice, packagePath, pageLinks, withQuery } from '../../framework/links.ts';
import type { Page } from '../../framework/page.ts';
import { table } from '../../framework/table.ts';

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
      ${
        items.length === 0
          ? empty(query)
          : table(
              [
                'Package',
                'Origin',
                'Newest version',
                'Versions',
                { number: 'Size' },
                { number: 'Downloads' },
                'Updated',
              ],
              items.map(
                (each) =>
                  html`<tr>
                    <td><a href="${packagePath(each.id)}">${each.id}</a></td>
                    <td>${originOf(each)}</td>
                    <td>${each.latest_version ?? html`<span class="quiet">all unlisted</span>`}</td>
                    <td>${counted(each.version_count, 'version')}</td>
                    <td class="number">${sizeHtml(each.size_bytes)}</td>
                    <td class="number">${countText(each.download_count)}</td>
                    <td>${ago(each.updated_at, now)}</td>
                  </tr>`,
              ),
            )
      }
      ${pageLinks(path, query, next)}
      ${may(principal, 'admin') && html`<p><a href="/console/claims">Claims without content</a></p>`}`;
    return { title: 'Packages', body, json: withQuery('/v1/packages', query) };
  },
};

function empty({ origin, cursor }: Record<string, string>): Html {
  if (cursor) return html`<p class="empty">No further packages.</p>`;
  return html`<p class="empty">
    ${
      origin === 'mirrored'
        ? 'No package was mirrored yet. One appears here after its first download through this feed:'
        : 'No packages yet. Push one, or download one through this feed:'
    }
    <a href="/console/connect">connect a client</a>.
  </p>`;
}
