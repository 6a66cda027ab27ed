import type { z } from 'zod';
import { heldList } from '../../../api/policy/held.ts';
import { ago, short } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import { given } from '../../framework/links.ts';
import { emptyText, filterForm, furtherPages, textField, type ListAddress } from '../../framework/list.ts';
import type { PageCall } from '../../framework/page.ts';
import { table } from '../../framework/table.ts';
import { explainPath } from './explain.ts';

type Held = z.input<typeof heldList>['items'][number];

const layers = { all: 'all accounts', account: 'this account' } as const;

/** What the policies hold or deny for the account, as a part of the page at `path`, which keeps `kept`. */
export async function heldTable(call: PageCall, path: string, kept: Record<string, string>): Promise<Html> {
  const list: ListAddress = { path, kept, query: given(call.query, 'q', 'cursor') };
  const { items, next_cursor: next } = await call.api.call('listHeld', heldList, { query: list.query });
  return html`<h2>What waits</h2>
    <p>
      Clients of this account have asked for these versions and tags, and do not get them. The newest come first.
      Nothing is here that no client asked for. <a href="/console/failures?code=Denied">Refused requests</a>
    </p>
    ${filterForm(list, textField(list, 'Name'))}
    ${table(
      [{ name: 'Name' }, 'Version or tag', 'Verdict', 'Until', 'Decided by', 'Clients get a higher version'],
      items.map((each) => [
        html`<a href="${explainPath(each.kind, each.name, each.reference)}">${short(each.name, 80)}</a>`,
        short(each.reference, 60),
        each.verdict === 'hold' ? 'held' : 'denied',
        each.until ? ago(each.until, call.now) : html`<span class="quiet">no end is known</span>`,
        decidedBy(each),
        each.below_visible === true && 'yes',
      ]),
      { empty: emptyText(list, 'Nothing waits.', next) },
    )}
    ${furtherPages(list, next)}`;
}

function decidedBy({ rule, list, layer }: Held): string {
  const whose = list === null ? layer && `the policy of ${layers[layer]}` : `the list ${list}`;
  return [rule, whose].filter(Boolean).join(', in ');
}
