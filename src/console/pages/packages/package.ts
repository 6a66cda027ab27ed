import type { z } from 'zod';
import { dependentList, packageVersionDetails, packageVersionList } from '../../../api/content/content-schemas.ts';
import { historySchema } from '../../../api/framework/history-schema.ts';
import { eventList, packageDetails, type packageVersion } from '../../../api/framework/schemas.ts';
import { ago, countText, counted, originOf, short, sizeHtml, withdrawnState } from '../../framework/format.ts';
import { Form } from '../../framework/form.ts';
import { html, type Html } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import { given, packagePath, pageLinks, tabLinks, withQuery } from '../../framework/links.ts';
import { emptyText, textField, type ListAddress } from '../../framework/list.ts';
import type { Page, PageCall, PageView } from '../../framework/page.ts';
import { sparkline } from '../../framework/plot.ts';
import { list, Selection } from '../../framework/selection.ts';
import { table } from '../../framework/table.ts';
import { userSection } from '../account/token.ts';
import { explainMissing, policySection } from '../mirror/explain.ts';
import { eventRows } from '../operations/event-rows.ts';
import { deprecationPath } from './deprecation.ts';
import { marksOf } from './marks.ts';
import { promoteLink } from './promotions.ts';
import {
  dependencySection,
  installLines,
  notesSection,
  readmeSection,
  versionFacts,
  warnings,
} from './package-version.ts';

/** Most events and lines of the history on a page. */
const shown = '20';

/** A package, with its newest listed version. */
export const packagePage: Page = {
  path: '/packages/:id',
  section: 'packages',
  action: 'read',
  show: (call) => packageView(call, undefined),
};

/** A package, with one of its versions. */
export const packageVersionPage: Page = {
  path: '/packages/:id/:version',
  section: 'packages',
  action: 'read',
  show: (call) => packageView(call, call.params['version']),
};

/** The parts of the page. Each has an address: `show`. */
const tabs = {
  '': 'Install and README',
  versions: 'Versions',
  dependencies: 'Dependencies',
  used: 'Used by',
  history: 'History',
} as const;

async function packageView(call: PageCall, asked: string | undefined): Promise<PageView> {
  const { api, params } = call;
  const id = params['id']!;
  const found = await api
    .call('getPackage', packageDetails, { params: { id }, query: { daily: '1' } })
    .catch(explainMissing(call, 'package', id));
  const version = asked ?? found.latest_version ?? found.versions[0]!.version;
  const details = await api
    .call('getPackageVersion', packageVersionDetails, { params: { id, version } })
    .catch(explainMissing(call, 'package', id, version));
  const path = packagePath(found.id, asked === undefined ? undefined : version);
  const show = Object.hasOwn(tabs, call.query['show'] ?? '') ? (call.query['show'] ?? '') : '';
  const icon = `${packagePath(found.id, details.version)}/icon`;
  const body = html`<p>
      ${details.has_icon && html`<img class="icon" src="${icon}" alt="" width="32" height="32" />`} ${originOf(found)}
      ${details.title && details.title !== details.id && short(details.title, 200)}
      <span class="quiet"
        >${counted(found.version_count, 'version')}, ${sizeHtml(found.size_bytes)},
        ${counted(found.download_count, 'download')}</span
      >
      ${sparkline(found.daily_downloads, 'download')}
    </p>
    ${warnings(details)} ${tabLinks(path, tabs, show)} ${await partOf(show as keyof typeof tabs, call, found, details)}`;
  const json = `/v1/packages/${encodeURIComponent(found.id)}/${encodeURIComponent(version)}`;
  return { title: short(`${found.id} ${asked === undefined ? '' : version}`.trim(), 200), body, json };
}

async function partOf(show: keyof typeof tabs, call: PageCall, found: Found, details: Details): Promise<Html> {
  switch (show) {
    case 'versions':
      return versionsPart(call, found);
    case 'dependencies':
      return dependencySection(details);
    case 'used':
      return html`${await dependentSection(call, found.id)} ${await userSection(call, 'package', found.id)}`;
    case 'history':
      return html`${await eventsOf(call, found.id)} ${await historyOf(call, found.id)}`;
    default:
      return firstPart(call, found, details);
  }
}

/** How to install the version, the latest versions, the README, and what describes it. */
async function firstPart(call: PageCall, found: Found, details: Details): Promise<Html> {
  const params = { id: found.id };
  const latest = await call.api.call('listPackageVersions', packageVersionList, { params, query: { limit: '5' } });
  return html`<div class="columns">
    <div>
      ${installLines(details, call)}
      <section>
        <h2>Latest versions</h2>
        ${versionTable(found.id, latest.items, call.now)}
        ${
          found.version_count > latest.items.length &&
          html`<p>
            <a href="${packagePath(found.id)}?show=versions">All ${countText(found.version_count)} versions</a>
          </p>`
        }
      </section>
      ${await readmeSection(details)} ${notesSection(details)}
    </div>
    <section>
      <h2>About ${short(details.version, 64)}</h2>
      ${versionFacts(details, call)}
      ${promoteLink(call, 'package', { name: found.id, origin: details.origin, reference: details.version })}
      ${
        // Otherwise the upstream does not answer, and the page would wait for it again.
        details.is_advice_known &&
        (await policySection(call, 'package', { name: found.id, origin: details.origin, reference: details.version }))
      }
    </section>
  </div>`;
}

