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
      body: html`${filters(query)} ${placeOf(text)} ${items.length > 0 ? hitTable(items, text) : empty(query)}
      ${pageLinks(path, query, next)}`,
      json: withQuery('/v1/search', query),
    };
  },
};

const hint = html`<p class="empty">
  Type a part of a name: the beginning of a word in it, such as <code>json</code> for Newtonsoft.Json, or
  <code>library/alp</code>; or a digest, <code>name:tag</code> or <code>id@version</code>. The search finds what is
  hosted here and what was mirrored; it sends nothing to an upstream.
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

/** A link to what a text names: a tag, a version, or a token by its beginning. */
function placeOf(text: string): Html | undefined {
  if (text.startsWith('ent_')) {
    return html`<p><a href="/console/tokens/find">Find a token</a> by its value, which no address should have.</p>`;
  }
  const [, id, version] = /^([\w.-]{1,100})[@ ](\d[\w.+-]{0,60})$/.exec(text) ?? [];
  if (id !== undefined) return html`<p>Go to <a href="${packagePath(id, version)}">${id} ${version}</a></p>`;
  const [, name, tag] = /^([a-z0-9._/-]{1,255}):([\w][\w.-]{0,127})$/.exec(text) ?? [];
  if (name === undefined || name === 'sha256') return undefined;
  return html`<p>Go to <a href="${withQuery(imagePath(name), { q: tag })}">${name}, tags with ${tag}</a></p>`;
}

/** With a digest as the text, images lead to it. */
function hitTable(items: readonly z.input<typeof searchHit>[], text: string): Html {
  const digest = /^sha\d{3}:[0-9a-f]+$/.test(text) ? text : undefined;
  return table(
    ['Name', 'Kind', 'Origin', 'Newest version', { number: 'Downloads' }],
    items.map((each) => [
      html`<a href="${each.kind === 'package' ? packagePath(each.name) : imagePath(each.name, digest)}">${each.name}</a>
        ${each.description && html`<br /><span class="quiet">${short(each.description, 160)}</span>`}`,
      each.kind === 'package' ? 'package' : 'image',
      originOf(each),
      each.version,
      countText(each.download_count),
    ]),
  );
}
