import type { z } from 'zod';
import { packageVersionDetails, packageVersionList } from '../../../api/content/content-schemas.ts';
import { eventList, historySchema, packageDetails, type packageVersion } from '../../../api/framework/schemas.ts';
import { ago, countText, counted, originOf, short, sizeHtml } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import { given, packagePath, pageLinks, withQuery } from '../../framework/links.ts';
import type { Page, PageCall, PageView } from '../../framework/page.ts';
import { selectBox, table } from '../../framework/table.ts';
import { explainMissing } from '../mirror/explain.ts';
import { eventRows } from '../operations/event-rows.ts';
import { dependencySection, installLines, readmeSection, versionFacts, warnings } from './package-version.ts';

/** Most events and lines of the history on a page. */
const shown = '10';

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

async function packageView(call: PageCall, asked: string | undefined): Promise<PageView> {
  const { api, params } = call;
  const id = params['id']!;
  const found = await api.call('getPackage', packageDetails, { params: { id } }).catch(explainMissing('package', id));
  const version = asked ?? found.latest_version ?? found.versions[0]!.version;
  const query = given(call.query, 'cursor');
  const [details, versions, events, past] = await Promise.all([
    api.call('getPackageVersion', packageVersionDetails, { params: { id, version } }),
    api.call('listPackageVersions', packageVersionList, { params: { id }, query }),
    eventsOf(call, found.id),
    historyOf(call, id),
  ]);
  const path = packagePath(found.id, asked === undefined ? undefined : version);
  const body = html`<p>
      ${originOf(found)} ${details.title && details.title !== details.id && short(details.title, 200)}
      <span class="quiet"
        >${counted(found.version_count, 'version')}, ${counted(found.download_count, 'download')}</span
      >
    </p>
    ${warnings(details)}
    <div class="columns">
      <div>${installLines(details, call)} ${await readmeSection(details)} ${dependencySection(details)}</div>
      <section>
        <h2>About ${short(details.version, 64)}</h2>
        ${versionFacts(details, call)}
      </section>
    </div>
    <section>
      <h2>Versions</h2>
      ${versionRows(found, versions.items, call)} ${pageLinks(path, query, versions.next_cursor)}
    </section>
    ${events} ${past}`;
  const json = `/v1/packages/${encodeURIComponent(found.id)}/${encodeURIComponent(version)}`;
  return { title: short(`${found.id} ${asked === undefined ? '' : version}`.trim(), 200), body, json };
}

type Found = z.input<typeof packageDetails>;

function versionRows(
  { id, origin }: Found,
  versions: readonly z.input<typeof packageVersion>[],
  { now, principal }: PageCall,
): Html {
  const isHosted = origin === 'hosted';
  const mayDelete = may(principal, 'delete') && (isHosted || may(principal, 'operate'));
  const mayRelist = isHosted && may(principal, 'write');
  const isForm = mayDelete || mayRelist;
  const rows = table(
    [isForm && { unseen: 'Select' }, 'Version', 'State', 'Published', { number: 'Size' }, { number: 'Downloads' }],
    versions.map((each) => [
      isForm && selectBox('version', each.version, each.version),
      html`<a href="${packagePath(id, each.version)}">${each.version}</a>`,
      each.listed ? 'listed' : html`<span class="state warn">unlisted</span>`,
      ago(each.published_at, now),
      sizeHtml(each.size_bytes),
      countText(each.download_count),
    ]),
  );
  if (!isForm) return rows;
  const path = packagePath(id);
  return html`<form method="post" action="${path}/listing">
    ${rows}
    <p>
      ${mayDelete && isHosted && html`<button name="change" value="unlist">Unlist</button>`}
      ${mayRelist && html`<button name="change" value="relist">List again</button>`}
      ${
        mayDelete &&
        html`<button class="danger" formaction="${path}/delete">
          ${isHosted ? 'Delete…' : 'Drop from the mirror…'}
        </button>`
      }
      ${mayRelist && html`<a class="button" href="${path}/deprecation">Deprecation and advisories…</a>`}
    </p>
  </form>`;
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
