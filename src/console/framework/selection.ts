import { countText, counted } from './format.ts';
import { html, type Html } from './html.ts';
import { withQuery, withValues } from './links.ts';
import { filterForm, furtherPages, hiddenFields, type ListAddress } from './list.ts';
import type { PageCall } from './page.ts';
import { selectBox } from './table.ts';

/** Most rows that stay selected from page to page. */
const maxRows = 200;
/** Most characters that they take in an address. With the rows of one more page it stays below 8,000, which proxies accept. */
const maxCharacters = 3500;

/**
 * The rows that a visitor has selected, on all pages of a list. They are values of the parameter `name` in the address, so that
 * the pages of the list need no memory of them.
 */
export class Selection {
  readonly name: string;
  readonly values: ReadonlySet<string>;
  /** Those that are on this page. */
  readonly #shown = new Set<string>();
  /** How many did not fit. */
  readonly #left: number;

  constructor(call: PageCall, name: string) {
    const asked = [...new Set([...call.values(name), ...(call.refused?.values.getAll(name) ?? [])])];
    let room = maxCharacters;
    const fits = (value: string) => (room -= withValues('', name, [value]).length) >= 0;
    const beyond = asked.findIndex((value, index) => index >= maxRows || !fits(value));
    this.name = name;
    this.values = new Set(beyond < 0 ? asked : asked.slice(0, beyond));
    this.#left = asked.length - this.values.size;
  }

  /** Whether there is a row to select, or to act on. */
  get isUsed(): boolean {
    return this.#shown.size + this.values.size > 0;
  }

  /** The box that selects a row. `label` says which row it is. */
  box(value: string, label: string): Html {
    this.#shown.add(value);
    return selectBox(this.name, value, label, this.values.has(value));
  }

  /** What is selected on other pages, for the form with the boxes. */
  hidden(): Html {
    const elsewhere = [...this.values].filter((each) => !this.#shown.has(each));
    return html`${elsewhere.map((value) => html`<input type="hidden" name="${this.name}" value="${value}" />`)}`;
  }

  /** Says how many are selected. `cleared` is the address of the page without a selection. */
  line(cleared: string): Html {
    const elsewhere = [...this.values].filter((each) => !this.#shown.has(each)).length;
    const isEmpty = this.values.size === 0 && html`hidden`;
    return html`${
        this.#left > 0 &&
        html`<p class="warning" role="alert">
          ${counted(this.#left, 'row is', 'rows are')} not selected: the selection is full. Act on the selected ones
          first.
        </p>`
      }
      <p data-selected="${this.name}" ${isEmpty}>
        <strong>${countText(this.values.size)}</strong>
        selected${elsewhere > 0 && `, ${countText(elsewhere)} of them not on this page`}.
        <a href="${cleared}">Clear the selection</a>
      </p>`;
  }
}

interface List extends ListAddress {
  /** Fields of the filter. */
  filter?: Html;
  rows: Html;
  /** The cursor of the next page. */
  next: string | null;
  /** Undefined if the visitor cannot select rows. */
  selection: Selection | undefined;
  /** Buttons for the selected rows. They send `GET` to their `formaction`, unless they say otherwise. */
  actions: Html;
}

/**
 * A list with its filter and its further pages. If rows can be selected, all is one form, and the links to pages are buttons
 * of it: so what is selected stays selected. The filter comes first, so that the key Enter uses it. The order comes after all
 * buttons: of two orders the first one counts, which is that of the button that was pressed.
 */
export function list({ filter, rows, next, selection, actions, ...address }: List): Html {
  if (!selection) return html`${filter && filterForm(address, filter)} ${rows} ${furtherPages(address, next)}`;
  const { path, kept, query } = address;
  return html`<form method="get" action="${path}">
    ${filter && html`<div class="filter">${filter} <button>Filter</button></div>`} ${selection.hidden()} ${rows}
    ${pageButtons(Boolean(query['cursor']), next, address.reverse)} ${hiddenFields(address)}
    ${selection.isUsed && html`${selection.line(withQuery(path, { ...kept, ...query }))} ${actions}`}
  </form>`;
}

function pageButtons(isLater: boolean, next: string | null, reverse: string | undefined): Html | undefined {
  if (!isLater && next === null) return undefined;
  return html`<nav class="pages" aria-label="Pages">
    ${isLater && html`<button>First page</button>`}
    ${next !== null && html`<button name="cursor" value="${next}">Next page</button>`}
    ${reverse !== undefined && html`<button name="sort" value="${reverse}">From the end</button>`}
  </nav>`;
}

/** The first `max` of the selected values, each once, and a sentence if there are more. */
export function firstOf(values: readonly string[], max: number): { chosen: string[]; note: Html | undefined } {
  const unique = [...new Set(values)];
  const note =
    unique.length > max
      ? html`<p class="warning" role="alert">
          Only the first ${countText(max)} of ${countText(unique.length)} selected ones are shown and changed here.
          Select the others again then.
        </p>`
      : undefined;
  return { chosen: unique.slice(0, max), note };
}
