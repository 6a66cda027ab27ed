import type { z } from 'zod';
import { countersSchema } from '../../api/account/counters.ts';
import { findingList } from '../../api/content/content-schemas.ts';
import { account, eventList, usageSchema } from '../../api/framework/schemas.ts';
import { upstreamList } from '../../api/upstreams/upstream-schemas.ts';
import { agoText, bytesText, countText, counted, figure, ratio, sizeHtml } from '../framework/format.ts';
import { html, type Html } from '../framework/html.ts';
import { may } from '../framework/layout.ts';
import type { Page, PageCall, PageView } from '../framework/page.ts';
import { sparkline } from '../framework/plot.ts';
import { facts } from '../framework/table.ts';
import { marksOf } from './packages/marks.ts';
import { datesFrom } from './account/usage.ts';
import { connectLines } from './connect.ts';
import { eventRows } from './operations/event-rows.ts';
import { addressOf, isInTrouble, stateOf } from './mirror/mirror.ts';

type Account = z.input<typeof account>;

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

async function accountBody(call: PageCall, own: Account): Promise<Html> {
  const { api, now, principal } = call;
  const seesEvents = may(principal, 'admin') || may(principal, 'operate');
  const [report, counters, recent, upstreams, warned] = await Promise.all([
    api.call('getUsage', usageSchema, { query: { granularity: 'day', limit: '62' } }),
    overviewCounters(call),
    seesEvents ? api.call('listEvents', eventList, { query: { limit: '10' } }) : undefined,
    may(principal, 'operate') ? api.call('listUpstreams', upstreamList) : undefined,
    api.call('listFindings', findingList, { query: { limit: '1' } }),
  ]);
  const live = (name: keyof typeof counters) => html`<span data-live="${name}">${counters[name]}</span>`;
  const byDay = new Map(report.items.map(({ date, downloads }) => [date, downloads]));
  const daily = datesFrom(Date.parse(report.period.start), now).map((date) => byDay.get(date) ?? 0);
  return html`<dl class="figures">
      ${figure('Stored', live('stored'), live('stored_by_origin'))}
      ${figure('Downloads this month', html`${live('downloads')} ${sparkline(daily, 'download')}`, html`${live('sent')} sent`)}
      ${figure('Uploads this month', live('uploads'), html`${live('received')} received`)}
      ${figure('Answered without the upstream', live('hit_rate'), html`${live('hits')} of ${live('mirrored')} mirrored requests`)}
    </dl>
    <p class="quiet">Account ${own.name}, as of ${live('as_of')}.</p>
    ${upstreams && mirrorLine(upstreams.items)} ${findingsLine(warned)}
    ${
      recent &&
      html`<section>
        <h2>What happened last</h2>
        ${eventRows(recent.items, now)}
      </section>`
    }
    ${limitRows(own.limits)}`;
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
  return html`<p><a href="/console/risks">Vulnerable and deprecated</a>: ${state}</p>`;
}

/** The counters of the page as text. */
function textsOf({ storage_as_of: measured, ...usage }: z.input<typeof countersSchema>, now: number) {
  const asked = usage.cache_hits + usage.cache_misses;
  const { hosted_bytes: hosted, mirrored_bytes: mirrored } = usage;
  return {
    stored: measured === null ? '…' : bytesText(hosted + mirrored),
    stored_by_origin:
      measured === null ? 'it is being measured' : `${bytesText(hosted)} hosted, ${bytesText(mirrored)} mirrored`,
    downloads: countText(usage.downloads),
    sent: bytesText(usage.egress_bytes),
    uploads: countText(usage.uploads),
    received: bytesText(usage.ingress_bytes),
    hit_rate: ratio(usage.cache_hits, asked),
    hits: countText(usage.cache_hits),
    mirrored: countText(asked),
    as_of: agoText(usage.as_of, now),
  };
}

/** The counters of the overview, which its page asks for while it is shown. */
export async function overviewCounters({ api, now }: PageCall) {
  return textsOf(await api.call('getCounters', countersSchema), now);
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
