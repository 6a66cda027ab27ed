import type { z } from 'zod';
import { usageSchema, type usageItem } from '../../../api/framework/schemas.ts';
import { tokenList } from '../../../api/framework/token-schemas.ts';
import { ago, bytesText, copyable, countText, counted, ratio, sizeHtml } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import type { Page, PageCall } from '../../framework/page.ts';
import { given, withQuery } from '../../framework/links.ts';
import { emptyText, filterForm, furtherPages, textField, type ListAddress } from '../../framework/list.ts';
import { barChart } from '../../framework/plot.ts';
import { facts, table } from '../../framework/table.ts';

type Item = z.input<typeof usageItem>;

const path = '/console/usage';
const groupings = [
  ['package', 'Packages', 'package'],
  ['container', 'Images', 'image'],
  ['token', 'Tokens', 'token'],
] as const;

/** What the account used in a month: by day, and by package, image or token. */
export const usagePage: Page = {
  path: '/usage',
  section: 'usage',
  action: 'account',
  show: async (call) => {
    const { query } = call;
    const month = query['period'] ? { period: query['period'] } : {};
    const [grouping, title, word] = groupings.find(([key]) => key === query['group_by']) ?? groupings[0];
    const chosen = given(query, 'q', 'sort', 'cursor');
    const days = await call.api.call('getUsage', usageSchema, { query: { ...month, granularity: 'day', limit: '62' } });
    const items = await call.api.call('getUsage', usageSchema, {
      query: { ...chosen, ...month, group_by: grouping, total: '1' },
    });
    const names = grouping === 'token' ? await tokenNames(call) : new Map<string, string>();
    const { period, storage, bandwidth, requests, as_of: asOf } = days;
    const name = period.start.slice(0, 7);
    const asked = requests.cache_hits + requests.cache_misses;
    const isYear = query['days'] === '365';
    const list = { path, kept: { period: name, group_by: grouping }, query: chosen };
    const body = html`<p>
        ${monthLinks(list, name, call.now)} <span class="quiet">As of ${ago(asOf, call.now)}.</span>
      </p>
      ${facts(
        ['Sent', html`${sizeHtml(bandwidth.egress_bytes)} in ${countText(requests.downloads)} downloads`],
        ['Received', html`${sizeHtml(bandwidth.ingress_bytes)} in ${countText(requests.uploads)} uploads`],
        [
          'From upstreams',
          html`${sizeHtml(bandwidth.upstream_bytes)}; ${ratio(requests.cache_hits, asked)} of the requests for mirrored
          content needed no upstream`,
        ],
        [
          'Stored',
          storage.as_of === null
            ? 'it is being measured'
            : html`${sizeHtml(storage.current_bytes)} now, at most ${sizeHtml(storage.peak_bytes)},
              ${sizeHtml(storage.average_bytes)} on average`,
        ],
      )}
      <section>
        <h2>${isYear ? 'The last 53 weeks' : 'By day'}</h2>
        <p class="choices">
          <a href="${withQuery(path, list.kept)}" ${!isYear && html`aria-current="true"`}>The month</a>
          <a href="${withQuery(path, { ...list.kept, days: '365' })}" ${isYear && html`aria-current="true"`}
            >365 days</a
          >
        </p>
        ${isYear ? await weeksOf(call) : daysOf(days.items, datesFrom(Date.parse(period.start), Date.parse(period.end)), 'day')}
      </section>
      <section>
        <h2>By ${title.toLowerCase()}</h2>
        <p class="choices">
          ${groupings.map(
            ([key, text]) =>
              html`<a
                href="${withQuery(path, { period: name, group_by: key })}"
                ${key === grouping ? html`aria-current="true"` : ''}
                >${text}</a
              > `,
          )}
        </p>
        ${filterForm(list, textField(list, 'Name contains'))} ${totalText(items.total, word)}
        ${itemRows(list, items.items, grouping, names)} ${furtherPages(list, items.next_cursor)}
      </section>`;
    return { title: `Usage in ${name}`, body, json: `/v1/account/usage?period=${name}` };
  },
};

