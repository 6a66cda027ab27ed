import { containerList } from '../../../api/framework/schemas.ts';
import { ago, countText, counted, originOf, short, sizeHtml } from '../../framework/format.ts';
import { html, type HtmlPart } from '../../framework/html.ts';
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
      ${table(
        ['Image', 'Origin', 'Tags', { number: 'Size' }, { number: 'Pulls' }, 'Last pull'],
        items.map((each) => [
          html`<a href="${imagePath(each.name)}">${short(each.name, 255)}</a>`,
          originOf(each),
          counted(each.tag_count, 'tag'),
          sizeHtml(each.size_bytes),
          countText(each.pull_count),
          ago(each.last_pulled_at, now),
        ]),
        { empty: empty(query) },
      )}
      ${pageLinks(path, query, next)}`;
    return { title: 'Images', body, json: withQuery('/v1/containers', query) };
  },
};

function empty({ origin, cursor }: Record<string, string>): HtmlPart {
  if (cursor) return 'No further images.';
  const why =
    origin === 'mirrored'
      ? 'No image was mirrored yet. One appears here after its first pull through this registry:'
      : 'No images yet. Push one, or pull one through this registry:';
  return html`${why} <a href="/console/connect">connect a client</a>.`;
}
