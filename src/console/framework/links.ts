import { html, type Html } from './html.ts';

// Addresses of pages, and links from page to page of a list.

export function packagePath(id: string, version?: string): string {
  const path = `/console/packages/${encodeURIComponent(id)}`;
  return version === undefined ? path : `${path}/${encodeURIComponent(version)}`;
}

/** The name is one segment, so its slashes are percent-encoded. */
export function imagePath(name: string, digest?: string): string {
  const path = `/console/images/${encodeURIComponent(name)}`;
  return digest === undefined ? path : `${path}/${encodeURIComponent(digest)}`;
}

/** `path` with those parameters that have a value. */
export function withQuery(path: string, query: Readonly<Record<string, string | null | undefined>>): string {
  const set = Object.entries(query).filter((entry): entry is [string, string] => Boolean(entry[1]));
  return set.length === 0 ? path : `${path}?${new URLSearchParams(set).toString()}`;
}

/** `address` with further values of one parameter. */
export function withValues(address: string, name: string, values: Iterable<string>): string {
  const more = new URLSearchParams([...values].map((each): [string, string] => [name, each])).toString();
  if (more === '') return address;
  return `${address}${address.includes('?') ? '&' : '?'}${more}`;
}

/** Only the parameters of `query` in `names`, and only those with a value. */
export function given(query: Readonly<Record<string, string>>, ...names: string[]): Record<string, string> {
  return Object.fromEntries(names.flatMap((name) => (query[name] ? [[name, query[name]]] : [])));
}

/**
 * Links to the first page and to the next one, which keep the filters in `query`, and to the `end`, the first page of the reverse
 * order; nothing if the list has one page.
 */
export function pageLinks(
  path: string,
  query: Readonly<Record<string, string>>,
  next: string | null,
  end?: string,
): Html | undefined {
  const { cursor, ...filters } = query;
  if (!cursor && next === null) return undefined;
  return html`<nav class="pages" aria-label="Pages">
    ${cursor && html`<a href="${withQuery(path, filters)}">First page</a>`}
    ${next !== null && html`<a href="${withQuery(path, { ...filters, cursor: next })}" rel="next">Next page</a>`}
    ${end !== undefined && html`<a href="${end}">From the end</a>`}
  </nav>`;
}

/** Links to the parts of a page, which `show` chooses. */
export function tabLinks(path: string, tabs: Readonly<Record<string, string>>, current: string): Html {
  return html`<nav class="pages" aria-label="Parts of this page">
    ${Object.entries(tabs).map(
      ([show, title]) =>
        html`<a href="${withQuery(path, { show })}" ${show === current && html`aria-current="page"`}>${title}</a>`,
    )}
  </nav>`;
}

/** A choice of a filter form, as a labelled list. */
export function choice(
  name: string,
  label: string,
  options: Readonly<Record<string, string>>,
  chosen: string | undefined,
): Html {
  return html`<div>
    <label for="${name}">${label}</label>
    <select id="${name}" name="${name}">
      ${Object.entries(options).map(
        ([value, text]) =>
          html`<option value="${value}" ${value === (chosen ?? '') ? html`selected` : ''}>${text}</option>`,
      )}
    </select>
  </div>`;
}

/** The choice between hosted and mirrored content. */
export function originChoice(chosen: string | undefined): Html {
  return choice('origin', 'Origin', { '': 'Hosted and mirrored', hosted: 'Hosted', mirrored: 'Mirrored' }, chosen);
}
