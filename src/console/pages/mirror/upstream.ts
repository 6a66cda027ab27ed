import type { z } from 'zod';
import {
  upstreamEntry,
  upstreamEntryList,
  upstreamHistory,
  upstreamItem,
} from '../../../api/upstreams/upstream-schemas.ts';
import { DomainError } from '../../../runtime/errors.ts';
import { ago, bytesText, copyable, countText, counted, short, sizeHtml } from '../../framework/format.ts';
import { confirmForm } from '../../framework/form.ts';
import { html, type Html } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import type { Page, PageCall, Redirect, PageView } from '../../framework/page.ts';
import { choice, given, withValues } from '../../framework/links.ts';
import { emptyText, filterForm, refusalOf, textField, totalLine, type ListAddress } from '../../framework/list.ts';
import { barChart } from '../../framework/plot.ts';
import { firstOf, list, Selection } from '../../framework/selection.ts';
import { facts, type Cells, table } from '../../framework/table.ts';
import {
  addressOf,
  durationText,
  failureOf,
  isInTrouble,
  kindText,
  latencyText,
  limitText,
  offlineText,
  stateOf,
  type UpstreamItem,
} from './mirror.ts';

type Entry = z.input<typeof upstreamEntry>;

/** Most entries that are dropped together. */
const maxTogether = 200;
/** Most characters of a tag, version or digest in the table; a button copies a longer one. */
const maxReferenceLength = 40;

/** The query of `/v1` that names one upstream. */
function kindOf({ query }: PageCall): Record<string, string> {
  return query['kind'] === undefined ? {} : { kind: query['kind'] };
}

/** One upstream: its state, its figures, and what is stored of it. */
export const upstreamPage: Page = {
  path: '/mirror/:id',
  section: 'mirror',
  action: 'operate',
  show: async (call): Promise<PageView> => {
    const params = { id: call.params['id']! };
    const upstream = await call.api.call('getUpstream', upstreamItem, { params, query: kindOf(call) });
    const body = html`${factsOf(upstream, call.now)} ${await historySection(call, upstream)}
      <section>
        <h2>What is stored</h2>
        ${await entriesPart(call, upstream)}
      </section>`;
    return { title: `Upstream ${upstream.id}`, body, json: `/v1/upstreams/${encodeURIComponent(params.id)}` };
  },
  send: async (call): Promise<Redirect> => {
    const params = { id: call.params['id']! };
    const upstream = await call.api.call('retryUpstream', upstreamItem, { params, query: kindOf(call) });
    return { to: addressOf(upstream), done: !isInTrouble(upstream) ? 'upstream-works' : 'upstream-fails' };
  },
};

function factsOf(upstream: UpstreamItem, now: number): Html {
  const { kind, name, url, accounts, breaker, requests, saved, cached, audits_without_data: audits } = upstream;
  return html`<p class="quiet" ${!cached && html`data-refresh="5000"`}>
      Requests, answer times and savings count from the start of this instance ${ago(upstream.since, now)}, with all of
      its workers.
    </p>
    ${facts(
      ['State', html`${stateOf(upstream)} ${breakerText(breaker, now)} ${isInTrouble(upstream) && tryNow}`],
      upstream.last_failure && ['Last failure', failureOf(upstream, now)],
      audits > 0 && [
        'Audits',
        `${counted(audits, 'answer')} with vulnerability data lacked those of this feed, because it has never sent any. dotnet restore warned of none of its advisories.`,
      ],
      [
        'Kind',
        html`${kindText(kind)}
          <code>${url}</code>${name !== upstream.id && html`, used by the name <code>${name}</code>`}`,
      ],
      ['Accounts', accounts ? accounts.join(', ') : 'all'],
      ['Last success', ago(upstream.last_success_at, now)],
      ['Rate limit', limitText(upstream, now)],
      ['Time until an answer', latencyText(upstream)],
      ['Sent to it', html`${counted(requests.sent, 'request')}, which brought ${sizeHtml(requests.received_bytes)}`],
      [
        'Needed from it',
        `${counted(requests.needed, 'document or file', 'documents and files')}: ${outcomesText(requests.by_outcome)}`,
      ],
      [
        'Saved',
        html`${counted(saved.requests, 'request')}, ${sizeHtml(saved.bytes)} and about ${durationText(saved.seconds)} of
        waiting`,
      ],
      [
        'Stored',
        cached
          ? html`${counted(cached.entries, 'entry', 'entries')}, ${sizeHtml(cached.size_bytes)}, of which
            ${sizeHtml(cached.unused_bytes)} were not used for 90 days, counted ${ago(cached.as_of, now)}`
          : 'being counted; look again in a minute',
      ],
      ['Works offline', offlineText(upstream)],
    )}`;
}

const periods = { day: '24 hours', month: '30 days', year: '365 days' } as const;

type Sample = z.input<typeof upstreamHistory>['items'][number];

