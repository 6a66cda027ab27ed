import { instanceList } from '../../../api/server/instances.ts';
import { ago } from '../../framework/format.ts';
import { html } from '../../framework/html.ts';
import type { Page } from '../../framework/page.ts';
import { table } from '../../framework/table.ts';

/** The running server processes of the installation. */
export const instancesPage: Page = {
  path: '/instances',
  section: 'jobs',
  action: 'operate',
  show: async ({ api, now }) => {
    const { items } = await api.call('listInstances', instanceList);
    const body = html`<p>
        The server processes of this installation, the oldest first. They share the database and the storage.
      </p>
      ${table(
        [{ name: 'Name' }, 'State', 'Version', 'Address for others', 'Data folder', 'Started', 'Last seen'],
        items.map((each) => [
          each.name,
          each.state === 'live'
            ? html`<span class="state good">runs</span>`
            : html`<span class="state bad">not seen</span> it did not end in order`,
          each.version,
          each.address ?? html`<span class="quiet">none</span>`,
          html`<code>${each.folder.slice(0, 8)}</code>`,
          ago(each.started_at, now),
          ago(each.seen_at, now),
        ]),
        { label: 'the instances' },
      )}
      <p class="hint">
        Instances with the same data folder share its files. Uploads continue at any instance that has an address for
        others.
      </p>`;
    return { title: 'Instances', body, json: '/v1/instances' };
  },
};
