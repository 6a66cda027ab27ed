import type { z } from 'zod';
import type { event } from '../../api/schemas.ts';
import { ago } from '../format.ts';
import { html, type Html } from '../html.ts';

type RecordedEvent = z.input<typeof event>;

/** A table of events, the latest first. */
export function eventRows(events: readonly RecordedEvent[], now: number): Html {
  if (events.length === 0) {
    return html`<p class="empty">Nothing yet. Pushes, deletions and new tokens appear here.</p>`;
  }
  return html`<div class="table">
    <table>
      <thead>
        <tr>
          <th scope="col">When</th>
          <th scope="col">What</th>
          <th scope="col">Subject</th>
          <th scope="col">By</th>
        </tr>
      </thead>
      <tbody>
        ${events.map(
          ({ time, type, subject, actor }) =>
            html`<tr>
              <td>${ago(time, now)}</td>
              <td>${type}</td>
              <td>${subject.name ?? ''} ${subject.version ?? subject.reference ?? ''}</td>
              <td>${actor.name ?? actor.kind}</td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}
