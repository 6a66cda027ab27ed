import { html, type Html, type HtmlPart } from './html.ts';

/** The title of a column: of texts, of the names of the rows, of numbers, or one that only screen readers need. */
type Column = string | { name: string } | { number: string } | { unseen: string };

/** The cells of a row, one for each column. */
export type Cells = readonly HtmlPart[];

/**
 * A table. Columns that are false are left out with their cells. It scrolls by itself in a narrow window. A table without
 * links or fields needs `label`: it then takes the focus itself, because no key scrolls it otherwise. Without rows, it is the
 * sentence `empty`, if that is given.
 */
export function table(
  columns: readonly (Column | false)[],
  rows: readonly Cells[],
  { label, empty }: { label?: string; empty?: HtmlPart } = {},
): Html {
  if (rows.length === 0 && empty !== undefined) return html`<p class="empty">${empty}</p>`;
  const focus = label !== undefined && html` tabindex="0" role="group" aria-label="${label}"`;
  const cells = (row: Cells) => columns.map((column, index) => column !== false && cellOf(column, row[index]));
  return html`<div class="table" ${focus}>
    <table>
      <thead>
        <tr>
          ${columns.map((each) => each !== false && heading(each))}
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          (row) =>
            html`<tr>
              ${cells(row)}
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

function cellOf(column: Column, cell: HtmlPart): Html {
  if (typeof column === 'object' && 'name' in column) return html`<th scope="row">${cell}</th>`;
  return typeof column === 'object' && 'number' in column
    ? html`<td class="number">${cell}</td>`
    : html`<td>${cell}</td>`;
}

/** Names with their values. One that does not apply is left out. */
export function facts(
  ...all: readonly (readonly [name: string, value: HtmlPart] | false | null | undefined | '')[]
): Html {
  return html`<dl class="facts">
    ${all.map(
      (each) =>
        each &&
        html`<dt>${each[0]}</dt>
          <dd>${each[1]}</dd>`,
    )}
  </dl>`;
}

function heading(column: Column): Html {
  if (typeof column === 'string') return html`<th scope="col">${column}</th>`;
  if ('name' in column) return html`<th scope="col">${column.name}</th>`;
  if ('unseen' in column) return html`<th scope="col"><span class="unseen">${column.unseen}</span></th>`;
  return html`<th scope="col" class="number">${column.number}</th>`;
}

/** The box that selects a row. `label` says which row it is. */
export function selectBox(name: string, value: string, label: string, isChecked = false): Html {
  const checked = isChecked && html`checked`;
  const box = html`<input type="checkbox" name="${name}" value="${value}" aria-label="Select ${label}" ${checked} />`;
  return html`<label class="check">${box}</label>`;
}
