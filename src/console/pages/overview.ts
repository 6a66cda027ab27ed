import type { z } from 'zod';
import { findingList } from '../../api/content/content-schemas.ts';
import { account, eventList, usageSchema } from '../../api/framework/schemas.ts';
import { upstreamList } from '../../api/upstreams/upstream-schemas.ts';
import { ago, bytesText, countText, counted, figure, ratio, sizeHtml } from '../framework/format.ts';
import { html, type Html } from '../framework/html.ts';
import { may } from '../framework/layout.ts';
import type { Page, PageCall, PageView } from '../framework/page.ts';
import { sparkline } from '../framework/plot.ts';
import { facts } from '../framework/table.ts';
import { marksOf } from './packages/findings.ts';
import { datesFrom } from './account/usage.ts';
import { connectLines } from './connect.ts';
import { eventRows } from './operations/event-rows.ts';
import { addressOf, isInTrouble, stateOf } from './mirror/mirror.ts';

/** What the server holds and does. Until a first client is seen, the lines that connect one. */
export const overviewPage: Page = {
  path: '/',
  section: 'overview',
  action: 'read',
  show: async (call): Promise<PageView> => {
    const page = { title: 'Overview', json: '/v1/account/usage' };
    if (call.principal.kind === 'anonymous') return { ...page, body: anonymousBody };
    const own = await call.api.call('getAccount', account);
    if (own.usage.is_used) return { ...page, body: await accountBody(call, own) };
    return { title: 'Connect your first client', body: await connectLines(call, false), json: '/v1/account' };
  },
};

const anonymousBody = html`<p>
  You read without signing in. Search for packages and images above, or
  <a href="/console/sign-in">sign in</a> to see the usage of an account.
</p>`;

async function accountBody(
  { api, now, principal }: PageCall,
  { name, limits }: z.input<typeof account>,
): Promise<Html> {
  const seesEvents = may(principal, 'admin') || may(principal, 'operate');
  const [report, recent, upstreams, warned] = await Promise.all([
    api.call('getUsage', usageSchema, { query: { granularity: 'day', limit: '62' } }),
    seesEvents ? api.call('listEvents', eventList, { query: { limit: '10' } }) : undefined,
    may(principal, 'operate') ? api.call('listUpstreams', upstreamList) : undefined,
    api.call('listFindings', findingList, { query: { limit: '1' } }),
  ]);
  const { storage, bandwidth, requests, as_of: asOf } = report;
  const asked = requests.cache_hits + requests.cache_misses;
  const byDay = new Map(report.items.map(({ date, downloads }) => [date, downloads]));
  const daily = datesFrom(Date.parse(report.period.start), now).map((date) => byDay.get(date) ?? 0);
  return html`<dl class="figures">
      ${storedFigure(storage)}
      ${figure('Downloads this month', html`${countText(requests.downloads)} ${sparkline(daily, 'download')}`, `${bytesText(bandwidth.egress_bytes)} sent`)}
      ${figure('Uploads this month', countText(requests.uploads), `${bytesText(bandwidth.ingress_bytes)} received`)}
      ${figure('Answered without the upstream', ratio(requests.cache_hits, asked), `${countText(requests.cache_hits)} of ${countText(asked)} mirrored requests`)}
    </dl>
    <p class="quiet">Account ${name}, as of ${ago(asOf, now)}.</p>
    ${upstreams && mirrorLine(upstreams.items)} ${findingsLine(warned)}
    ${
      recent &&
      html`<section>
        <h2>What happened last</h2>
        ${eventRows(recent.items, now)}
      </section>`
    }
    ${limitRows(limits)}`;
}

/** The health of the mirror in a sentence. */
function mirrorLine(upstreams: z.input<typeof upstreamList>['items']): Html | undefined {
  if (upstreams.length === 0) return undefined;
  const troubled = upstreams.filter(isInTrouble);
  const state =
    troubled.length === 0
      ? html`<span class="state good">no failures</span> ${counted(upstreams.length, 'upstream')}, none of which fails.`
      : html`${troubled.slice(0, 5).map((each) => html`<a href="${addressOf(each)}">${each.id}</a> ${stateOf(each)} `)}
        ${countText(troubled.length)} of ${counted(upstreams.length, 'upstream')}. What is stored of them is served.`;
  return html`<p><a href="/console/mirror">Mirror</a>: ${state}</p>`;
}

/** The vulnerable and deprecated versions in a sentence. */
function findingsLine({
  items: [worst],
  vulnerable_count: vulnerable,
  deprecated_count: deprecated,
  is_complete: isComplete,
}: z.input<typeof findingList>): Html {
  const none = isComplete ? html`<span class="state good">none known</span>` : 'not all data of the feeds is read.';
  const state = worst
    ? html`${marksOf(worst)} ${counted(vulnerable, 'vulnerable version')}, ${countText(deprecated)} deprecated.`
    : none;
  return html`<p><a href="/console/vulnerable">Vulnerable and deprecated</a>: ${state}</p>`;
}

function storedFigure({
  as_of: asOf,
  current_bytes: bytes,
  by_origin: by,
}: z.input<typeof usageSchema>['storage']): Html {
  return asOf === null
    ? figure('Stored', '…', 'it is being measured')
    : figure('Stored', sizeHtml(bytes), `${bytesText(by.hosted)} hosted, ${bytesText(by.mirrored)} mirrored`);
}

const limitNames: Readonly<Record<string, string>> = {
  package: 'Largest package',
  manifest: 'Largest image manifest',
  blob: 'Largest image layer',
  storage: 'Storage of the account',
  egress: 'Bytes sent each month',
};

function limitRows(limits: { name: string; unit: string; limit: number | null }[]): Html | undefined {
  const set = limits.filter(({ limit }) => limit !== null);
  if (set.length === 0) return undefined;
  return html`<section>
    <h2>Limits</h2>
    ${facts(
      ...set.map(({ name, unit, limit }) => {
        const value = unit.startsWith('bytes') ? sizeHtml(limit!) : `${countText(limit!)} ${unit}`;
        return [limitNames[name] ?? name, value] as const;
      }),
    )}
  </section>`;
}
