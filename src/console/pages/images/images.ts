import { containerList } from '../../../api/framework/schemas.ts';
import { ago, breakable, countText, originOf, sizeHtml } from '../../framework/format.ts';
import { html, type HtmlPart } from '../../framework/html.ts';
import { given, imagePath, originChoice, withQuery } from '../../framework/links.ts';
import {
  beingCounted,
  emptyText,
  filterForm,
  furtherPages,
  textField,
  totalLine,
  type ListAddress,
} from '../../framework/list.ts';
import type { Page } from '../../framework/page.ts';
import { sparkline } from '../../framework/plot.ts';
import { table } from '../../framework/table.ts';

const path = '/console/images';

/** All images that the visitor may see, by name or by a number. */
export const imagesPage: Page = {
  path: '/images',
  section: 'images',
  action: 'read',
  show: async ({ api, query: asked, now }) => {
    const query = given(asked, 'q', 'origin', 'sort', 'cursor');
    const list = { path, query };
    const { items, total, ...page } = await api.call('listContainers', containerList, {
      query: { ...query, tags: '0', total: '1', daily: '1' },
    });
    const body = html`${filterForm(list, [textField(list, 'Name contains'), originChoice(query['origin'])])}
    ${totalLine(total, 'image', 'images', beingCounted(list, 'images'))}
    ${table(
      [
        { name: 'Image', sort: '' },
        'Origin',
        { number: 'Tags', sort: 'tags' },
        { number: 'Size', sort: 'size' },
        { number: 'Pulls', sort: 'pulls' },
        { text: 'Last pull', sort: 'used' },
      ],
      items.map((each) => [
        html`<a href="${imagePath(each.name)}">${breakable(each.name)}</a>`,
        originOf(each),
        countText(each.tag_count),
        sizeHtml(each.size_bytes),
        html`${countText(each.pull_count)} ${sparkline(each.daily_pulls, 'pull')}`,
        ago(each.last_pulled_at, now),
      ]),
      { empty: empty(list), list },
    )}
    ${furtherPages(list, page.next_cursor)}`;
    return { title: 'Images', body, json: withQuery('/v1/containers', query) };
  },
};

function empty(list: ListAddress): HtmlPart {
  const { origin, cursor, q } = list.query;
  if (cursor) return 'No further images.';
  const why =
    origin === 'mirrored'
      ? 'No image was mirrored yet. One appears here after its first pull through this registry:'
      : 'No images yet. Push one, or pull one through this registry:';
  const otherwise = html`${why} <a href="/console/connect">connect a client</a>.`;
  return q ? emptyText(list, otherwise) : otherwise;
}
