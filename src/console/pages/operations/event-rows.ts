import type { z } from 'zod';
import type { event } from '../../../api/framework/schemas.ts';
import { eventTexts } from '../../../events/event.ts';
import { ago } from '../../framework/format.ts';
import { html, type Html, type HtmlPart } from '../../framework/html.ts';
import { facts, table } from '../../framework/table.ts';

type RecordedEvent = z.input<typeof event>;

export const noEvents = 'No events. Pushes, deletions, new tokens and failed sign-ins appear here.';

/**
 * A table of events, the latest first. With `details`, also the address of the client and what the event adds. `empty` is shown
 * without events.
 */
export function eventRows(
  events: readonly RecordedEvent[],
  now: number,
  { details = false, empty = noEvents }: { details?: boolean; empty?: HtmlPart } = {},
): Html {
  return table(
    ['When', 'What', 'Subject', 'By', details && 'Address', details && 'Details'],
    events.map((each) => [
      ago(each.time, now),
      html`${sentence(eventTexts[each.type])}${reasonOf(each)} <span class="quiet">${each.type}</span>`,
      subjectOf(each),
      each.actor.name ?? each.actor.kind,
      each.address,
      details && detailsOf(each),
    ]),
    { empty },
  );
}

function sentence(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Why an upstream fails, or what the limit is. */
function reasonOf({ details }: RecordedEvent): string {
  const reason = details['reason'] ?? details['limit'];
  return typeof reason === 'string' ? ` (${reason})` : '';
}

function subjectOf({ subject: { kind, name, version, reference } }: RecordedEvent): Html {
  const page = { package: 'packages', container: 'images' }[kind];
  const shown =
    page !== undefined && name !== null
      ? html`<a href="/console/${page}/${encodeURIComponent(name)}">${name}</a>`
      : html`${name}`;
  return html`${shown} ${version ?? reference}`;
}

function detailsOf({ details, account, request_id: request }: RecordedEvent): Html | undefined {
  const entries = Object.entries({ account, ...details, request }).filter(([, value]) => value !== null);
  if (entries.length === 0) return undefined;
  return html`<details>
    <summary>Show</summary>
    ${facts(...entries.map(([key, value]) => [key, typeof value === 'string' ? value : JSON.stringify(value)] as const))}
  </details>`;
}
