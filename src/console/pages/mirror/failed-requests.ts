import type { z } from 'zod';
import { failedRequestList } from '../../../api/server/failed-requests.ts';
import { protocolWords } from '../../../config/protocols.ts';
import { ago, countText, short } from '../../framework/format.ts';
import { html, type HtmlPart } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import { choice, given, withQuery } from '../../framework/links.ts';
import { emptyText, filterForm, furtherPages, textField } from '../../framework/list.ts';
import type { Page, PageCall } from '../../framework/page.ts';
import { table } from '../../framework/table.ts';
import { explainPath } from './explain.ts';

const path = '/console/failures';
const filters = ['kind', 'name', 'token_id', 'upstream', 'code'] as const;
const kinds = Object.fromEntries(
  protocolWords.map(({ kind, plural, word }) => [kind, kind === plural ? word : `${word}s`]),
);

/** The requests of clients that failed, the latest first. */
export const failedRequestsPage: Page = {
  path: '/failures',
  section: 'audit',
  action: 'any',
  show: async (call) => {
    const query = given(call.query, ...filters, 'sort', 'cursor');
    const list = { path, query };
    const { items, next_cursor: next } = await call.api.call('listFailedRequests', failedRequestList, { query });
    const body = html`<p>
        What clients asked for in the last two days and did not get. Equal requests are counted together. A wrong
        password or token is in the <a href="/console/audit?type=sign_in.failed">audit</a>.
      </p>
      ${filterForm(list, [
        choice('kind', 'Kind', { '': 'all', ...kinds }, query['kind']),
        textField(list, 'Name', 'name', 255),
        textField(list, 'Upstream', 'upstream', 255),
        query['token_id'] && textField(list, 'Token', 'token_id'),
        query['code'] && textField(list, 'Code', 'code'),
      ])}
      ${table(
        [{ text: 'Last', sort: '' }, 'Name', 'Status', 'Why', 'Upstream', 'Token', { number: 'Times', sort: 'count' }],
        items.map((each) => [
          ago(each.last_at, call.now),
          nameOf(call, each),
          String(each.status),
          html`${each.reason}
            <a class="quiet" href="${withQuery(path, { ...query, cursor: null, code: each.code })}">${each.code}</a>`,
          each.upstream,
          each.token_id &&
            html`<a href="${withQuery(path, { token_id: each.token_id })}"
              >${each.token_name ?? each.token_id.slice(0, 8)}</a
            >`,
          countText(each.count),
        ]),
        { empty: emptyText(list, 'No request failed in the last two days.'), list },
      )}
      ${furtherPages(list, next)}`;
    return { title: 'Failed requests', body, json: withQuery('/v1/failed-requests', query) };
  },
};

function nameOf(
  { principal }: PageCall,
  { kind, name, reference }: z.input<typeof failedRequestList>['items'][number],
): HtmlPart {
  const text = short([name, reference].filter(Boolean).join(' '), 120);
  return may(principal, 'operate') ? html`<a href="${explainPath(kind, name)}">${text}</a>` : text;
}
