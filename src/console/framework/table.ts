import { html, type Html } from './html.ts';

/** A column of numbers, which are aligned at their end. */
interface NumberColumn {
  number: string;
}

/** A column whose title only screen readers need. */
interface UnseenColumn {
  unseen: string;
}

type Column = string | NumberColumn | UnseenColumn;

/**
 * A table with a title for each column; `rows` are `<tr>` elements. It scrolls by itself in a narrow window. A table
 * without links or fields needs `label`: it then takes the focus itself, because no key scrolls it otherwise.
 */
export function table(
  columns: readonly (Column | false)[],
  rows: readonly Html[],
  { label }: { label?: string } = {},
): Html {
  const focus = label !== undefined && html` tabindex="0" role="group" aria-label="${label}"`;
  return html`<div class="table" ${focus}>
    <table>
      <thead>
        <tr>
          ${columns.map((each) => each !== false && heading(each))}
        </tr>
      </thead>
      <tbody>
        ${rows}
      </tbody>
    </table>
  </div>`;
}

function heading(column: Column): Html {
  if (typeof column === 'string') return html`<th scope="col">${column}</th>`;
  if ('unseen' in column) return html`<th scope="col"><span class="unseen">${column.unseen}</span></th>`;
  return html`<th scope="col" class="number">${column.number}</th>`;
}

/** The cell with the box that selects a row. `label` says which row it is. */
export function selectCell(name: string, value: string, label: string, isChecked = false): Html {
  const checked = isChecked && html`checked`;
  const box = html`<input type="checkbox" name="${name}" value="${value}" aria-label="Select ${label}" ${checked} />`;
  return html`<td><label class="check">${box}</label></td>`;
}