/** The months before and after, with the same filter and order. */
function monthLinks({ kept, query: { cursor: _cursor, ...query } }: ListAddress, month: string, now: number): Html {
  const shifted = (by: number) => {
    const [year, index] = month.split('-').map(Number) as [number, number];
    return new Date(Date.UTC(year, index - 1 + by)).toISOString().slice(0, 7);
  };
  const link = (to: string, text: string) =>
    html`<a href="${withQuery(path, { ...kept, ...query, period: to })}">${text}</a>`;
  const next = shifted(1);
  return html`${link(shifted(-1), `‹ ${shifted(-1)}`)}
    <strong>${month}</strong> ${next <= new Date(now).toISOString().slice(0, 7) && link(next, `${next} ›`)}`;
}

/** What each plot shows of a day. With `part`, the share of it that is drawn darker. */
const plots: readonly {
  title: string;
  value: (each: Item) => number;
  part?: (each: Item) => number;
  text: (each: Item) => string;
}[] = [
  { title: 'Bytes sent', value: (each) => each.egress_bytes, text: (each) => bytesText(each.egress_bytes) },
  {
    title: 'Mirrored requests: hits below, misses above',
    value: (each) => each.cache_hits + each.cache_misses,
    part: (each) => each.cache_hits,
    text: (each) =>
      `${countText(each.cache_hits)} of ${countText(each.cache_hits + each.cache_misses)} without the upstream`,
  },
  {
    title: 'Bytes from upstreams',
    value: (each) => each.upstream_bytes,
    text: (each) => bytesText(each.upstream_bytes),
  },
  { title: 'Uploads', value: (each) => each.uploads, text: (each) => countText(each.uploads) },
];

const day = 86_400_000;
const weeks = 53;

/** The dates from `start` to before `end`, every `step` days. */
export function datesFrom(start: number, end: number, step = 1): string[] {
  const dates: string[] = [];
  for (let at = start; at < end; at += step * day) dates.push(new Date(at).toISOString().slice(0, 10));
  return dates;
}

/** The use of the last weeks, which end today: each has the date of its first day. The months that they touch are read by day. */
async function weeksOf({ api, now }: PageCall): Promise<Html> {
  const end = now - (now % day) + day;
  const start = end - weeks * 7 * day;
  const months = new Set(datesFrom(start, end).map((each) => each.slice(0, 7)));
  const byWeek = new Map<string, Item>();
  for (const period of months) {
    const { items } = await api.call('getUsage', usageSchema, { query: { period, granularity: 'day', limit: '62' } });
    for (const item of items) {
      const since = Date.parse(item.date!) - start;
      if (since < 0) continue;
      const date = new Date(start + since - (since % (7 * day))).toISOString().slice(0, 10);
      const known = byWeek.get(date);
      byWeek.set(date, { ...(known ? sumOf(known, item) : item), date });
    }
  }
  return daysOf([...byWeek.values()], datesFrom(start, end, 7), 'week');
}

/** The numbers of both together. */
function sumOf(one: Item, other: Item): Item {
  const sum = ([name, value]: [string, unknown]) => [
    name,
    typeof value === 'number' ? value + (other[name as keyof Item] as number) : value,
  ];
  return Object.fromEntries(Object.entries(one).map(sum)) as Item;
}