async function versionsPart(call: PageCall, found: Found): Promise<Html> {
  const { id } = found;
  const query = given(call.query, 'q', 'sort', 'cursor');
  const reverse = { '': 'oldest', oldest: '' }[query['sort'] ?? ''];
  const address = { path: packagePath(id), kept: { show: 'versions' }, query, reverse };
  const { items, next_cursor: next } = await call.api.call('listPackageVersions', packageVersionList, {
    params: { id },
    query,
  });
  const { mayDelete, mayChange } = rightsOf(found, call);
  const selection = mayDelete || mayChange ? new Selection(call, 'version') : undefined;
  return list({
    ...address,
    filter: textField(address, 'Versions that begin with'),
    rows: versionTable(id, items, call.now, { address, selection }),
    next,
    selection,
    actions: versionActions(found, call),
  });
}

async function dependentSection({ api, query: asked }: PageCall, id: string): Promise<Html> {
  const query = given(asked, 'cursor');
  const { items, next_cursor: next } = await api.call('listDependents', dependentList, {
    params: { id },
    query: { ...query, limit: '50' },
  });
  return html`<section>
    <h2>Packages that depend on it</h2>
    ${table(
      [{ name: 'Package' }, 'Newest version', 'Needs', 'Warning'],
      items.map((each) => [
        html`<a href="${packagePath(each.id)}">${short(each.id, 128)}</a>`,
        short(each.version, 64),
        short(each.ranges.join(', '), 200),
        marksOf(each),
      ]),
      { empty: 'No package of this account.' },
    )}
    ${pageLinks(packagePath(id), { ...query, show: 'used' }, next)}
  </section>`;
}

type Details = z.input<typeof packageVersionDetails>;
type Found = z.input<typeof packageDetails>;

function versionTable(
  id: string,
  versions: readonly z.input<typeof packageVersion>[],
  now: number,
  { address, selection }: { address?: ListAddress; selection?: Selection | undefined } = {},
): Html {
  return table(
    [
      selection !== undefined && { unseen: 'Select' },
      { text: 'Version', sort: '', reverse: 'oldest' },
      'State',
      'Published',
      { number: 'Size', sort: 'size' },
      { number: 'Downloads', sort: 'downloads' },
    ],
    versions.map((each) => [
      selection?.box(each.version, each.version),
      html`<a href="${packagePath(id, each.version)}">${each.version}</a>`,
      html`${each.listed ? 'listed' : html`<span class="state warn">unlisted</span>`}
      ${withdrawnState(each.withdrawn_at)} ${marksOf(each)}`,
      ago(each.published_at, now),
      sizeHtml(each.size_bytes),
      countText(each.download_count),
    ]),
    address && { empty: emptyText(address, 'No versions.'), list: { ...address, isForm: selection !== undefined } },
  );
}

function rightsOf({ origin }: Found, { principal }: PageCall): { mayDelete: boolean; mayChange: boolean } {
  const isHosted = origin === 'hosted';
  return {
    mayDelete: may(principal, 'delete') && (isHosted || may(principal, 'operate')),
    mayChange: isHosted && may(principal, 'write'),
  };
}

function versionActions(found: Found, call: PageCall): Html {
  const { mayDelete, mayChange } = rightsOf(found, call);
  const isHosted = found.origin === 'hosted';
  const path = packagePath(found.id);
  const deprecation = deprecationPath(found.id);
  const listing = html`formmethod="post" formaction="${path}/listing" name="change"`;
  const form = call.refused ?? new Form({ range: call.query['range'] ?? '' });
  return html`${form.error('version')}
    <div>
      ${form.input('range', 'And the versions in the range', { attributes: html`maxlength="255" placeholder="[1.0.0, 2.0.0)"` })}
    </div>
    <p>
      ${mayDelete && isHosted && html`<button ${listing} value="unlist">Unlist</button>`}
      ${mayChange && html`<button ${listing} value="relist">List again</button>`}
      ${mayChange && html`<button formaction="${deprecation}/change">Deprecate…</button>`}
      ${
        mayDelete &&
        html`<button class="danger" formaction="${path}/delete">
          ${isHosted ? 'Delete…' : 'Drop from the mirror…'}
        </button>`
      }
      ${mayChange && html`<a class="button" href="${deprecation}">Deprecation and advisories…</a>`}
    </p>`;
}

/** Who pushed, unlisted and deleted; for visitors that may read the record of events. */
async function eventsOf({ api, principal, now }: PageCall, id: string): Promise<Html | undefined> {
  if (!may(principal, 'admin') && !may(principal, 'operate')) return undefined;
  const query = { subject: id, type: 'package.*', limit: shown };
  const { items } = await api.call('listEvents', eventList, { query });
  if (items.length === 0) return undefined;
  return html`<section>
    <h2>Who did what</h2>
    ${eventRows(items, now)}
    <p class="hint">As JSON: <code>GET ${withQuery('/v1/audit', query)}</code></p>
  </section>`;
}

async function historyOf({ api, principal, now }: PageCall, id: string): Promise<Html | undefined> {
  if (principal.kind === 'anonymous') return undefined;
  const { items } = await api.call('getPackageHistory', historySchema, { params: { id }, query: { limit: shown } });
  if (items.length === 0) return undefined;
  return html`<section>
    <h2>First seen here</h2>
    ${table(
      ['When', 'Version', 'From'],
      items.map((each) => [ago(each.seen_at, now), short(each.reference, 100), each.upstream]),
    )}
  </section>`;
}
