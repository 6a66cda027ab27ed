import { DomainError } from '../../runtime/errors.ts';
import { counted, sizeHtml } from './format.ts';
import { html, type Html, type HtmlPart } from './html.ts';
import { given, pageLinks, withQuery } from './links.ts';

/** A list that visitors filter and sort. What they chose is in the address of its page. */
export interface ListAddress {
  path: string;
  /** Parameters that are no filters, which every link and form keeps, such as the part of the page. */
  kept?: Readonly<Record<string, string>>;
  /** What the visitor chose: the filters, `sort` and `cursor`. */
  query: Readonly<Record<string, string>>;
  /** Whether it is a form with boxes. Then the heads of columns are buttons of it, so that selected rows stay selected. */
  isForm?: boolean;
  /** The value of `sort` for the reverse order, if there is one. It leads to the end of the list at once. */
  reverse?: string | undefined;
}

/** The first page in an order, with the same filters: a value of `sort`, or empty for the order without it. */
export function orderAddress({ path, kept, query: { cursor: _cursor, ...query } }: ListAddress, sort: string): string {
  return withQuery(path, { ...kept, ...query, sort });
}

/** What the forms of a list send beside its fields: what is kept, and the order. */
export function hiddenFields({ kept, query }: ListAddress): HtmlPart {
  return Object.entries({ ...kept, ...given(query, 'sort') }).map(
    ([name, value]) => html`<input type="hidden" name="${name}" value="${value}" />`,
  );
}

/** A form with the fields of filters, which keeps the order. `more` follows its button. */
export function filterForm(address: ListAddress, fields: HtmlPart, more?: HtmlPart): Html {
  return html`<form class="filter" method="get" action="${address.path}">
    ${hiddenFields(address)} ${fields} <button>Filter</button> ${more}
  </form>`;
}

/** The field of a filter by a text. */
export function textField({ query }: ListAddress, label: string, name = 'q', maxLength = 100): Html {
  return html`<div>
    <label for="${name}">${label}</label>
    <input id="${name}" name="${name}" type="search" maxlength="${maxLength}" value="${query[name]}" />
  </div>`;
}

/** What the list says when it is empty: `otherwise`, if no filter is set. `next` is the cursor of a page that can have more. */
export function emptyText({ path, kept, query }: ListAddress, otherwise: HtmlPart, next?: string | null): HtmlPart {
  if (next) return 'Nothing on this page.';
  const { sort, cursor: _cursor, ...filters } = query;
  if (Object.values(filters).every((each) => each === '')) return otherwise;
  return html`Nothing matches. <a href="${withQuery(path, { ...kept, sort })}">Clear the filter</a>`;
}

/** Why `/v1` refuses a parameter of a list; other errors are thrown again. */
export function refusalOf(error: unknown, parameter: string): string {
  if (error instanceof DomainError && error.detail?.['parameter'] === parameter) return error.message;
  throw error;
}

/** Links to the first page, to the next one, and to the end of a list that has a reverse order. */
export function furtherPages(address: ListAddress, next: string | null): Html | undefined {
  const { path, kept, query, reverse } = address;
  return pageLinks(
    path,
    { ...kept, ...query },
    next,
    reverse === undefined ? undefined : orderAddress(address, reverse),
  );
}

/** How many names the list has on all pages, and their bytes; `uncounted` if that is not known yet, on a page that is then loaded again. */
export function totalLine(
  total: { count: number; size_bytes: number } | null | undefined,
  one: string,
  many: string,
  uncounted: HtmlPart,
): Html | undefined {
  if (total === undefined || total?.count === 0) return undefined;
  return total
    ? html`<p class="quiet">${counted(total.count, one, many)}, ${sizeHtml(total.size_bytes)}</p>`
    : html`<p class="quiet" data-refresh="3000">${uncounted}</p>`;
}

/** The orders of a list in the order of time, for its head and for the link to its end. */
export const byTime = { sort: '', reverse: 'oldest' } as const;

/** The value of `sort` that leads to the end of a list in the order of time. */
export function endOfTime({ sort }: Readonly<Record<string, string>>): string {
  return sort === byTime.reverse ? byTime.sort : byTime.reverse;
}

/** How many entries such a list has on all pages, and their bytes if they have some. */
export function countLine(
  total: { count: number; size_bytes?: number } | null | undefined,
  one: string,
  many: string,
): Html | undefined {
  if (total === undefined || total?.count === 0) return undefined;
  // Entries of others may have been read, so this says nothing about their number.
  if (!total) return html`<p class="quiet">Not counted, because that would take too long.</p>`;
  const size = total.size_bytes !== undefined && html`, ${sizeHtml(total.size_bytes)}`;
  return html`<p class="quiet">${counted(total.count, one, many)}${size}</p>`;
}

/** Why a list of hosted and mirrored names has no total: only hosted names are in it, if it is sorted or filtered. */
export function beingCounted({ path, query }: ListAddress, names: string): Html {
  const isPartial = Boolean(query['sort']) || Boolean(query['q']);
  return html`Mirrored ${names} are being counted${isPartial && ', and are not in this list yet'}.
    <a href="${withQuery(path, query)}">Look again</a>`;
}
