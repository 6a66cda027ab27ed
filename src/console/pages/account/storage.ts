import type { z } from 'zod';
import { storageSchema } from '../../../api/account/storage.ts';
import { ago, bytesText, sizeHtml } from '../../framework/format.ts';
import { html, type Html } from '../../framework/html.ts';
import { may } from '../../framework/layout.ts';
import { imagePath, packagePath } from '../../framework/links.ts';
import type { Page } from '../../framework/page.ts';
import { barChart, shareBar } from '../../framework/plot.ts';
import { facts, table } from '../../framework/table.ts';

type Storage = z.input<typeof storageSchema>;

const path = '/console/storage';

/** What fills the disk, how it grew, and what nobody uses. */
export const storagePage: Page = {
  path: '/storage',
  section: 'usage',
  action: 'account',
  show: async ({ api, query, now, principal }) => {
    const days = query['days'] === '365' ? '365' : '30';
    const storage = await api.call('getStorage', storageSchema, { query: { days } });
    const body = html`${sharesOf(storage)}
      <p class="quiet">As of ${ago(storage.as_of, now)}.</p>
      <section>
        <h2>Growth</h2>
        <p class="choices">
          <a href="${path}" ${days === '30' && html`aria-current="true"`}>30 days</a>
          <a href="${path}?days=365" ${days === '365' && html`aria-current="true"`}>365 days</a>
        </p>
        ${growthOf(storage)}
      </section>
      <section>
        <h2>The largest packages and images</h2>
        ${names(storage.largest, now, 'Nothing is hosted yet.')}
      </section>
      <section>
        <h2>Not downloaded and not changed for 90 days</h2>
        ${names(storage.unused, now, 'Each of the largest was used or changed in the last 90 days.')}
        <p class="hint">Open one to delete or unlist its versions or tags.</p>
      </section>
      ${may(principal, 'operate') && cleanUps}`;
    return { title: 'Storage', body, json: '/v1/account/storage' };
  },
};

function sharesOf({ hosted_bytes: hosted, mirrored_bytes: mirrored, ...storage }: Storage): Html {
  const stored = hosted + mirrored;
  const { disk, limit_bytes: limit, mirror_limit_bytes: mirrorLimit } = storage;
  return facts(
    ['Stored', html`${sizeHtml(stored)}: ${bytesText(hosted)} hosted, ${bytesText(mirrored)} mirrored`],
    limit !== null && ['Limit of the account', shareBar(stored, limit, `${bytesText(stored)} of ${bytesText(limit)}`)],
    mirrorLimit !== null && [
      'Limit of the mirror',
      shareBar(mirrored, mirrorLimit, `${bytesText(mirrored)} of ${bytesText(mirrorLimit)}`),
    ],
    disk && [
      'Disk of the data folder',
      shareBar(
        stored,
        stored + disk.free_bytes,
        `${bytesText(disk.free_bytes)} free, of which ${bytesText(disk.reserve_bytes)} stay free`,
      ),
    ],
  );
}

function growthOf({ history }: Storage): Html {
  if (history.length === 0) return html`<p class="empty">The first sample is taken within ten minutes.</p>`;
  const bars = history.map(({ date, hosted_bytes: hosted, mirrored_bytes: mirrored }) => ({
    label: date.slice(5),
    value: hosted + mirrored,
    part: hosted,
    text: `${bytesText(hosted)} hosted, ${bytesText(mirrored)} mirrored`,
  }));
  return html`${barChart(bars, 'Stored bytes of each day, hosted ones below')}
    <details>
      <summary>As a table</summary>
      ${table(
        [{ name: 'Day' }, { number: 'Hosted' }, { number: 'Mirrored' }],
        history.map((each) => [each.date, sizeHtml(each.hosted_bytes), sizeHtml(each.mirrored_bytes)]),
        { label: 'stored bytes by day' },
      )}
    </details>`;
}

function names(items: Storage['largest'], now: number, empty: string): Html {
  return table(
    [{ name: 'Name' }, 'Kind', { number: 'Size' }, 'Last download', 'Changed'],
    items.map(({ kind, name, size_bytes: bytes, ...each }) => [
      html`<a href="${kind === 'package' ? `${packagePath(name)}?show=versions` : imagePath(name)}">${name}</a>`,
      kind === 'package' ? 'package' : 'image',
      sizeHtml(bytes),
      ago(each.last_used_at, now),
      ago(each.changed_at, now),
    ]),
    { empty },
  );
}

const cleanUps = html`<section>
  <h2>What can be freed</h2>
  <p>Each job shows what a run would delete before you start it:</p>
  <ul>
    <li>
      <a href="/console/jobs/retention">retention</a>: old versions, old tags and untagged images, by the rules of the
      settings
    </li>
    <li>
      <a href="/console/jobs/evict">evict</a>: the least recently used mirrored content above the limit of the mirror
    </li>
    <li><a href="/console/jobs/gc">gc</a>: bytes that nothing refers to any more</li>
  </ul>
</section>`;
