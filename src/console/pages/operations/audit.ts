import { eventTexts } from '../../../events/event.ts';
import { eventList } from '../../../api/framework/schemas.ts';
import { html, type Html } from '../../framework/html.ts';
import type { Page, PageCall } from '../../framework/page.ts';
import { given, pageLinks } from '../../framework/links.ts';
import { emptyText } from '../../framework/list.ts';
import { eventRows, noEvents } from './event-rows.ts';
import { eventGroups } from './event-words.ts';

const filters = ['type', 'actor', 'subject', 'since', 'until'] as const;

/** Who did what, the latest first. */
export const auditPage: Page = {
  path: '/audit',
  section: 'audit',
  action: 'any',
  show: async (call) => {
    const query = given(call.query, 'cursor', ...filters);
    // The browser's field for a day sends no time.
    for (const name of ['since', 'until']) {
      if (/^\d{4}-\d\d-\d\d$/.test(query[name] ?? '')) query[name] = `${query[name]}T00:00:00Z`;
    }
    const list = await call.api.call('listEvents', eventList, { query });
    const empty = emptyText({ path: '/console/audit', query }, noEvents, list.next_cursor);
    const body = html`${filterForm(call)} ${eventRows(list.items, call.now, { details: true, empty })}
    ${pageLinks('/console/audit', call.query, list.next_cursor)}`;
    return { title: 'Audit', body, json: '/v1/audit' };
  },
};

function filterForm({ query }: PageCall): Html {
  const options: (readonly [type: string, text: string])[] = [
    ['', 'all'],
    ...eventGroups,
    ...Object.entries(eventTexts).map(([type, text]): [string, string] => [type, `${text} (${type})`]),
  ];
  return html`<form class="filter">
    <div>
      <label for="type">Type</label>
      <select id="type" name="type">
        ${options.map(
          ([each, text]) =>
            html`<option value="${each}" ${each === (query['type'] ?? '') ? html`selected` : ''}>${text}</option>`,
        )}
      </select>
    </div>
    <div>
      <label for="actor">By (token, job)</label>
      <input id="actor" name="actor" maxlength="255" value="${query['actor']}" />
    </div>
    <div>
      <label for="subject">Subject</label>
      <input id="subject" name="subject" maxlength="255" value="${query['subject']}" />
    </div>
    <div>
      <label for="since">From (UTC)</label>
      <input id="since" name="since" type="date" value="${query['since']}" />
    </div>
    <div>
      <label for="until">Before (UTC)</label>
      <input id="until" name="until" type="date" value="${query['until']}" />
    </div>
    <button>Filter</button>
  </form>`;
}
