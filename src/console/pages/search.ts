import type { z } from 'zod';
import { searchResults, type searchHit } from '../../api/content/content-schemas.ts';
import { countText, originOf, short } from '../framework/format.ts';
import { html, type Html } from '../framework/html.ts';
import { choice, given, imagePath, originChoice, packagePath, pageLinks, withQuery } from '../framework/links.ts';
import type { Page } from '../framework/page.ts';
import { table } from '../framework/table.ts';

/** Most characters of a search; `/v1/search` refuses more. */
const max = 200;

/** Packages and images, hosted and mirrored, that match a text. */
export const searchPage: Page = {
  path: '/search',
  section: undefined,
  action: 'read',
  show: async ({ api, query: asked }) => {
    const text = (asked['q'] ?? '').trim().slice(0, max);
    const query = { ...given(asked, 'kind', 'origin', 'cursor'), q: text };
    const path = '/console/search';
    if (text === '') return { title: 'Search', body: html`${filters(query)}${hint}` };
    const { items, next_cursor: next } = await api.call('search', searchResults, { query });
    return {
      title: 'Search',
      body: html`${filters(query)} ${items.length > 0 ? hitTable(items) : empty(query)} ${pageLinks(path, query, next)}`,
      json: withQuery('/v1/search', query),
    };
  },
};

const hint = html`<p class="empty">
  Type a part of a name: the beginning of a word in it, such as <code>json</code> for Newtonsoft.Json, or
  <code>library/alp</code>. The search finds what is hosted here and what was mirrored; it sends nothing to an upstream.
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

function empty({ kind, origin, cursor, q }: Record<string, string>): Html {
  if (cursor) return html`<p class="empty">No further results.</p>`;
  const isFiltered = kind || origin;
  return html`<p class="empty">
    Nothing found. A package or an image of an upstream appears here after its first download.
    ${isFiltered && html`<a href="${withQuery('/console/search', { q })}">Search without filters</a>, or see`}
    ${!isFiltered && 'See'} <a href="/console/connect">how to connect a client</a>.
  </p>`;
}

function hitTable(items: readonly z.input<typeof searchHit>[]): Html {
  return table(
    ['Name', 'Kind', 'Origin', 'Newest version', { number: 'Downloads' }],
    items.map((each) => [
      html`<a href="${each.kind === 'package' ? packagePath(each.name) : imagePath(each.name)}">${each.name}</a>
        ${each.description && html`<br /><span class="quiet">${short(each.description, 160)}</span>`}`,
      each.kind === 'package' ? 'package' : 'image',
      originOf(each),
      each.version,
      countText(each.download_count),
    ]),
  );
}