/** What each plot shows of a time. With `part`, the share of it that is drawn darker. */
const plots: readonly {
  title: string;
  value: (each: Sample) => number;
  part?: (each: Sample) => number;
  text: (each: Sample) => string;
}[] = [
  {
    title: 'Requests to it: failed ones below',
    value: (each) => each.requests,
    part: (each) => each.failures,
    text: (each) => `${countText(each.requests)}, ${countText(each.failures)} failed`,
  },
  { title: 'Mean time until an answer', value: (each) => each.mean_ms ?? 0, text: (each) => `${each.mean_ms ?? 0} ms` },
  {
    title: 'Needed from it: without a request below',
    value: (each) => each.needed,
    part: (each) => each.hits,
    text: (each) => `${countText(each.needed)}, ${countText(each.hits)} without a request`,
  },
  { title: 'Bytes from it', value: (each) => each.received_bytes, text: (each) => bytesText(each.received_bytes) },
];

/** What was asked of the upstream over time, by all instances. */
async function historySection(call: PageCall, upstream: UpstreamItem): Promise<Html> {
  const names = Object.keys(periods) as (keyof typeof periods)[];
  const period = names.find((each) => each === call.query['period']) ?? 'day';
  const params = { id: upstream.id };
  const query = { kind: upstream.kind, period };
  const { items } = await call.api.call('getUpstreamHistory', upstreamHistory, { params, query });
  const labelOf = ({ start }: Sample) => (period === 'day' ? start.slice(11, 16) : start.slice(5, 10));
  const charts = plots.map(({ title, value, part = () => 0, text }) => {
    const bars = items.map((each) => ({
      label: labelOf(each),
      value: value(each),
      part: part(each),
      text: text(each),
    }));
    return html`<div>
      <h3>${title}</h3>
      ${barChart(bars, title, 'plot small')}
    </div>`;
  });
  return html`<section>
    <h2>Over time</h2>
    <p class="choices">
      ${Object.entries(periods).map(
        ([key, text]) =>
          html`<a href="${addressOf(upstream)}&amp;period=${key}" ${key === period && html`aria-current="true"`}
            >${text}</a
          > `,
      )}
    </p>
    ${items.length === 0 ? html`<p class="empty">Nothing was asked of it in this time.</p>` : html`<div class="plots">${charts}</div>`}
    ${
      items.length > 0 &&
      html`<details>
        <summary>As a table</summary>
        ${table(
          [{ name: 'From' }, ...plots.map(({ title }) => title)],
          items.map((each) => [
            `${each.start.slice(0, 16).replace('T', ' ')} UTC`,
            ...plots.map(({ text }) => text(each)),
          ]),
          { label: 'what was asked of the upstream' },
        )}
      </details>`
    }
  </section>`;
}

/** The address of the page names the kind, if a feed and a registry have the ID. */
const tryNow = html`<form method="post"><button>Try now</button></form>`;

function breakerText(breaker: UpstreamItem['breaker'], now: number): Html | undefined {
  if (breaker.state === 'closed') return undefined;
  const { workers, open_workers: open, reason, since, next_attempt_at: next } = breaker;
  const isOver = next !== null && Date.parse(next) <= now;
  return html`since ${ago(since, now)}: it ${reason}.
  ${isOver ? 'The next request is a test.' : html`Next try ${ago(next, now)}.`}
  ${workers > 1 && html`In ${countText(open)} of ${countText(workers)} workers.`}`;
}

const outcomeTexts: Readonly<Record<string, string>> = {
  hit: 'from the storage',
  stale: 'from the storage because it failed',
  revalidated: 'from the storage after it confirmed them',
  miss: 'fetched',
  passed: 'fetched and not stored because the disk is full',
  absent: 'not found',
  failed: 'failed',
};

function outcomesText(outcomes: Readonly<Record<string, number>>): string {
  const texts = Object.entries(outcomes).filter(([, value]) => value > 0);
  return texts.map(([name, value]) => `${countText(value)} ${outcomeTexts[name] ?? name}`).join(', ') || 'none yet';
}

async function entriesPart(call: PageCall, upstream: UpstreamItem): Promise<Html> {
  const query = given(call.query, 'name', 'entry_kind', 'sort', 'cursor');
  const kept = { kind: upstream.kind, ...given(call.query, 'period') };
  const address = { path: `/console/mirror/${encodeURIComponent(upstream.id)}`, kept, query };
  const kinds = Object.fromEntries(upstream.entry_kinds.map((each) => [each, each]));
  const filter = html`${textField(address, 'Name begins with', 'name', 255)}
  ${choice('entry_kind', 'Kind', { '': 'all', ...kinds }, query['entry_kind'])}`;
  const asked = { params: { id: upstream.id }, query: { ...query, kind: upstream.kind, total: '1' } };
  const found = await call.api
    .call('listUpstreamEntries', upstreamEntryList, asked)
    .catch((error: unknown) => refusalOf(error, 'name'));
  if (typeof found === 'string')
    return html`${filterForm(address, filter)}
      <p class="field-error" role="alert">${found}</p>`;
  const selection = may(call.principal, 'delete') ? new Selection(call, 'entry') : undefined;
  const entries = list({
    ...address,
    filter,
    rows: entryTable(address, found.items, selection, call.now),
    next: found.next_cursor,
    selection,
    actions: html`<p>
      <button class="danger" formaction="${address.path}/drop">Drop the selected entries…</button>
    </p>`,
  });
  const isUncountable = found.total === null && query['name'];
  return html`${
    isUncountable
      ? html`<p class="quiet">More than 10,000 entries</p>`
      : totalLine(found.total, 'entry', 'entries', 'They are being counted; look again in a minute.')
  }
  ${entries}`;
}

