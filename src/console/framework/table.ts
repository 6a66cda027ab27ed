import { html, type Html, type HtmlPart } from './html.ts';
import { orderAddress, type ListAddress } from './list.ts';

/**
 * The order that the head of a column leads to: a value of `sort`, or empty for the order without it. Of names it is the rising one,
 * of others the falling one. `reverse` is its reverse, to which the head leads from it.
 */
interface Sortable {
  sort?: string;
  reverse?: string;
}

/** The title of a column: of texts, of the names of the rows, of numbers, or one that only screen readers need. */
type Column =
  | string
  | ({ text: string } & Sortable)
  | ({ name: string } & Sortable)
  | ({ number: string } & Sortable)
  | { unseen: string };

/** The cells of a row, one for each column. */
export type Cells = readonly HtmlPart[];

/**
 * A table. Columns that are false are left out with their cells. In a narrow window each row is a block of lines, which have the
 * titles of their columns; the roles keep it a table for screen readers. It scrolls by itself otherwise. A table without
 * links or fields needs `label`: it then takes the focus itself, because no key scrolls it otherwise. Without rows, it is the
 * sentence `empty`, if that is given. The heads of its columns sort `list`.
 */
export function table(
  columns: readonly (Column | false)[],
  rows: readonly Cells[],
  { label, empty, list }: { label?: string; empty?: HtmlPart; list?: ListAddress } = {},
): Html {
  if (rows.length === 0 && empty !== undefined) return html`<p class="empty">${empty}</p>`;
  const focus = label !== undefined && html` tabindex="0" role="group" aria-label="${label}"`;
  const cells = (row: Cells) => columns.map((column, index) => column !== false && cellOf(column, row[index]));
  return html`<div class="table" ${focus}>
    <table role="table">
      <thead role="rowgroup">
        <tr role="row">
          ${columns.map((each) => each !== false && heading(each, list))}
        </tr>
      </thead>
      <tbody role="rowgroup">
        ${rows.map(
          (row) =>
            html`<tr role="row">
              ${cells(row)}
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

function cellOf(column: Column, cell: HtmlPart): Html {
  if (typeof column === 'string') return html`<td role="cell" data-label="${column}">${cell}</td>`;
  if ('name' in column) return html`<th scope="row" role="rowheader">${cell}</th>`;
  if ('unseen' in column) return html`<td role="cell">${cell}</td>`;
  return 'number' in column
    ? html`<td role="cell" class="number" data-label="${column.number}">${cell}</td>`
    : html`<td role="cell" data-label="${column.text}">${cell}</td>`;
}

/** A name with its value; false and the like if it does not apply. */
export type Fact = readonly [name: string, value: HtmlPart] | false | null | undefined | '';

/** Names with their values. One that does not apply is left out. */
export function facts(...all: readonly Fact[]): Html {
  return html`<dl class="facts">
    ${all.map(
      (each) =>
        each &&
        html`<dt>${each[0]}</dt>
          <dd>${each[1]}</dd>`,
    )}
  </dl>`;
}

function heading(column: Column, list: ListAddress | undefined): Html {
  if (typeof column === 'string') return html`<th scope="col" role="columnheader">${column}</th>`;
  if ('unseen' in column)
    return html`<th scope="col" role="columnheader"><span class="unseen">${column.unseen}</span></th>`;
  const title = 'name' in column ? column.name : 'number' in column ? column.number : column.text;
  const mark = 'number' in column && html` class="number"`;
  const { sort, reverse } = column;
  if (!list || sort === undefined) return html`<th scope="col" role="columnheader" ${mark}>${title}</th>`;
  const current = list.query['sort'] ?? '';
  const isRising = current === reverse || (reverse === undefined && 'name' in column);
  const order =
    (current === sort || current === reverse) && html` aria-sort="${isRising ? 'ascending' : 'descending'}"`;
  const target = reverse !== undefined && current === sort ? reverse : sort;
  const link = list.isForm
    ? html`<button name="sort" value="${target}">${title}</button>`
    : html`<a href="${orderAddress(list, target)}">${title}</a>`;
  return html`<th scope="col" role="columnheader" ${mark} ${order}>${link}</th>`;
}

/** The box that selects a row. `label` says which row it is. */
export function selectBox(name: string, value: string, label: string, isChecked = false): Html {
  const checked = isChecked && html`checked`;
  const box = html`<input type="checkbox" name="${name}" value="${value}" aria-label="Select ${label}" ${checked} />`;
  return html`<label class="check">${box}</label>`;
}
