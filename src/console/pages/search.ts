import type { z } from 'zod';
import { manifestDetails, searchResults, type searchHit } from '../../api/content/content-schemas.ts';
import { countText, originOf, short } from '../framework/format.ts';
import { html, type Html } from '../framework/html.ts';
import { choice, given, imagePath, originChoice, packagePath, pageLinks, withQuery } from '../framework/links.ts';
import { isDomainError } from '../../runtime/errors.ts';
import { may } from '../framework/layout.ts';
import type { Page, PageCall } from '../framework/page.ts';
import { table } from '../framework/table.ts';
import { explainPath } from './mirror/explain.ts';
import { marksOf } from './packages/marks.ts';

/** Most characters of a search; `/v1/search` refuses more. */
const max = 200;

/** Packages and images, hosted and mirrored, that match a text. */
export const searchPage: Page = {
  path: '/search',
  section: undefined,
  action: 'read',
  show: async (call) => {
    const { api, query: asked } = call;
    const text = (asked['q'] ?? '').trim().slice(0, max);
    const query = { ...given(asked, 'kind', 'origin', 'cursor'), q: text };
    const path = '/console/search';
    if (text === '') return { title: 'Search', body: html`${filters(query)}${hint}` };
    const { items, next_cursor: next } = await api.call('search', searchResults, { query });
    const place = await placeOf(call, text);
    return {
      title: 'Search',
      body: html`${filters(query)} ${place}
      ${items.length > 0 ? hitTable(items) : !place && empty(query, may(call.principal, 'operate'))}
      ${pageLinks(path, query, next)}`,
      json: withQuery('/v1/search', query),
    };
  },
};

const hint = html`<p class="empty">
  Type a part of a name: the beginning of a word in it, such as <code>json</code> for Newtonsoft.Json, or
  <code>library/alp</code>; or a digest or its beginning, <code>name:tag</code> or <code>id@version</code>. The search
  finds what is hosted here and what was mirrored; it sends nothing to an upstream.
</p>`;

function filters(query: Readonly<Record<string, string>>): Html {
  return html`<form class="filter" method="get" action="/console/search">
    <div>
      <label for="q">Name</label>
      <input id="q" name="q" type="search" maxlength="${max}" value="${query['q'] ?? ''}" />
    </div>
    ${choice('kind', 'Kind', { '': 'Packages and images', package: 'Packages', container: 'Images' }, query['kind'])}
    ${originChoice(query['origin'])}
    <button>Search</button>
  </form>`;
}

function empty({ kind, origin, cursor, q }: Record<string, string>, mayExplain: boolean): Html {
  if (cursor) return html`<p class="empty">No further results.</p>`;
  const isFiltered = kind || origin;
  return html`<p class="empty">
    Nothing found. A package or an image of an upstream appears here after its first download.
    ${isFiltered && html`<a href="${withQuery('/console/search', { q })}">Search without filters</a>, or see`}
    ${!isFiltered && 'See'} <a href="/console/connect">how to connect a client</a>.
    ${mayExplain && html`<a href="${explainPath(kind || 'package', q!)}">Explain a name</a> says why one is not here.`}
  </p>`;
}

/** A link to what a text names: a tag, a version, or a token by its beginning. The name of an image may have this host. */
async function placeOf({ api, urls }: PageCall, text: string): Promise<Html | undefined> {
  if (text.startsWith('ent_')) {
    return html`<p><a href="/console/tokens/find">Find a token</a> by its value, which no address should have.</p>`;
  }
  const [, id, version] = /^([\w.-]{1,100})[@ ](\d[\w.+-]{0,60})$/.exec(text) ?? [];
  if (id !== undefined) return html`<p>Go to <a href="${packagePath(id, version)}">${id} ${version}</a></p>`;
  const host = `${new URL(urls.registry).host}/`;
  const image = text.startsWith(host) ? text.slice(host.length) : text;
  const [, name = '', tag, digest] =
    /^([a-z0-9][a-z0-9._/-]{0,254})(?::(\w[\w.-]{0,127})|@(sha\d{3}:[0-9a-f]{64,128}))$/.exec(image) ?? [];
  const reference = tag ?? digest;
  if (reference === undefined || /^sha\d{3}$/.test(name)) return undefined;
  const found = await api
    .call('getManifest', manifestDetails, { params: { name, reference } })
    .catch(undefinedIfHidden);
  if (found) return html`<p>Go to <a href="${imagePath(found.name, found.digest)}">${image}</a></p>`;
  return html`<p>Nothing here is ${image}. See <a href="${imagePath(name)}">${name}</a></p>`;
}

const hidden = new Set(['NameUnknown', 'ManifestUnknown', 'NameDenied', 'NameInvalid', 'Unauthorized']);

function undefinedIfHidden(error: unknown): undefined {
  if (!isDomainError(error) || !hidden.has(error.name)) throw error;
}

function hitTable(items: readonly z.input<typeof searchHit>[]): Html {
  return table(
    ['Name', 'Kind', 'Origin', 'Newest version', { number: 'Downloads' }],
    items.map((each) => [
      html`<a href="${pathOf(each)}">${each.name}</a> ${each.digest && html`<code>${short(each.digest, 19)}</code>`}
        ${marksOf(each)} ${each.description && html`<br /><span class="quiet">${short(each.description, 160)}</span>`}`,
      each.kind === 'package' ? 'package' : 'image',
      originOf(each),
      each.version,
      countText(each.download_count),
    ]),
  );
}

function pathOf({ kind, name, digest }: z.input<typeof searchHit>): string {
  return kind === 'package' ? packagePath(name) : imagePath(name, digest ?? undefined);
}