function entryTable(
  address: ListAddress,
  entries: readonly Entry[],
  selection: Selection | undefined,
  now: number,
): Html {
  const nothing = html`Nothing is stored of it. What clients request is stored;
    <a href="/console/prefetch">a prefetch</a> stores it before.`;
  return table(
    [
      selection !== undefined && { unseen: 'Select' },
      { name: 'Name', sort: '' },
      'Version, tag or digest',
      'Kind',
      { number: 'Size', sort: 'size' },
      { text: 'Last used', sort: 'used' },
      { text: 'Stored', sort: 'stored' },
    ],
    entries.map((each) => entryRow(each, selection, now)),
    { empty: emptyText(address, nothing), list: { ...address, isForm: selection !== undefined } },
  );
}

function entryRow(
  { id, kind, name, reference, size_bytes: bytes, ...each }: Entry,
  selection: Selection | undefined,
  now: number,
): Cells {
  const text = [name, reference].filter((part) => part !== '').join(' ') || kind;
  return [
    selection?.box(id, text),
    name || html`<span class="quiet">the upstream itself</span>`,
    reference.length > maxReferenceLength ? copyable(reference, short(reference, maxReferenceLength)) : reference,
    kind,
    sizeHtml(bytes),
    ago(each.last_used_at, now),
    ago(each.stored_at, now),
  ];
}

/** Confirms that the selected entries are dropped. */
export const dropEntriesPage: Page = {
  path: '/mirror/:id/drop',
  section: 'mirror',
  action: 'delete',
  show: async (call): Promise<PageView> => {
    const title = 'Drop stored entries';
    const params = { id: call.params['id']! };
    const query = kindOf(call);
    const upstream = await call.api.call('getUpstream', upstreamItem, { params, query });
    const back = addressOf(upstream);
    const { chosen: ids, note } = firstOf(call.values('entry'), maxTogether);
    if (ids.length === 0) {
      return { title, body: html`<p>No entry is selected. <a href="${back}">Select some</a>, and try again.</p>` };
    }
    const found: Entry[] = [];
    for (const entry of ids) {
      const entryParams = { ...params, entry };
      found.push(...(await ifFound(call.api.call('getUpstreamEntry', upstreamEntry, { params: entryParams, query }))));
    }
    if (found.length === 0) {
      return { title, body: html`<p>These entries are dropped already. <a href="${back}">Go back</a>.</p>` };
    }
    const bytes = found.reduce((sum, each) => sum + each.size_bytes, 0);
    const body = html`<p>
        ${counted(found.length, 'entry', 'entries')} of ${upstream.id} with ${sizeHtml(bytes)} will be dropped. The next
        request fetches each again, and fails while the upstream does.
      </p>
      ${risk(upstream)} ${note}
      <ul>
        ${found.map(
          ({ kind, name, reference, last_used_at: used }) =>
            html`<li>${kind} <strong>${name} ${reference}</strong>, last used ${ago(used, call.now)}</li>`,
        )}
      </ul>
      ${confirmForm(
        `Drop ${counted(found.length, 'entry', 'entries')}`,
        'Keep them',
        withValues(back, 'entry', ids),
        found.map(({ id }) => ['entry', id]),
      )}`;
    return { title, body };
  },
  send: async (call): Promise<Redirect> => {
    const params = { id: call.params['id']! };
    const query = kindOf(call);
    const upstream = await call.api.call('getUpstream', upstreamItem, { params, query });
    for (const entry of firstOf(call.form.getAll('entry'), maxTogether).chosen) {
      await ifFound(call.api.do('dropUpstreamEntry', { params: { ...params, entry }, query }));
    }
    return { to: addressOf(upstream), done: 'entries-dropped' };
  },
};

/** The result in a list; empty if another user or an eviction has dropped the entry meanwhile. */
async function ifFound<T>(work: Promise<T>): Promise<T[]> {
  try {
    return [await work];
  } catch (error) {
    if (error instanceof DomainError && error.name === 'NotFound') return [];
    throw error;
  }
}

function risk({ mode, breaker }: UpstreamItem): Html | undefined {
  if (mode === 'offline') {
    return html`<p class="warning">This upstream is set to offline, so the entries cannot be fetched again.</p>`;
  }
  if (breaker.state === 'closed') return undefined;
  return html`<p class="warning">This upstream fails now, so the entries cannot be fetched again until it works.</p>`;
}
