import { html, type Html } from '../../framework/html.ts';

/** What lists warn of. */
interface ShownMarks {
  severity: string | null;
  deprecated: boolean;
}

/** What a list warns of, in words; nothing without a warning. */
export function marksOf({ severity, deprecated }: ShownMarks): Html {
  const mark = severity === 'high' || severity === 'critical' ? 'bad' : 'warn';
  return html`${severity && html`<span class="state ${mark}">vulnerable: ${severity}</span> `}${
    deprecated && html`<span class="state warn">deprecated</span>`
  }`;
}
