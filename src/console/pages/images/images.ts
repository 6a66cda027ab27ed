import { containerList } from '../../../api/framework/schemas.ts';
import { ago, countText, counted, originOf, short, sizeHtml } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import { given, imagePath, originChoice, pageLinks, withQuery } from '../../framework/links.ts';
import type { Page } from '../../framework/page.ts';
import { table } from '../../framework/table.ts';

const path = '/console/images';

/** All images that the visitor may see, by name. */
export const imagesPage: Page = {
  path: '/images',
  section: 'images',
  action: 'read',
  show: async ({ api, query: asked, now }) => {
    const query = given(asked, 'origin', 'cursor');
    const { items, next_cursor: next } = await api.call('listContainers', containerList, {
      query: { ...query, tags: '0' },
    });
    const body = html`<form class="filter" method="get" action="${path}">
        ${originChoice(query['origin'])} <button>Show</button>
      </form>
      ${
        items.length === 0
          ? empty(query)
          : table(
              ['Image', 'Origin', 'Tags', { number: 'Size' }, { number: 'Pulls' }, 'Last pull'],
              items.map(
                (each) =>
                  html`<tr>
                    <td><a href="${imagePath(each.name)}">${short(each.name, 255)}</a></td>
                    <td>${originOf(each)}</td>
                    <td>${counted(each.tag_count, 'tag')}</td>
                    <td class="number">${sizeHtml(each.size_bytes)}</td>
                    <td class="number">${countText(each.pull_count)}</td>
                    <td>${ago(each.last_pulled_at, now)}</td>
                  </tr>`,
              ),
            )
      }
      ${pageLinks(path, query, next)}`;
    return { title: 'Images', body, json: withQuery('/v1/containers', query) };
  },
};

function empty({ origin, cursor }: Record<string, string>): Html {
  if (cursor) return html`<p class="empty">No further images.</p>`;
  return html`<p class="empty">
    ${
      origin === 'mirrored'
        ? 'No image was mirrored yet. One appears here after its first pull through this registry:'
        : 'No images yet. Push one, or pull one through this registry:'
    }
    <a href="/console/connect">connect a client</a>.
  </p>`;
}
