import type { z } from 'zod';
import type { upstreamItem } from '../../../api/upstreams/upstream-schemas.ts';
import { upstreamList } from '../../../api/upstreams/upstream-schemas.ts';
import { ago, countText, counted, exact, figure, ratio, short, sizeHtml } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import type { Page } from '../../framework/page.ts';
import { sparkline } from '../../framework/plot.ts';
import { type Cells, table } from '../../framework/table.ts';

export type UpstreamItem = z.input<typeof upstreamItem>;

/** The upstreams: what the mirror saves, and whether each works. */
export const mirrorPage: Page = {
  path: '/mirror',
  section: 'mirror',
  action: 'operate',
  show: async ({ api, now }) => {
    const { items } = await api.call('listUpstreams', upstreamList, { query: { daily: '1' } });
    if (items.length === 0) {
      const body = html`<p class="empty">
        The settings name no upstream, so nothing is mirrored. Add one under <code>upstreams</code> in the file of the
        settings, and start the server again.
      </p>`;
      return { title: 'Mirror', body, json: '/v1/upstreams' };
    }
    const sum = (read: (week: UpstreamItem['week']) => number) => items.reduce((all, { week }) => all + read(week), 0);
    const hits = sum((week) => week.hits);
    const needed = sum((week) => week.needed);
    const troubled = items.filter(isInTrouble).length;
    const body = html`<dl class="figures">
        ${figure('Upstreams that fail', countText(troubled), `of ${countText(items.length)}, now`)}
        ${figure('Without an upstream', ratio(hits, needed), `of ${countText(needed)} requests in 7 days`)}
        ${figure('Fetched', sizeHtml(sum((week) => week.received_bytes)), 'in 7 days')}
        ${figure('Waiting saved', durationText(sum((week) => week.saved_seconds)), 'in 7 days, about')}
      </dl>
      <p class="quiet" ${items.some(({ cached }) => !cached) && html`data-refresh="5000"`}>
        Of all instances, added up once a minute. <a href="/console/prefetch">Prefetch from a file</a> fetches what
        builds will need.
      </p>
      ${table(
        [
          { name: 'Upstream' },
          'State',
          'Rate limit',
          'Answer time',
          'Hits in 7 days',
          'Fetched in 7 days',
          'Stored',
          'Works offline',
          'Last success',
        ],
        items.map((each) => upstreamRow(each, now)),
      )}`;
    return { title: 'Mirror', body, json: '/v1/upstreams' };
  },
};

function upstreamRow(each: UpstreamItem, now: number): Cells {
  const { id, kind, cached, week } = each;
  return [
    html`<a href="${addressOf(each)}">${id}</a>
      <span class="quiet">${kindText(kind)}</span> ${sparkline(each.daily_requests, 'request')}`,
    html`${stateOf(each)} ${isInTrouble(each) && html`<br />${failureOf(each, now)}`}`,
    limitText(each, now),
    latencyText(each),
    html`${ratio(week.hits, week.needed)} <span class="quiet">of ${countText(week.needed)}</span>`,
    sizeHtml(week.received_bytes),
    cached ? html`${counted(cached.entries, 'entry', 'entries')}, ${sizeHtml(cached.size_bytes)}` : 'being counted',
    offlineText(each),
    ago(each.last_success_at, now),
  ];
}

/** The address of the upstream's page; `rest` is a page below it. */
export function addressOf({ id, kind }: { id: string; kind: string }, rest = ''): string {
  return `/console/mirror/${encodeURIComponent(id)}${rest}?kind=${kind}`;
}

export function kindText(kind: UpstreamItem['kind']): string {
  return kind === 'nuget' ? 'package feed' : 'registry';
}

const states: Readonly<Record<UpstreamItem['state'], readonly [mark: string, text: string]>> = {
  working: ['good', 'working'],
  failing: ['bad', 'failing'],
  refused: ['bad', 'refuses access'],
  paused: ['bad', 'paused'],
  offline: ['warn', 'set to offline'],
  unused: ['', 'not asked yet'],
};

/** The state of the upstream in words. */
export function stateOf({ state }: UpstreamItem): Html {
  return stateMark(state);
}

export function stateMark(state: UpstreamItem['state']): Html {
  const [mark, text] = states[state];
  return html`<span class="state ${mark}">${text}</span>`;
}

/** Whether requests to the upstream fail now. */
export function isInTrouble({ state }: UpstreamItem): boolean {
  return states[state][0] === 'bad';
}

/** When and why a request last failed; undefined if none has since the start. */
export function failureOf({ last_failure: failure }: UpstreamItem, now: number): Html | undefined {
  return failure
    ? html`${ago(failure.time, now)}, for ${short(failure.subject, 100)}: it ${failure.reason}.`
    : undefined;
}

export function limitText({ rate_limit: limit }: UpstreamItem, now: number): Html {
  if (!limit) return html`<span class="quiet">none announced</span>`;
  const whole = limit.limit === null ? '' : ` of ${countText(limit.limit)}`;
  return html`${countText(limit.remaining)}${whole} left, until ${ago(limit.resets_at, now)}`;
}

export function latencyText({ latency }: UpstreamItem): Html {
  if (!latency) return html`<span class="quiet">no requests yet</span>`;
  const text = `${Math.round(latency.median_ms)} ms, 95 % below ${Math.round(latency.p95_ms)} ms`;
  return exact(text, `estimated from ${counted(latency.requests, 'request')} since the start of this instance`);
}

export function offlineText({ works_offline: works, cached, mode }: UpstreamItem): Html {
  if (!cached || works === null) return html`<span class="quiet">being counted</span>`;
  if (works === 'nothing') return html`<span class="state bad">no</span> nothing is stored`;
  if (works === 'partly') {
    return html`<span class="state warn">partly</span>
      ${counted(cached.expired_documents, 'document is', 'documents are')} too old`;
  }
  return html`<span class="state good">yes</span> ${mode === 'offline' ? 'it does' : 'what is stored'}`;
}

/** Seconds as text, such as `1.5 h`. */
export function durationText(seconds: number): string {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return seconds < 3600 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