/** Plots with a bar for each of `dates`, and a table. */
function daysOf(items: readonly Item[], dates: readonly string[], unit: 'day' | 'week'): Html {
  const when = unit === 'day' ? 'in this month' : 'in the last year';
  if (items.length === 0) return html`<p class="empty">No client used this account ${when}.</p>`;
  const byDay = new Map(items.map((each) => [each.date, each]));
  const barOf = ({ value, part, text }: (typeof plots)[number], date: string) => {
    const each = byDay.get(date);
    return {
      label: unit === 'day' ? date.slice(8) : date,
      value: each ? value(each) : 0,
      part: each && part ? part(each) : 0,
      text: each ? text(each) : '0',
    };
  };
  return html`<div class="plots">
      ${plots.map(
        (plot) =>
          html`<div>
            <h3>${plot.title}</h3>
            ${barChart(
              dates.map((date) => barOf(plot, date)),
              `${plot.title} ${unit === 'day' ? 'on each day of the month' : 'in each of the last 53 weeks'}`,
              'plot small',
            )}
          </div>`,
      )}
    </div>
    <details>
      <summary>As a table</summary>
      ${table(
        [
          { name: unit === 'day' ? 'Day' : 'Week from' },
          { number: 'Sent' },
          { number: 'Received' },
          { number: 'From upstreams' },
          { number: 'Hits' },
          { number: 'Misses' },
          { number: 'Downloads' },
          { number: 'Uploads' },
        ],
        items.map((each) => [
          each.date,
          sizeHtml(each.egress_bytes),
          sizeHtml(each.ingress_bytes),
          sizeHtml(each.upstream_bytes),
          countText(each.cache_hits),
          countText(each.cache_misses),
          countText(each.downloads),
          countText(each.uploads),
        ]),
        { label: unit === 'day' ? 'the days of the month' : 'the weeks of the year' },
      )}
    </details>`;
}

/** Pages of 200 tokens that are read for their names. */
const maxTokenPages = 5;

/** Names of tokens by ID, for the first 1000 tokens of the account; none if the visitor may not see tokens. */
async function tokenNames({ api, principal }: PageCall): Promise<Map<string, string>> {
  const names = new Map<string, string>();
  let cursor: string | null = may(principal, 'admin') ? '' : null;
  for (let page = 0; page < maxTokenPages && cursor !== null; page += 1) {
    const query: Record<string, string> = { limit: '200', ...(cursor !== '' && { cursor }) };
    const list: z.input<typeof tokenList> = await api.call('listTokens', tokenList, { query });
    for (const { id, name } of list.items) names.set(id, name);
    cursor = list.next_cursor;
  }
  return names;
}

/** The sums of all pages. */
function totalText(total: z.input<typeof usageSchema>['total'], word: string): Html | undefined {
  if (!total || total.requests === 0) return undefined;
  return html`<p class="quiet">
    ${counted(total.count, word)}: ${counted(total.requests, 'request')}, ${counted(total.downloads, 'download')},
    ${sizeHtml(total.egress_bytes)} sent, ${sizeHtml(total.ingress_bytes)} received, ${sizeHtml(total.upstream_bytes)}
    from upstreams
  </p>`;
}

function itemRows(
  list: ListAddress,
  items: readonly Item[],
  grouping: string,
  names: ReadonlyMap<string, string>,
): Html {
  const page = { package: 'packages', container: 'images' }[grouping];
  const nameOf = ({ key }: Item) => {
    if (key === null) return html`<span class="quiet">without a name</span>`;
    if (page === undefined) return names.get(key) ?? copyable(key);
    return html`<a href="/console/${page}/${encodeURIComponent(key)}">${key}</a>`;
  };
  return table(
    [
      { name: 'Name', sort: '' },
      { number: 'Requests', sort: 'requests' },
      { number: 'Downloads', sort: 'downloads' },
      { number: 'Sent', sort: 'egress_bytes' },
      { number: 'Received', sort: 'ingress_bytes' },
      { number: 'From upstreams', sort: 'upstream_bytes' },
    ],
    items.map((each) => [
      nameOf(each),
      countText(each.requests),
      countText(each.downloads),
      sizeHtml(each.egress_bytes),
      sizeHtml(each.ingress_bytes),
      sizeHtml(each.upstream_bytes),
    ]),
    { empty: emptyText(list, 'Nothing was used in this month.'), list },
  );
}
