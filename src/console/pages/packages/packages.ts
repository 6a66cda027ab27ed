import { packageList } from '../../../api/framework/schemas.ts';
import { ago, countText, originOf, sizeHtml } from '../../framework/format.ts';
import { html, type HtmlPart } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import { given, originChoice, packagePath, withQuery } from '../../framework/links.ts';
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
import { marksOf } from './marks.ts';

const path = '/console/packages';

/** All packages that the visitor may see, by ID or by a number. */
export const packagesPage: Page = {
  path: '/packages',
  section: 'packages',
  action: 'read',
  show: async ({ api, query: asked, now, principal }) => {
    const query = given(asked, 'q', 'origin', 'sort', 'cursor');
    const list = { path, query };
    const { items, total, ...page } = await api.call('listPackages', packageList, {
      query: { ...query, total: '1', daily: '1' },
    });
    const upload = may(principal, 'write') && html`<a class="button" href="/console/upload">Upload a package</a>`;
    const body = html`${filterForm(list, [textField(list, 'ID contains'), originChoice(query['origin'])], upload)}
    ${totalLine(total, 'package', 'packages', beingCounted(list, 'packages'))}
    ${table(
      [
        { name: 'Package', sort: '' },
        'Origin',
        'Newest version',
        { number: 'Versions', sort: 'versions' },
        { number: 'Size', sort: 'size' },
        { number: 'Downloads', sort: 'downloads' },
        { text: 'Last download', sort: 'used' },
        { text: 'Updated', sort: 'updated' },
      ],
      items.map((each) => [
        html`<a href="${packagePath(each.id)}">${each.id}</a> ${marksOf(each)}`,
        originOf(each),
        each.latest_version ?? html`<span class="quiet">all unlisted</span>`,
        countText(each.version_count),
        sizeHtml(each.size_bytes),
        html`${countText(each.download_count)} ${sparkline(each.daily_downloads, 'download')}`,
        ago(each.last_downloaded_at, now),
        ago(each.updated_at, now),
      ]),
      { empty: empty(list), list },
    )}
    ${furtherPages(list, page.next_cursor)}`;
    return { title: 'Packages', body, json: withQuery('/v1/packages', query) };
  },
};

function empty(list: ListAddress): HtmlPart {
  const { origin, cursor, q } = list.query;
  if (cursor) return 'No further packages.';
  const why =
    origin === 'mirrored'
      ? 'No package was mirrored yet. One appears here after its first download through this feed:'
      : 'No packages yet. Push one, or download one through this feed:';
  const otherwise = html`${why} <a href="/console/connect">connect a client</a>.`;
  return q ? emptyText(list, otherwise) : otherwise;
}
